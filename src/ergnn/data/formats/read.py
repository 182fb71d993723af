"""Which reader a file's name asks for."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path

from ergnn.data.formats.delimited import read_edge_rows, read_node_rows
from ergnn.data.formats.edgelist import read_edge_list
from ergnn.data.formats.graphml import read_graphml
from ergnn.data.formats.limits import Limits
from ergnn.data.formats.networkx import read_node_link
from ergnn.data.formats.npz import read_npz
from ergnn.data.formats.parquet import read_edge_parquet, read_node_parquet
from ergnn.data.formats.pt import read_pt
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.data.formats.text import GZ
from ergnn.errors import FormatError

DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")
GRAPHS: dict[str, Callable[[Path, Limits], tuple[NodeTable, EdgeTable]]] = {
    ".npz": read_npz,
    ".pt": read_pt,
    ".graphml": read_graphml,
    ".json": read_node_link,
    ".edges": read_edge_list,
    ".edgelist": read_edge_list,
    ".txt": read_edge_list,
}
BINARY = (".npz", ".pt")
TABLES = (*DELIMITERS, *(f"{kind}{GZ}" for kind in DELIMITERS), *PARQUET)


def read_nodes(
    path: str | PathLike[str], *, limits: Limits | None = None, num_features: int | None = None
) -> NodeTable:
    """Nodes of a CSV, TSV or Parquet file.

    Columns: ``id``, and where there are any ``label``, ``time``, ``split`` and ``domain``; features as in
    :func:`~ergnn.data.formats.columns.node_columns`. Nothing in a cell is a missing label, time, split or domain.

    Args:
        path: ``.csv``, ``.tsv`` (each also ``.gz``) or ``.parquet``.
        limits: what the file may hold; by default :class:`Limits`.
        num_features: refuse another number of features; sparse text then has so many, whatever its largest index is.
    """
    file, limits = Path(path), limits or Limits()
    if num_features is not None:
        limits.check("features", num_features, file)
    if suffix(file) in PARQUET:
        return read_node_parquet(file, limits, num_features)
    return read_node_rows(file, delimiter_of(file), limits, num_features)


def read_edges(path: str | PathLike[str], *, limits: Limits | None = None) -> EdgeTable:
    """Edges of a CSV, TSV or Parquet file.

    Columns: ``source`` and ``target``, ids of nodes, and where there are any ``weight`` and ``time``.

    Args:
        path: ``.csv``, ``.tsv`` (each also ``.gz``) or ``.parquet``.
        limits: what the file may hold; by default :class:`Limits`.
    """
    file, limits = Path(path), limits or Limits()
    if suffix(file) in PARQUET:
        return read_edge_parquet(file, limits)
    return read_edge_rows(file, delimiter_of(file), limits)


def read_graph(path: str | PathLike[str], *, limits: Limits | None = None) -> tuple[NodeTable, EdgeTable]:
    """Nodes and edges of a file that holds both.

    Args:
        path: ``.npz`` in the layout of gnn-benchmark; ``.pt``, a PyG ``Data`` or a dict of tensors; ``.graphml``;
            ``.json``, node-link data of NetworkX; ``.edges``, ``.edgelist`` or ``.txt``, an edge list. The text files
            also as ``.gz``.
        limits: what the file may hold; by default :class:`Limits`.
    """
    file, limits = Path(path), limits or Limits()
    kind = suffix(file)
    if kind not in GRAPHS or (file.name.lower().endswith(GZ) and kind in BINARY):
        raise FormatError(f"{file}: not a known graph file; names end in {', '.join(GRAPHS)}")
    return GRAPHS[kind](file, limits)


def suffix(path: Path) -> str:
    """The ending that says what a file is, without ``.gz``."""
    name = path.name.lower()
    return Path(name.removesuffix(GZ)).suffix


def delimiter_of(path: Path) -> str:
    """What stands between the fields of a text table."""
    kind = suffix(path)
    if kind not in DELIMITERS:
        raise FormatError(f"{path}: not a known table of nodes or edges; names end in {', '.join(TABLES)}")
    return DELIMITERS[kind]
