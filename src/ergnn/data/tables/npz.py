"""Graphs from ``.npz`` files in the layout of gnn-benchmark (Shchur et al., 2018); nodes are numbered from 0."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ergnn.config.errors import FormatError, listed, truncate
from ergnn.config.files import wrap_errors
from ergnn.data.tables.limits import Limits, file_size
from ergnn.data.tables.node_tables import EdgeTable, EncodedText, NodeTable

EXPANDED = (32, 50)
"""Compressed arrays may expand to 32 MB or 50 times the file size; real graphs expand 3 to 6 times."""
LONGEST_HEADER = 4096


def read_npz(path: Path, limits: Limits) -> tuple[NodeTable, EdgeTable]:
    """Read a CSR matrix of edge weights (``adj_data``, ``adj_indices``, ``adj_indptr``, ``adj_shape``), features in CSR
    form (``attr_…``) or dense (``attr_matrix``), and ``labels`` (negative: no label)."""
    arrays = _load(path, limits)
    if "adj_shape" not in arrays:
        raise FormatError(f"{path}: no array 'adj_shape'; found are {listed(sorted(arrays)) or 'none'}")
    adjacency = _csr(arrays, "adj", limits, path)
    n = adjacency.shape[0]
    if n != adjacency.shape[1]:
        raise FormatError(f"{path}, array 'adj_shape': {list(adjacency.shape)}; an adjacency matrix is square")
    limits.check("edges", adjacency.nnz, path)
    features = arrays.get("attr_matrix")
    if features is None and "attr_shape" in arrays:
        features = _csr(arrays, "attr", limits, path)
    if features is not None:
        limits.check("features", features.shape[-1], path)
        limits.check_bytes(4 * (features.nnz if scipy.sparse.issparse(features) else features.size), path)
        if features.ndim != 2 or features.shape[0] != n or features.dtype.kind not in "biuf":
            raise FormatError(
                f"{path}: attributes have shape {list(features.shape)} of {features.dtype}; numbers of shape "
                f"[{n}, features] are required"
            )
    labels = arrays.get("labels")
    if labels is not None:
        labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
        if labels.shape != (n,) or labels.dtype.kind not in "biufU":
            raise FormatError(
                f"{path}, array 'labels': shape {list(labels.shape)} of {labels.dtype}; shape [{n}] of numbers or text "
                "is required"
            )
        labels = labels if labels.dtype.kind in "bU" else [None if label < 0 else label for label in labels.tolist()]
    ids = [str(i) for i in range(n)]
    source = np.repeat(np.arange(n), np.diff(adjacency.indptr))
    edges = EdgeTable(EncodedText(ids, source), EncodedText(ids, adjacency.indices), adjacency.data)
    return NodeTable(ids, labels, features=features, row_name=lambda row: f"{path}, node {row}"), edges


def _load(path: Path, limits: Limits) -> dict[str, Any]:
    """Load arrays of numbers and text after their claimed sizes were checked."""
    size = file_size(path, limits)
    with wrap_errors(path, "an npz file"), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        names = [member.filename for member in members]
        if len(set(names)) < len(names):
            raise FormatError(f"{path}: array {truncate(max(names, key=names.count))} occurs twice")
        limits.check_ratio(sum(member.file_size for member in members), size, *EXPANDED, path)
        for member in members:
            with archive.open(member) as stream:
                _check_header(stream, member.file_size, f"{path}, array {truncate(member.filename)}")
    with wrap_errors(path, "an npz file"), np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _check_header(stream: Any, size: int, where: str) -> None:
    """Refuse an array whose shape does not fit the size of its data; numpy would allocate it first."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read(stream, max_header_size=LONGEST_HEADER)
    if kind.hasobject:
        raise FormatError(f"{where}: holds Python objects; these are pickles, which are never read")
    needed, left = math.prod(shape) * kind.itemsize, size - stream.tell()
    if needed != left or min(shape, default=0) < 0:
        raise FormatError(f"{where}: shape {list(shape)} of {kind} takes {needed:,} bytes; the file has {left:,}")


def _csr(arrays: dict[str, Any], prefix: str, limits: Limits, path: Path) -> scipy.sparse.csr_matrix:
    with wrap_errors(f"{path}, arrays '{prefix}_…'", "a CSR matrix"):
        given = {name: arrays[f"{prefix}_{name}"] for name in ("data", "indices", "indptr", "shape")}
        for name, array in given.items():
            if array.ndim != 1 or array.dtype.kind not in ("biuf" if name == "data" else "iu"):
                raise ValueError(f"{name} has shape {list(array.shape)} and holds {array.dtype}")
        data, indices, indptr, shape = (a.astype(a.dtype.newbyteorder("="), copy=False) for a in given.values())
        rows, columns = (int(size) for size in shape)
        limits.check("nodes", rows, path)
        if rows < 1 or columns < 0 or len(indptr) != rows + 1 or len(data) != indptr[-1]:
            raise ValueError(f"shape is {[rows, columns]}, with {len(indptr):,} row ends and {len(data):,} entries")
        matrix = scipy.sparse.csr_matrix((data, indices, indptr), shape=(rows, columns))
        matrix.check_format(full_check=True)
    return matrix
