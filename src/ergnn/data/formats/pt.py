"""PyG ``Data`` files and dicts of tensors, saved by ``torch.save``.

Such a file is a zip file with one pickle and the tensors' bytes. The pickle is scanned first, without running it: every
name in it must be on a short list of PyTorch's tensor constructors and PyG's containers. Then ``torch.load`` reads it
with ``weights_only=True``, PyTorch's own unpickler that calls nothing else. Only the tensors are taken from the result.
"""

from __future__ import annotations

import pickletools
import re
import zipfile
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from ergnn.data.formats.boundary import foreign, opened_zip
from ergnn.data.formats.limits import MEGABYTE, Limits, file_size, shown
from ergnn.data.formats.tables import SPLITS, EdgeTable, NodeTable, numbered
from ergnn.errors import FormatError

LOCK = Lock()
"""What torch.load may build is a list of the whole process, which is longer only while one file is read."""
PICKLE = 16 * MEGABYTE
CONTAINERS = ("data.data.Data", "data.data.DataEdgeAttr", "data.data.DataTensorAttr", "data.storage.GlobalStorage")
NAMES = frozenset(
    {
        "collections OrderedDict",
        "torch Size",
        "torch.serialization _get_layout",
        *(f"torch._utils _rebuild_{what}" for what in ("tensor_v2", "parameter", "sparse_tensor")),
        *("torch_geometric.{} {}".format(*name.rsplit(".", 1)) for name in CONTAINERS),
    }
)
STORAGE = re.compile(r"torch (Double|Float|Half|BFloat16|Long|Int|Short|Char|Byte|Bool)Storage")
NEW_NAMES = ("STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4")
KNOWN = ("x", "edge_index", "y", "edge_weight", "time", "edge_time", *(f"{part}_mask" for part in SPLITS))


def read_pt(path: Path, limits: Limits) -> tuple[NodeTable, EdgeTable]:
    """Nodes, numbered from 0, and edges of a ``Data`` or a dict.

    Read are ``x`` ``[n, f]``, ``edge_index`` ``[2, m]``, ``y`` ``[n]`` (negative: no label), ``train_mask``,
    ``val_mask`` and ``test_mask`` ``[n]``, ``edge_weight`` and ``edge_time`` ``[m]``, and ``time`` ``[n]``.
    """
    size = file_size(path, limits)
    _check_archive(path)
    tensors = {key: value for key, value in _load(path).items() if key in KNOWN}
    for key, value in tensors.items():
        _check_tensor(key, value, size, path)
    n = _num_nodes(tensors, path)
    limits.check("nodes", n, path)
    edge_index = _shaped(tensors, "edge_index", (2, None), "iu", path)
    assert edge_index is not None
    limits.check("edges", edge_index.shape[1], path)
    bad = edge_index[(edge_index < 0) | (edge_index >= n)]
    if bad.size:
        raise FormatError(f"{path}, 'edge_index': an edge names node {bad[0]}; nodes are 0 to {n - 1}")
    ids, m = numbered(n), edge_index.shape[1]
    nodes = NodeTable(
        ids=ids,
        labels=_labels(_shaped(tensors, "y", (n,), "biu", path)),
        time=_shaped(tensors, "time", (n,), "iuf", path),
        split=_split(tensors, n, path),
        features=_features(tensors, size, limits, path),
        place=lambda row: f"{path}, node {row}",
    )
    edges = EdgeTable(
        source=ids[edge_index[0]],
        target=ids[edge_index[1]],
        weight=_shaped(tensors, "edge_weight", (m,), "iuf", path),
        time=_shaped(tensors, "edge_time", (m,), "iuf", path),
        place=lambda row: f"{path}, edge {row}",
    )
    return nodes, edges


def _check_archive(path: Path) -> None:
    """Members are stored as they are, as ``torch.save`` does, and the pickle names nothing but what is allowed."""
    with opened_zip(path, "a file of torch.save") as file:
        members = file.infolist()
        for member in members:
            if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
                raise FormatError(f"{path}, member {shown(member.filename)}: compressed; torch.save compresses nothing")
        pickles = [member for member in members if member.filename.endswith(".pkl")]
        if len(pickles) != 1 or not pickles[0].filename.endswith("/data.pkl"):
            raise FormatError(f"{path}: {len(pickles)} pickles; a file of torch.save has one, data.pkl")
        if pickles[0].file_size > PICKLE:
            raise FormatError(f"{path}, data.pkl: {pickles[0].file_size:,} bytes; at most {PICKLE:,} are allowed")
        for code, value, _ in pickletools.genops(file.read(pickles[0])):
            if code.name in NEW_NAMES:
                raise FormatError(f"{path}, data.pkl: opcode {code.name}; torch.save does not write it")
            if code.name == "GLOBAL" and value not in NAMES and not STORAGE.fullmatch(str(value)):
                raise FormatError(
                    f"{path}, data.pkl: names {shown(str(value).replace(' ', '.'))}; only tensors, dicts of them and "
                    "PyG's Data are read, and no other object is ever built"
                )


