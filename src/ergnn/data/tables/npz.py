"""Graphs from ``.npz`` files in the layout of gnn-benchmark (Shchur et al., 2018); nodes are numbered from 0."""

from __future__ import annotations

import io
import zipfile
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ergnn.config.errors import FormatError, listed
from ergnn.config.files import wrap_errors
from ergnn.config.limits import Limits
from ergnn.data.tables.columns import Columns
from ergnn.data.tables.node_tables import EdgeTable, EncodedText, NodeTable
from ergnn.data.tables.sources import file_size

EXPANDED = (32, 50)
"""Compressed arrays may expand to 32 MB or 50 times the file size; real graphs expand 3 to 6 times."""
LONGEST_HEADER = 4096


def read_graph(
    path: str | PathLike[str], *, columns: Columns | None = None, limits: Limits | None = None
) -> tuple[NodeTable, EdgeTable]:
    """Read nodes and edges from one ``.npz`` file: a CSR matrix of edge weights (``adj_data``, ``adj_indices``,
    ``adj_indptr``, ``adj_shape``), features in CSR form (``attr_…``) or dense (``attr_matrix``), and ``labels``
    (negative: no label).

    Args:
        path: the file.
        columns: ``ignore=["weight"]`` drops edge weights.
        limits: maximum sizes; default: :class:`Limits`.
    """
    path, limits = Path(path), limits or Limits()
    if path.suffix.lower() != ".npz":
        raise FormatError(f"{path}: not a known graph file; names end in .npz (for others, see docs/formats.md)")
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
    labels = arrays["labels"].reshape(-1) if "labels" in arrays else None
    for name, array in (("attributes", features), ("labels", labels)):
        if array is not None and (array.shape[0] != n or array.dtype.kind not in "biufU"):
            raise FormatError(
                f"{path}, {name}: shape {list(array.shape)} of {array.dtype}; numbers for each of {n} nodes are needed"
            )
    if labels is not None:
        labels = labels if labels.dtype.kind in "bU" else [None if label < 0 else label for label in labels.tolist()]
    ids = [str(i) for i in range(n)]
    source = np.repeat(np.arange(n), np.diff(adjacency.indptr))
    weight = None if columns is not None and "weight" in columns.ignore else adjacency.data
    edges = EdgeTable(EncodedText(ids, source), EncodedText(ids, adjacency.indices), weight)
    return NodeTable(ids, labels, features=features, where=str(path)), edges


def _load(path: Path, limits: Limits) -> dict[str, Any]:
    """Load arrays of numbers and text after their claimed sizes were checked."""
    size = file_size(path, limits)
    with wrap_errors(path, "an npz file"), zipfile.ZipFile(path) as archive:
        limits.check_ratio(sum(member.file_size for member in archive.infolist()), size, *EXPANDED, path)
        return {name.removesuffix(".npy"): _array(archive.read(name)) for name in archive.namelist()}


def _array(raw: bytes) -> np.ndarray:
    """Read an array of a ``.npy`` file; numpy's reader would allocate what the header claims before it reads."""
    stream = io.BytesIO(raw)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, kind = read(stream, max_header_size=LONGEST_HEADER)
    if kind.hasobject:
        raise ValueError("it holds Python objects; these are pickles, which are never read")
    return np.frombuffer(raw[stream.tell() :], kind).reshape(shape, order="F" if is_fortran else "C")


def _csr(arrays: dict[str, Any], prefix: str, limits: Limits, path: Path) -> scipy.sparse.csr_matrix:
    with wrap_errors(f"{path}, arrays '{prefix}_…'", "a CSR matrix"):
        given = {name: arrays[f"{prefix}_{name}"] for name in ("data", "indices", "indptr", "shape")}
        for name, array in given.items():
            if array.ndim != 1 or array.dtype.kind not in ("biuf" if name == "data" else "iu"):
                raise ValueError(f"{name} has shape {list(array.shape)} and holds {array.dtype}")
        data, indices, indptr, shape = given.values()
        rows, columns = (int(size) for size in shape)
        limits.check("nodes", rows, path)
        matrix = scipy.sparse.csr_matrix((data, indices, indptr), shape=(rows, columns))
        matrix.check_format(full_check=True)
    return matrix
