"""Read nodes, edges and graphs from files, frames and Arrow tables."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from pathlib import Path
from typing import Any

from ergnn.data.formats.arrays import read_npz, read_pt, read_safetensors
from ergnn.data.formats.columns import Columns
from ergnn.data.formats.convert import Source, frame_source, read_edge_source, read_node_source
from ergnn.data.formats.limits import Limits
from ergnn.data.formats.networkx import read_graphml, read_node_link
from ergnn.data.formats.parquet import ParquetFile
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.data.formats.text import GZ, csv_source, read_edge_list
from ergnn.errors import FormatError

PathName = str | PathLike[str]
DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")
TABLES = (*DELIMITERS, *(f"{kind}{GZ}" for kind in DELIMITERS), *PARQUET)
NAMED: dict[str, Callable[..., tuple[NodeTable, EdgeTable]]] = {".graphml": read_graphml, ".json": read_node_link}
BINARY = {".npz": read_npz, ".safetensors": read_safetensors, ".pt": read_pt}
GRAPHS: dict[str, Callable[..., tuple[NodeTable, EdgeTable]]] = {
    **BINARY,
    **NAMED,
    ".edges": read_edge_list,
    ".edgelist": read_edge_list,
    ".txt": read_edge_list,
}


def read_nodes(
    path: PathName,
    *,
    columns: Columns | None = None,
    limits: Limits | None = None,
    num_features: int | None = None,
) -> NodeTable:
    """Nodes of a file.

    Args:
        path: ``.csv``, ``.tsv`` (each also ``.gz``) or ``.parquet``.
        columns: names of columns that differ from the default ones.
        limits: what the file may hold; by default :class:`Limits`.
        num_features: the number of features that is required; sparse text then has so many, whatever its largest index.
    """
    file, limits = Path(path), limits or Limits()
    limits.check("features", num_features or 0, file)
    with _opened(file, limits) as source:
        return read_node_source(source, columns or Columns(), limits, num_features)


def read_edges(path: PathName, *, columns: Columns | None = None, limits: Limits | None = None) -> EdgeTable:
    """Edges of a file, likewise."""
    limits = limits or Limits()
    with _opened(Path(path), limits) as source:
        return read_edge_source(source, columns or Columns(), limits)


def as_node_table(
    nodes: Any,
    *,
    columns: Columns | None = None,
    limits: Limits | None = None,
    num_features: int | None = None,
    source: str = "nodes",
) -> NodeTable:
    """Nodes of a :class:`NodeTable`, a pandas or polars frame, an Arrow table, or a path for :func:`read_nodes`.

    Args:
        nodes: the nodes.
        columns, limits, num_features: as in :func:`read_nodes`.
        source: what a frame is called in messages.
    """
    if isinstance(nodes, NodeTable):
        return nodes
    if isinstance(nodes, (str, PathLike)):
        return read_nodes(nodes, columns=columns, limits=limits, num_features=num_features)
    return read_node_source(frame_source(nodes, source), columns or Columns(), limits or Limits(), num_features)


def as_edge_table(
    edges: Any, *, columns: Columns | None = None, limits: Limits | None = None, source: str = "edges"
) -> EdgeTable:
    """Edges, likewise."""
    if isinstance(edges, EdgeTable):
        return edges
    if isinstance(edges, (str, PathLike)):
        return read_edges(edges, columns=columns, limits=limits)
    return read_edge_source(frame_source(edges, source), columns or Columns(), limits or Limits())


def read_graph(
    path: PathName, *, columns: Columns | None = None, limits: Limits | None = None
) -> tuple[NodeTable, EdgeTable]:
    """Nodes and edges of a file that holds both.

    Args:
        path: ``.npz`` in the layout of gnn-benchmark; ``.safetensors`` or ``.pt`` with tensors named as in PyG;
            ``.graphml``; ``.json``, node-link data of NetworkX; ``.edges``, ``.edgelist`` or ``.txt``, an edge list.
            The text files also as ``.gz``.
        columns: names of attributes that differ from the default ones, in GraphML and JSON.
        limits: what the file may hold; by default :class:`Limits`.
    """
    file, limits = Path(path), limits or Limits()
    kind = suffix(file)
    if kind not in GRAPHS or (file.name.lower().endswith(GZ) and kind in BINARY):
        raise FormatError(f"{file}: not a known graph file; names end in {', '.join(GRAPHS)}")
    return GRAPHS[kind](file, limits, columns) if kind in NAMED else GRAPHS[kind](file, limits)


def _opened(path: Path, limits: Limits) -> AbstractContextManager[Source]:
    if suffix(path) in PARQUET:
        return ParquetFile(path, limits)
    return nullcontext(csv_source(path, delimiter_of(path), limits))


def suffix(path: Path) -> str:
    """The ending that says what a file is, without ``.gz``."""
    return Path(path.name.lower().removesuffix(GZ)).suffix


def delimiter_of(path: Path) -> str:
    """What separates the fields of a text table."""
    kind = suffix(path)
    if kind not in DELIMITERS:
        raise FormatError(f"{path}: not a known table of nodes or edges; names end in {', '.join(TABLES)}")
    return DELIMITERS[kind]
