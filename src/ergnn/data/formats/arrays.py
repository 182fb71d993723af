"""Whole graphs as arrays: ``.npz`` files in the layout of gnn-benchmark (Shchur et al., 2018), and the tensors of
``.safetensors`` and ``.pt`` files under the names that PyG gives them. Nodes are numbered from 0."""

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

from ergnn.data.formats.boundary import wrap_errors
from ergnn.data.formats.limits import Limits, file_size, truncate
from ergnn.data.formats.tables import SPLITS, EdgeTable, NodeTable, listed, numbered
from ergnn.errors import FormatError

LOCK = Lock()
"""What torch.load may build is a list of the whole process, which is longer only while one file is read."""
ARRAYS_RATIO = (32, 50)
"""Compressed arrays may expand to 32 MB or 50 times the file; those of real graphs are 3 to 6 times the file."""
LONGEST_HEADER = 4096
KNOWN = ("x", "edge_index", "y", "edge_weight", "time", "edge_time", *(f"{part}_mask" for part in SPLITS))
Arrays = dict[str, np.ndarray]


def read_npz(path: Path, limits: Limits) -> tuple[NodeTable, EdgeTable]:
    """Nodes and edges of ``adj_data``, ``adj_indices``, ``adj_indptr`` and ``adj_shape``, a CSR adjacency matrix;
    ``attr_…`` likewise or a dense ``attr_matrix``; and ``labels``, of which negative ones are none."""
    arrays = _load_npz(path, limits)
    n, columns = _shape(arrays, "adj", path)
    if n != columns:
        raise FormatError(f"{path}, array 'adj_shape': [{n}, {columns}]; an adjacency matrix is square")
    limits.check("nodes", n, path)
    adjacency = _csr(arrays, "adj", n, n, path)
    limits.check("edges", adjacency.nnz, path)
    features: Any = arrays.get("attr_matrix")
    if features is None and "attr_shape" in arrays:
        features = _csr(arrays, "attr", *_shape(arrays, "attr", path), path)
    weight = None if (adjacency.data == 1).all() else adjacency.data
    source = np.repeat(np.arange(n), np.diff(adjacency.indptr))
    found = {"y": arrays["labels"]} if "labels" in arrays else {}
    edges = {"edge_index": np.stack([source, adjacency.indices])} | ({} if weight is None else {"edge_weight": weight})
    return _tables(found | edges, features, n, limits, path)


