"""Graphs from files of arrays: ``.npz`` in the layout of gnn-benchmark (Shchur et al., 2018); ``.safetensors`` and
``.pt`` with tensors named as in PyG. Nodes are numbered from 0."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from ergnn.config.errors import FormatError, listed, truncate
from ergnn.config.files import wrap_errors
from ergnn.data.tables.limits import Limits, file_size
from ergnn.data.tables.node_tables import SPLITS, Coded, EdgeTable, NodeTable

LOCK = Lock()
"""The classes that torch.load may build are global; they are extended only while one file is read."""
ARRAYS_RATIO = (32, 50)
"""Compressed arrays may expand to 32 MB or 50 times the file size; real graphs expand 3 to 6 times."""
LONGEST_HEADER = 4096
MASKS = tuple(f"{part}_mask" for part in SPLITS)
KNOWN = ("x", "edge_index", "edge_weight", "y", "time", *MASKS)
KINDS = {"edge_index": "iu", "edge_weight": "biuf", "y": "biufU", **dict.fromkeys(MASKS, "b"), "x": "biuf"}
Arrays = dict[str, Any]


def read_npz(path: Path, limits: Limits) -> tuple[NodeTable, EdgeTable]:
    """Read a CSR matrix of edge weights (``adj_data``, ``adj_indices``, ``adj_indptr``, ``adj_shape``), features in CSR
    form (``attr_…``) or dense (``attr_matrix``), and ``labels`` (negative: no label)."""
    found = _load_npz(path, limits)
    if "adj_shape" not in found:
        raise FormatError(f"{path}: no array 'adj_shape'; found are {listed(sorted(found)) or 'none'}")
    adjacency = _csr(found, "adj", limits, path)
    if adjacency.shape[0] != adjacency.shape[1]:
        raise FormatError(f"{path}, array 'adj_shape': {list(adjacency.shape)}; an adjacency matrix is square")
    source = np.repeat(np.arange(adjacency.shape[0]), np.diff(adjacency.indptr))
    arrays: Arrays = {"edge_index": np.stack([source, adjacency.indices]), "edge_weight": adjacency.data}
    if "labels" in found:
        arrays["y"] = found["labels"]
    if "attr_matrix" in found or "attr_shape" in found:
        arrays["x"] = found["attr_matrix"] if "attr_matrix" in found else _csr(found, "attr", limits, path)
    return _tables(arrays, adjacency.shape[0], limits, path)


def _load_npz(path: Path, limits: Limits) -> Arrays:
    """Load arrays of numbers and text after their claimed sizes were checked."""
    size = file_size(path, limits)
    with wrap_errors(path, "an npz file"), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        names = [member.filename for member in members]
        if len(set(names)) < len(names):
            raise FormatError(f"{path}: array {truncate(max(names, key=names.count))} occurs twice")
        limits.check_ratio(sum(member.file_size for member in members), size, *ARRAYS_RATIO, path)
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


def _csr(arrays: Arrays, matrix: str, limits: Limits, path: Path) -> scipy.sparse.csr_matrix:
    with wrap_errors(f"{path}, arrays '{matrix}_…'", "a CSR matrix"):
        parts = {part: arrays[f"{matrix}_{part}"] for part in ("data", "indices", "indptr", "shape")}
        for part, array in parts.items():
            if array.ndim != 1 or array.dtype.kind not in ("biuf" if part == "data" else "iu"):
                raise ValueError(f"{part} has shape {list(array.shape)} and holds {array.dtype}")
        data, indices, indptr, shape = (a.astype(a.dtype.newbyteorder("="), copy=False) for a in parts.values())
        rows, columns = (int(size) for size in shape)
        limits.check("nodes", rows, path)
        if rows < 1 or columns < 0 or len(indptr) != rows + 1 or len(data) != indptr[-1]:
            raise ValueError(f"shape is {[rows, columns]}, with {len(indptr):,} row ends and {len(data):,} entries")
        found = scipy.sparse.csr_matrix((data, indices, indptr), shape=(rows, columns))
        found.check_format(full_check=True)
    return found


def read_safetensors(path: Path, limits: Limits) -> tuple[NodeTable, EdgeTable]:
    """Read ``x`` ``[n, f]`` and ``edge_index`` ``[2, m]``; optional are ``edge_weight`` ``[m]`` and ``y`` (negative: no
    label), ``train_mask``, ``val_mask``, ``test_mask`` and ``time``, each ``[n]``."""
    from safetensors import safe_open

    file_size(path, limits)
    with wrap_errors(path, "a safetensors file"), safe_open(path, framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys() if key in KNOWN}  # noqa: SIM118
    return _from_tensors(tensors, limits, path)


def read_pt(path: Path, limits: Limits) -> tuple[NodeTable, EdgeTable]:
    """Read the same tensors from a PyG ``Data`` or a dict saved by ``torch.save``."""
    from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    size = file_size(path, limits)
    with LOCK, wrap_errors(path, "a file of torch.save"):
        known = torch.serialization.get_safe_globals()
        needed = [kind for kind in (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage) if kind not in known]
        # leaving the block removes every class passed to it, so pass none that PyG has already allowed
        with torch.serialization.safe_globals(needed):
            if unsafe := torch.serialization.get_unsafe_globals_in_checkpoint(path):
                raise FormatError(f"{path}: names {listed(unsafe)}; only tensors, dicts and PyG's Data are read")
            loaded = torch.load(path, map_location="cpu", weights_only=True)
        loaded = loaded[0] if isinstance(loaded, tuple) else loaded  # PyG's processed files: (data, slices, …)
        loaded = vars(vars(loaded)["_store"])["_mapping"] if isinstance(loaded, Data) else loaded
        if not isinstance(loaded, dict):
            raise TypeError(f"it holds a {type(loaded).__name__}; a PyG Data or a dict of tensors is required")
        tensors = {key: value for key, value in loaded.items() if key in KNOWN}
        for key, value in tensors.items():
            if getattr(value, "layout", None) != torch.strided:
                raise TypeError(f"{key} is not a dense tensor")
            if value.numel() * value.element_size() > size:  # such as an expanded tensor
                raise ValueError(f"{key} of shape {list(value.shape)} takes more bytes than the file has")
    return _from_tensors(tensors, limits, path)


def _from_tensors(tensors: dict[str, Tensor], limits: Limits, path: Path) -> tuple[NodeTable, EdgeTable]:
    arrays: Arrays = {}
    for name, tensor in tensors.items():
        with wrap_errors(f"{path}, {name!r}", "an array"):
            half = tensor.dtype in (torch.float16, torch.bfloat16)
            arrays[name] = (tensor.float() if half else tensor).detach().numpy()
    if "x" not in arrays or "edge_index" not in arrays or arrays["x"].ndim != 2:
        raise FormatError(
            f"{path}: x of shape [nodes, features] and edge_index are required; found are {listed(sorted(arrays))}"
        )
    return _tables(arrays, arrays["x"].shape[0], limits, path)


def _tables(arrays: Arrays, n: int, limits: Limits, path: Path) -> tuple[NodeTable, EdgeTable]:
    """Check arrays named as in PyG, and convert them to tables."""
    m = arrays["edge_index"].shape[-1] if arrays["edge_index"].ndim else 0
    x = arrays.get("x")
    limits.check("nodes", n, path)
    limits.check("edges", m, path)
    for name in ("y", "edge_weight"):
        if name in arrays and arrays[name].ndim == 2 and arrays[name].shape[1] == 1:
            arrays[name] = arrays[name][:, 0]
    if x is not None:
        limits.check("features", x.shape[-1], path)
        limits.check_bytes(4 * (x.nnz if scipy.sparse.issparse(x) else x.size), path, "features take")
    shapes = {"edge_index": (2, m), "edge_weight": (m,), "x": (n, 0 if x is None else x.shape[-1])}
    for name, array in arrays.items():
        shape, kinds = shapes.get(name, (n,)), KINDS.get(name, "iuf")
        if array.shape != shape or array.dtype.kind not in kinds or (name != "x" and scipy.sparse.issparse(array)):
            raise FormatError(
                f"{path}, {name!r}: shape {list(array.shape)} of {array.dtype}; shape {list(shape)} of "
                f"{'integers' if kinds == 'iu' else 'booleans' if kinds == 'b' else 'numbers'} is required"
            )
    for bad in arrays["edge_index"][(arrays["edge_index"] < 0) | (arrays["edge_index"] >= n)]:
        raise FormatError(f"{path}, 'edge_index': an edge names node {bad}; nodes are 0 to {n - 1}")
    ids, split, y = [str(i) for i in range(n)], None, arrays.get("y")
    for part, mask in zip(SPLITS, MASKS, strict=True):
        split = np.full(n, None) if split is None and mask in arrays else split
        if split is not None and mask in arrays:
            for taken in np.flatnonzero(arrays[mask] & (split != None)):  # noqa: E711  # element by element
                raise FormatError(f"{path}, {mask!r}: node {taken} is in {split[taken]} already")
            split[arrays[mask]] = part
    labels = y if y is None or y.dtype.kind in "bU" else [None if label < 0 else label for label in y.tolist()]
    nodes = NodeTable(ids, labels, arrays.get("time"), split, features=x, place=lambda row: f"{path}, node {row}")
    source, target = (Coded(ids, end) for end in arrays["edge_index"])
    return nodes, EdgeTable(source, target, arrays.get("edge_weight"))
