"""Read nodes, edges and graphs from files, data frames and Arrow tables."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from ergnn.config.errors import FormatError
from ergnn.data.tables.columns import Columns
from ergnn.data.tables.convert import Source, frame_source
from ergnn.data.tables.limits import Limits
from ergnn.data.tables.node_tables import EdgeTable, NodeTable
from ergnn.data.tables.npz import read_npz
from ergnn.data.tables.parquet import parquet_source
from ergnn.data.tables.text import GZ, csv_source

DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")
TABLES = (*DELIMITERS, *(f"{kind}{GZ}" for kind in DELIMITERS), *PARQUET)
NPZ = ".npz"


def read_nodes(
    nodes: Any, *, columns: Columns | None = None, limits: Limits | None = None, num_features: int | None = None
) -> NodeTable:
    """Read nodes from a file, a data frame or an Arrow table.

    Args:
        nodes: the path of a ``.csv``, ``.tsv`` (each also ``.gz``) or ``.parquet`` file; a pandas or polars DataFrame;
            an Arrow table; or a :class:`NodeTable`, which is returned as it is.
        columns: column names, where they differ from the defaults.
        limits: maximum sizes; default: :class:`Limits`.
        num_features: required number of features; also the width of sparse text.
    """
    if isinstance(nodes, NodeTable):
        return nodes
    limits = limits or Limits()
    limits.check("features", num_features or 0, "num_features")
    return _open(nodes, "nodes", limits).nodes(columns or Columns(), limits, num_features)


def read_edges(edges: Any, *, columns: Columns | None = None, limits: Limits | None = None) -> EdgeTable:
    """Read edges from a file, a data frame or an Arrow table; arguments as for :func:`read_nodes`."""
    if isinstance(edges, EdgeTable):
        return edges
    limits = limits or Limits()
    return _open(edges, "edges", limits).edges(columns or Columns(), limits)


def read_graph(
    path: str | PathLike[str], *, columns: Columns | None = None, limits: Limits | None = None
) -> tuple[NodeTable, EdgeTable]:
    """Read nodes and edges from one ``.npz`` file in the layout of gnn-benchmark.

    Args:
        path: the file.
        columns: ``ignore=["weight"]`` drops edge weights.
        limits: maximum sizes; default: :class:`Limits`.
    """
    file = Path(path)
    if file.suffix.lower() != NPZ:
        raise FormatError(f"{file}: not a known graph file; names end in {NPZ} (for others, see docs/formats.md)")
    nodes, edges = read_npz(file, limits or Limits())
    ignored = columns is not None and "weight" in columns.ignore
    return nodes, EdgeTable(edges.ends[0], edges.ends[1]) if ignored else edges


def _open(table: Any, what: str, limits: Limits) -> Source:
    if not isinstance(table, (str, PathLike)):
        return frame_source(table, what)
    path = Path(table)
    return parquet_source(path, limits) if suffix(path) in PARQUET else csv_source(path, delimiter_of(path), limits)


def suffix(path: Path) -> str:
    """Return the suffix that names the format of a file, without ``.gz``."""
    return Path(path.name.lower().removesuffix(GZ)).suffix


def delimiter_of(path: Path) -> str:
    """Return the character that separates the fields of a text table."""
    kind = suffix(path)
    if kind not in DELIMITERS:
        raise FormatError(f"{path}: not a known table of nodes or edges; names end in {', '.join(TABLES)}")
    return DELIMITERS[kind]
