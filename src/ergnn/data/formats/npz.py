"""Graphs in ``.npz`` files, laid out as in gnn-benchmark (Shchur et al., 2018).

``adj_data, adj_indices, adj_indptr, adj_shape``: the adjacency matrix in CSR form; ``attr_*``: the features likewise,
or one dense ``attr_matrix``; ``labels``: a class a node. Nodes are numbered from 0, and a negative label is none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ergnn.data.formats.limits import Limits
from ergnn.data.formats.npy import Arrays
from ergnn.data.formats.tables import EdgeTable, NodeTable, numbered
from ergnn.errors import FormatError

NAMES = (
    *(f"{matrix}_{part}" for matrix in ("adj", "attr") for part in ("data", "indices", "indptr", "shape")),
    "attr_matrix",
    "labels",
)


def read_npz(path: Path, limits: Limits) -> tuple[NodeTable, EdgeTable]:
    """The nodes, numbered from 0, and the edges as they stand in the file: those of row u go from u."""
    arrays = Arrays(path, NAMES, limits)
    n, columns = _shape(arrays, "adj")
    if n != columns:
        raise FormatError(f"{path}, array 'adj_shape': [{n}, {columns}]; an adjacency matrix is square")
    limits.check("nodes", n, path)
    limits.check("edges", arrays.shape("adj_indices", 1)[0], path)
    weight, target, ends = _csr(arrays, "adj", n, n)
    ids = numbered(n)
    source = np.repeat(np.arange(n, dtype=target.dtype), np.diff(ends))
    if (weight == 1).all():
        weight = None
    nodes = NodeTable(ids=ids, labels=_labels(arrays, n), features=_attributes(arrays, n, limits), place=_at(path))
    return nodes, EdgeTable(source=ids[source], target=ids[target], weight=weight, place=lambda i: f"{path}, edge {i}")


def _at(path: Path) -> Any:
    return lambda row: f"{path}, node {row}"


def _shape(arrays: Arrays, matrix: str) -> tuple[int, int]:
    name = f"{matrix}_shape"
    if arrays.shape(name, 1) != (2,):
        raise FormatError(f"{arrays.path}, array {name!r}: {arrays.shape(name, 1)[0]} numbers; 2 are needed")
    rows, columns = (int(size) for size in arrays.read(name, "iu"))
    if rows < 1 or columns < 0:
        raise FormatError(f"{arrays.path}, array {name!r}: [{rows}, {columns}] is not the shape of a matrix")
    return rows, columns


def _csr(arrays: Arrays, matrix: str, rows: int, columns: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Entries, columns and ends of rows of a matrix; whether they fit each other is checked by their headers first."""
    path = arrays.path
    indices, indptr, data = (f"{matrix}_{part}" for part in ("indices", "indptr", "data"))
    entries = arrays.shape(indices, 1)[0]
    for name, needed in ((indptr, rows + 1), (data, entries)):
        if arrays.shape(name, 1)[0] != needed:
            raise FormatError(f"{path}, array {name!r}: {arrays.shape(name, 1)[0]:,} values; {needed:,} are needed")
    ends, place = arrays.read(indptr, "iu").astype(np.int64), arrays.read(indices, "iu")
    if ends[0] != 0 or ends[-1] != entries or (np.diff(ends) < 0).any():
        raise FormatError(f"{path}, array {indptr!r}: must rise from 0 to {entries:,}, the number of entries")
    bad = np.flatnonzero((place < 0) | (place >= columns))
    if bad.size:
        row = int(np.searchsorted(ends, bad[0], side="right")) - 1
        raise FormatError(f"{path}, array {indices!r}: row {row} names {place[bad[0]]}; 0 to {columns - 1} are allowed")
    return arrays.read(data), place, ends


def _attributes(arrays: Arrays, n: int, limits: Limits) -> Any:
    if "attr_matrix" in arrays:
        rows, columns = arrays.shape("attr_matrix", 2)
    elif "attr_shape" in arrays:
        rows, columns = _shape(arrays, "attr")
    else:
        return None
    limits.check("features", columns, arrays.path)
    if rows != n:
        raise FormatError(f"{arrays.path}: attributes of {rows:,} nodes; the graph has {n:,}")
    if "attr_matrix" in arrays:
        limits.check_bytes(4 * n * columns, arrays.path, "features take")
        return arrays.read("attr_matrix")
    data, place, ends = _csr(arrays, "attr", n, columns)
    return scipy.sparse.csr_matrix((data.astype(np.float32), place, ends), shape=(n, columns))


def _labels(arrays: Arrays, n: int) -> Any:
    if "labels" not in arrays:
        return None
    if arrays.shape("labels", 1) != (n,):
        raise FormatError(f"{arrays.path}, array 'labels': {arrays.shape('labels', 1)[0]:,} values for {n:,} nodes")
    labels = arrays.read("labels", "biuU")
    if labels.dtype.kind == "U":
        return [label or None for label in labels.tolist()]
    return [str(int(label)) if label >= 0 else None for label in labels.tolist()]
