"""Write tables to files that :mod:`ergnn.data.tables.read` reads."""

from __future__ import annotations

from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import scipy.sparse

from ergnn.config.errors import InputError, UnknownNameError
from ergnn.config.files import replacing
from ergnn.data.tables.columns import PREFIX, TEXTS, Columns, find_node_columns
from ergnn.data.tables.limits import Limits
from ergnn.data.tables.node_tables import EdgeTable, NodeTable
from ergnn.data.tables.read import PARQUET, delimiter_of, suffix
from ergnn.data.tables.sources import GZ

LAYOUTS = ("columns", "sparse")


def write_nodes(nodes: NodeTable, path: str | PathLike[str], *, features: str | None = None) -> None:
    """Write nodes to a ``.csv``, ``.tsv`` (each also ``.gz``) or ``.parquet`` file.

    Args:
        nodes: the nodes.
        path: the file; an existing file is replaced.
        features: ``columns`` or ``sparse`` text (without zeros); default: as the features are in memory.
    """
    layout = features or ("sparse" if nodes.is_sparse else "columns")
    if layout not in LAYOUTS:
        raise UnknownNameError("layout of features", layout, LAYOUTS)
    columns: dict[str, Any] = {"id": nodes.ids}
    if any(label is not None for label in nodes.labels):
        columns["label"] = nodes.labels
    columns |= {name: getattr(nodes, name) for name in ("time", "split", "domain") if getattr(nodes, name) is not None}
    if nodes.num_features:
        columns |= _features(nodes, layout)
    _write(columns, Path(path))


def write_edges(edges: EdgeTable, path: str | PathLike[str]) -> None:
    """Write edges to a ``.csv``, ``.tsv`` (each also ``.gz``) or ``.parquet`` file."""
    weight = {} if edges.weight is None else {"weight": edges.weight}
    _write({"source": edges.source, "target": edges.target, **weight}, Path(path))


def _features(nodes: NodeTable, layout: str) -> dict[str, Any]:
    if layout == "sparse":
        matrix = nodes.features if nodes.is_sparse else scipy.sparse.csr_matrix(nodes.features)
        pairs = [f"{i}:{v}" for i, v in zip(matrix.indices.tolist(), matrix.data, strict=True)]
        return {"features": [" ".join(pairs[a:b]) for a, b in pairwise(matrix.indptr.tolist())]}
    dense = nodes.features.toarray() if nodes.is_sparse else nodes.features
    names = nodes.feature_names or tuple(f"{PREFIX}{i}" for i in range(nodes.num_features))
    if find_node_columns(["id", *names], (), Columns(), Limits(), "feature_names").features != names:
        raise InputError(
            f"feature names that begin with {PREFIX!r} among others would be read as the only ones; rename some"
        )
    return {name: dense[:, i] for i, name in enumerate(names)}


def _write(columns: dict[str, Any], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.csv as csv
    import pyarrow.parquet as parquet

    delimiter = None if suffix(path) in PARQUET else delimiter_of(path)
    kinds = {name: pa.string() if name in TEXTS else None for name in columns}
    table = pa.table({name: pa.array(columns[name], kind, from_pandas=True) for name, kind in kinds.items()})
    packed = "gzip" if path.name.lower().endswith(GZ) else None
    with replacing(path) as new, pa.output_stream(new, compression=packed) as file:
        if delimiter is None:
            parquet.write_table(table, file)
        else:
            csv.write_csv(table, file, csv.WriteOptions(delimiter=delimiter))