def _load_npz(path: Path, limits: Limits) -> Arrays:
    """Arrays of numbers and text, whose claimed sizes were checked before they are read."""
    size = file_size(path, limits)
    with wrap_errors(path, "an npz file"), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        names = [member.filename for member in members]
        if len(set(names)) < len(names):
            raise FormatError(f"{path}: array {truncate(max(names, key=names.count))} occurs twice")
        limits.check_ratio(sum(member.file_size for member in members), size, *ARRAYS_RATIO, path)
        for member in members:
            with archive.open(member) as stream:
                _check_header(stream, member, path)
    with wrap_errors(path, "an npz file"), np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _check_header(stream: Any, member: zipfile.ZipInfo, path: Path) -> None:
    """Refuse an array whose shape takes other bytes than the file has, which numpy would allocate first."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read(stream, max_header_size=LONGEST_HEADER)
    where = f"{path}, array {truncate(member.filename.removesuffix('.npy'))}"
    if kind.hasobject:
        raise FormatError(f"{where}: holds Python objects; these are pickles, which are never read")
    if stream.tell() + math.prod(shape) * kind.itemsize != member.file_size or any(size < 0 for size in shape):
        raise FormatError(
            f"{where}: shape {list(shape)} of {kind} takes {math.prod(shape) * kind.itemsize:,} bytes; the file has "
            f"{member.file_size - stream.tell():,}"
        )


def _shape(arrays: Arrays, matrix: str, path: Path) -> tuple[int, int]:
    name = f"{matrix}_shape"
    if name not in arrays:
        raise FormatError(f"{path}: no array {name!r}; found are {listed(sorted(arrays)) or 'none'}")
    shape = arrays[name]
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape[0] < 1 or shape[1] < 0:
        raise FormatError(f"{path}, array {name!r}: {truncate(shape.tolist())} is not the shape of a matrix")
    return int(shape[0]), int(shape[1])


def _csr(arrays: Arrays, matrix: str, rows: int, columns: int, path: Path) -> scipy.sparse.csr_matrix:
    parts = [arrays.get(f"{matrix}_{part}") for part in ("data", "indices", "indptr")]
    with wrap_errors(f"{path}, arrays '{matrix}_…'", "a CSR matrix"):
        data, indices, indptr = (_native(part, "iuf" if i == 0 else "iu") for i, part in enumerate(parts))
        if len(indptr) != rows + 1:
            raise ValueError(f"indptr has {len(indptr):,} values; {rows + 1:,} are required")
        found = scipy.sparse.csr_matrix((data, indices, indptr), shape=(rows, columns))
        found.check_format(full_check=True)
        if len(data) != found.indptr[-1] or len(indices) != len(data):
            raise ValueError(f"{len(data):,} entries and {len(indices):,} indices; indptr ends at {found.indptr[-1]:,}")
    return found


def _native(array: np.ndarray | None, kinds: str) -> np.ndarray:
    if array is None:
        raise ValueError("data, indices, indptr or shape is missing")
    if array.ndim != 1 or array.dtype.kind not in kinds + "b":
        raise ValueError(f"an array of shape {list(array.shape)} holds {array.dtype}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def read_safetensors(path: Path, limits: Limits) -> tuple[NodeTable, EdgeTable]:
    """Nodes and edges of ``x`` ``[n, f]``, ``edge_index`` ``[2, m]``, and where present ``y`` ``[n]`` (negative: no
    label), ``train_mask``, ``val_mask``, ``test_mask`` and ``time`` ``[n]``, ``edge_weight`` and ``edge_time`` ``[m]``."""
    from safetensors import safe_open

    file_size(path, limits)
    with wrap_errors(path, "a safetensors file"), safe_open(path, framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys() if key in KNOWN}  # noqa: SIM118
    return _from_tensors(tensors, limits, path)


def read_pt(path: Path, limits: Limits) -> tuple[NodeTable, EdgeTable]:
    """The same of a PyG ``Data`` or a dict of tensors, saved by ``torch.save``; ``x`` may be sparse."""
    from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    size = file_size(path, limits)
    with LOCK, wrap_errors(path, "a file of tensors, dicts and PyG Data only"):
        known = torch.serialization.get_safe_globals()
        needed = [kind for kind in (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage) if kind not in known]
        # leaving the block takes back all that it was given, also what PyG itself had allowed before
        with torch.serialization.safe_globals(needed):
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(loaded, tuple) and loaded:
        loaded = loaded[0]  # PyG's processed files: (data, slices, …)
    with wrap_errors(path, "a PyG Data"):
        loaded = dict(vars(vars(loaded)["_store"])["_mapping"]) if isinstance(loaded, Data) else loaded
    if not isinstance(loaded, dict):
        raise FormatError(f"{path}: holds a {type(loaded).__name__}; a PyG Data or a dict of tensors is required")
    tensors = {key: value for key, value in loaded.items() if key in KNOWN}
    for key, value in tensors.items():
        if not isinstance(value, Tensor) or value.device.type != "cpu":
            raise FormatError(f"{path}, {key!r}: a {type(value).__name__}; a tensor on the CPU is required")
        parts = [value] if value.layout == torch.strided else _parts(value, f"{path}, {key!r}")
        if any(part.numel() * part.element_size() > size for part in parts):  # as an expanded tensor does
            raise FormatError(f"{path}, {key!r}: shape {list(value.shape)} takes more bytes than the file has")
    return _from_tensors(tensors, limits, path)


def _parts(x: Tensor, where: str) -> list[Tensor]:
    """Indices and values of a sparse tensor, which nobody has checked."""
    with wrap_errors(where, "a sparse matrix"):
        if x.layout == torch.sparse_coo:
            return [x._indices(), x._values()]
        if x.layout == torch.sparse_csr:
            return [x.crow_indices(), x.col_indices(), x.values()]
        raise ValueError(f"its layout is {x.layout}; dense, COO or CSR is required")


def _from_tensors(tensors: dict[str, Tensor], limits: Limits, path: Path) -> tuple[NodeTable, EdgeTable]:
    for name in ("x", "edge_index"):
        if name not in tensors:
            raise FormatError(f"{path}: no {name!r}; x and edge_index are required, y is read where present")
    x = tensors["x"].detach()
    if x.dim() != 2 or not x.size(0) or x.is_complex() or x.is_quantized:
        raise FormatError(f"{path}, 'x': shape {list(x.shape)} of {x.dtype}; [nodes, features] of numbers is required")
    limits.check("nodes", x.size(0), path)
    arrays = {}
    for name, tensor in tensors.items():
        if name != "x":
            with wrap_errors(f"{path}, {name!r}", "an array"):
                arrays[name] = (tensor.float() if tensor.is_floating_point() else tensor).detach().numpy()
    if x.layout == torch.strided:
        limits.check_bytes(4 * x.numel(), path, "features take")
        features: Any = x.float().numpy()
    else:
        with wrap_errors(f"{path}, 'x'", "a sparse matrix"):
            *index, values = (part.numpy() for part in _parts(x.float(), f"{path}, 'x'"))
            entries = (values, tuple(index[0])) if x.layout == torch.sparse_coo else (values, index[1], index[0])
            features = scipy.sparse.csr_matrix(entries, shape=tuple(x.shape))
            features.check_format(full_check=True)
    return _tables(arrays, features, x.size(0), limits, path)


def _tables(arrays: Arrays, features: Any, n: int, limits: Limits, path: Path) -> tuple[NodeTable, EdgeTable]:
    """Tables of the arrays by PyG's names, which are checked."""
    edge_index = _checked(arrays, "edge_index", (2, None), "iu", path)
    assert edge_index is not None
    m = edge_index.shape[1]
    limits.check("edges", m, path)
    bad = edge_index[(edge_index < 0) | (edge_index >= n)]
    if bad.size:
        raise FormatError(f"{path}, 'edge_index': an edge names node {bad[0]}; nodes are 0 to {n - 1}")
    if features is not None:
        if features.ndim != 2 or features.shape[0] != n:
            raise FormatError(f"{path}: features of shape {list(features.shape)}; the graph has {n:,} nodes")
        if features.dtype.kind not in "biuf":
            raise FormatError(f"{path}: features of {features.dtype}; numbers are required")
        limits.check("features", features.shape[1], path)
    if (y := arrays.get("y")) is not None and y.ndim == 2 and y.shape[1] == 1:
        arrays = arrays | {"y": y[:, 0]}
    y = _checked(arrays, "y", (n,), "biufU", path)
    labels = y if y is None or y.dtype.kind in "bU" else [None if label < 0 else label for label in y.tolist()]
    ids = numbered(n)
    nodes = NodeTable(
        ids=ids,
        labels=labels,
        time=_checked(arrays, "time", (n,), "iuf", path),
        split=_split(arrays, n, path),
        features=features,
        place=lambda row: f"{path}, node {row}",
    )
    edges = EdgeTable(
        source=ids[edge_index[0]],
        target=ids[edge_index[1]],
        weight=_checked(arrays, "edge_weight", (m,), "biuf", path),
        time=_checked(arrays, "edge_time", (m,), "iuf", path),
        place=lambda row: f"{path}, edge {row}",
    )
    return nodes, edges


def _checked(arrays: Arrays, name: str, shape: tuple[int | None, ...], kinds: str, path: Path) -> np.ndarray | None:
    if name not in arrays:
        return None
    array = arrays[name]
    if array.ndim != len(shape) or any(want not in (have, None) for have, want in zip(array.shape, shape, strict=True)):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise FormatError(f"{path}, {name!r}: shape {list(array.shape)}; [{wanted}] is required")
    if array.dtype.kind not in kinds:
        raise FormatError(f"{path}, {name!r}: holds {array.dtype}, which cannot be used there")
    return array


def _split(arrays: Arrays, n: int, path: Path) -> np.ndarray | None:
    masks = {part: _checked(arrays, f"{part}_mask", (n,), "b", path) for part in SPLITS}
    if all(mask is None for mask in masks.values()):
        return None
    split = np.full(n, None, dtype=object)
    for part, mask in masks.items():
        if mask is not None:
            taken = np.flatnonzero(mask & (split != np.array(None)))
            if taken.size:
                raise FormatError(f"{path}, '{part}_mask': node {taken[0]} is in {split[taken[0]]} already")
            split[mask] = part
    return split