def _load(path: Path) -> dict[str, Any]:
    from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    # leaving the block takes back all that it was given, also what PyG itself had allowed before
    with LOCK, foreign(path, "a PyG Data file"):
        known = torch.serialization.get_safe_globals()
        needed = [kind for kind in (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage) if kind not in known]
        with torch.serialization.safe_globals(needed):
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(loaded, tuple) and loaded:
        loaded = loaded[0]  # PyG's processed files: (data, slices, …)
    if isinstance(loaded, Data):
        loaded = vars(vars(loaded).get("_store")).get("_mapping") if hasattr(loaded, "_store") else None
    if not isinstance(loaded, dict):
        raise FormatError(f"{path}: holds a {type(loaded).__name__}; a PyG Data or a dict of tensors is needed")
    return loaded


def _check_tensor(key: str, value: object, size: int, path: Path) -> None:
    """No tensor may be larger than the bytes that it came from (as an expanded one is)."""
    if not isinstance(value, Tensor):
        raise FormatError(f"{path}, {key!r}: a {type(value).__name__}; a tensor is needed")
    if value.layout not in (torch.strided, torch.sparse_coo, torch.sparse_csr) or value.device.type != "cpu":
        raise FormatError(f"{path}, {key!r}: layout {value.layout} on {value.device}; dense, COO or CSR is needed")
    if value.layout == torch.strided and value.numel() * value.element_size() > size:
        raise FormatError(f"{path}, {key!r}: shape {list(value.shape)} takes more bytes than the file has")


def _num_nodes(tensors: dict[str, Tensor], path: Path) -> int:
    for needed in ("x", "edge_index"):
        if needed not in tensors:
            raise FormatError(f"{path}: no {needed!r}; x and edge_index are needed, y is read where there is one")
    x = tensors["x"]
    if x.dim() != 2 or not x.size(0):
        raise FormatError(f"{path}, 'x': shape {list(x.shape)}; [nodes, features] is needed")
    return int(x.size(0))


def _shaped(
    tensors: dict[str, Tensor], key: str, shape: tuple[int | None, ...], kinds: str, path: Path
) -> np.ndarray | None:
    if key not in tensors:
        return None
    tensor = tensors[key].detach()
    if key == "y" and tensor.dim() == 2 and tensor.size(1) == 1:
        tensor = tensor[:, 0]
    fits = tensor.dim() == len(shape) and all(b in (a, None) for a, b in zip(tensor.shape, shape, strict=True))
    if not fits or tensor.layout != torch.strided:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise FormatError(f"{path}, {key!r}: shape {list(tensor.shape)}, {tensor.layout}; [{wanted}] is needed")
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.float()
    array = tensor.numpy()
    if array.dtype.kind not in kinds:
        raise FormatError(f"{path}, {key!r}: holds {tensor.dtype}, which cannot be used there")
    return array


def _labels(y: np.ndarray | None) -> list[str | None] | None:
    return None if y is None else [str(int(label)) if label >= 0 else None for label in y.tolist()]


def _split(tensors: dict[str, Tensor], n: int, path: Path) -> np.ndarray | None:
    masks = {part: _shaped(tensors, f"{part}_mask", (n,), "b", path) for part in SPLITS}
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


def _features(tensors: dict[str, Tensor], size: int, limits: Limits, path: Path) -> Any:
    x = tensors["x"].detach()
    limits.check("features", x.size(1), path)
    if x.is_complex() or x.is_quantized:
        raise FormatError(f"{path}, 'x': holds {x.dtype}; numbers are needed")
    if x.layout == torch.strided:
        limits.check_bytes(4 * x.numel(), path, "features take")
        return x.float().numpy()
    with foreign(f"{path}, 'x'", "a sparse matrix"):
        return _sparse(x, size)


def _sparse(x: Tensor, size: int) -> scipy.sparse.csr_matrix:
    """A sparse tensor whose indices nobody has checked, so that nothing but its parts is used."""
    coo = x.layout == torch.sparse_coo
    parts = (x._indices(), x._values()) if coo else (x.crow_indices(), x.col_indices(), x.values())
    if any(part.layout != torch.strided or part.numel() * part.element_size() > size for part in parts):
        raise ValueError("its parts take more bytes than the file has")
    *index, values = (part.numpy() for part in (*parts[:-1], parts[-1].float()))
    if values.ndim != 1 or any(part.dtype.kind not in "iu" for part in index):
        raise ValueError("rows and columns are needed, numbered by whole numbers")
    if coo:
        rows, columns = index[0]
        return scipy.sparse.csr_matrix((values, (rows, columns)), shape=tuple(x.shape))
    matrix = scipy.sparse.csr_matrix((values, index[1], index[0]), shape=tuple(x.shape))
    matrix.check_format(full_check=True)
    return matrix
