"""Tables to files, in the form in which they are read."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import scipy.sparse

from ergnn.data.formats.boundary import extra
from ergnn.data.formats.columns import PREFIX, node_columns
from ergnn.data.formats.limits import Limits
from ergnn.data.formats.read import PARQUET, delimiter_of, suffix
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.data.formats.text import GZ
from ergnn.errors import InputError, UnknownNameError

LAYOUTS = ("columns", "list", "sparse")


def write_nodes(nodes: NodeTable, path: str | PathLike[str], *, features: str | None = None) -> None:
    """Write nodes to a ``.csv``, ``.tsv`` (each also ``.gz``) or ``.parquet`` file.

    Args:
        nodes: the nodes.
        path: the file; one that is there is replaced.
        features: as ``columns``, as a ``list`` or as ``sparse`` text (whose zeros are not written); by default sparse
            features as sparse text and dense ones as columns.
    """
    layout = features or ("sparse" if nodes.is_sparse else "columns")
    if layout not in LAYOUTS:
        raise UnknownNameError("layout of features", layout, LAYOUTS)
    columns: dict[str, Sequence[Any]] = {"id": nodes.ids.tolist()}
    if any(label is not None for label in nodes.labels):
        columns["label"] = nodes.labels.tolist()
    for name in ("time", "split", "domain"):
        if getattr(nodes, name) is not None:
            columns[name] = _values(getattr(nodes, name))
    if nodes.num_features:
        columns |= _features(nodes, layout)
    _write(columns, Path(path))


def write_edges(edges: EdgeTable, path: str | PathLike[str]) -> None:
    """Write edges to a ``.csv``, ``.tsv`` (each also ``.gz``) or ``.parquet`` file."""
    columns: dict[str, Sequence[Any]] = {"source": edges.source.tolist(), "target": edges.target.tolist()}
    for name in ("weight", "time"):
        if getattr(edges, name) is not None:
            columns[name] = _values(getattr(edges, name))
    _write(columns, Path(path))


def _values(column: np.ndarray) -> list[Any]:
    """Python values, ``None`` for NaN."""
    return [None if value != value else value for value in column.tolist()]


def _features(nodes: NodeTable, layout: str) -> dict[str, Sequence[Any]]:
    if layout == "sparse":
        matrix = nodes.features if nodes.is_sparse else scipy.sparse.csr_matrix(nodes.features)
        ends = matrix.indptr.tolist()
        pairs = [f"{i}:{v}" for i, v in zip(matrix.indices.tolist(), matrix.data, strict=True)]
        return {"features": [" ".join(pairs[a:b]) for a, b in pairwise(ends)]}
    dense = nodes.features.toarray() if nodes.is_sparse else nodes.features
    if layout == "list":
        return {"features": list(dense)}
    names = nodes.feature_names or tuple(f"{PREFIX}{i}" for i in range(nodes.num_features))
    if node_columns(["id", *names], "feature_names", Limits()).names != names:
        raise InputError(
            f"feature names that begin with {PREFIX!r} among others would be read as the only ones; rename some, "
            "or write the features as a list"
        )
    return {name: dense[:, i] for i, name in enumerate(names)}


def _write(columns: dict[str, Sequence[Any]], path: Path) -> None:
    if suffix(path) in PARQUET:
        extra("pyarrow.parquet", "parquet", "writing Parquet files").write_table(_arrow(columns), path)
        return
    delimiter = delimiter_of(path)
    packed = path.name.lower().endswith(GZ)
    with cast(IO[bytes], gzip.GzipFile(path, "wb", mtime=0) if packed else open(path, "wb")) as file:
        buffer = io.BufferedWriter(cast(Any, file), 1 << 20) if packed else file
        for row in _rows(columns):
            buffer.write((delimiter.join(_quoted(cell, delimiter) for cell in row) + "\n").encode())
        buffer.flush()


def _arrow(columns: dict[str, Sequence[Any]]) -> Any:
    import pyarrow

    return pyarrow.table({name: pyarrow.array(values, from_pandas=False) for name, values in columns.items()})


def _rows(columns: dict[str, Sequence[Any]]) -> Iterator[Iterable[str]]:
    yield columns
    for row in zip(*columns.values(), strict=True):
        yield map(_cell, row)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, np.ndarray):
        return f"[{', '.join(map(str, value))}]"
    return str(value)


def _quoted(cell: str, delimiter: str) -> str:
    if not any(mark in cell for mark in (delimiter, '"', "\n", "\r")):
        return cell
    return '"' + cell.replace('"', '""') + '"'
