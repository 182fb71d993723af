"""Read nodes, edges and graphs from files, frames and Arrow tables."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from pathlib import Path
from typing import Any

from ergnn.data.formats.arrays import read_npz, read_pt, read_safetensors
from ergnn.data.formats.columns import Columns
from ergnn.data.formats.convert import Source, frame_source
from ergnn.data.formats.limits import Limits
from ergnn.data.formats.networkx import read_graphml, read_node_link
from ergnn.data.formats.parquet import ParquetFile
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.data.formats.text import GZ, csv_source, read_edge_list
from ergnn.errors import FormatError

DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")
TABLES = (*DELIMITERS, *(f"{kind}{GZ}" for kind in DELIMITERS), *PARQUET)
Reader = Callable[..., tuple[NodeTable, EdgeTable]]
BINARY: dict[str, Reader] = {".npz": read_npz, ".safetensors": read_safetensors, ".pt": read_pt}
NAMED: dict[str, Reader] = {".graphml": read_graphml, ".json": read_node_link}
GRAPHS: dict[str, Reader] = {**BINARY, **NAMED, **dict.fromkeys((".edges", ".edgelist", ".txt"), read_edge_list)}


def read_nodes(
    nodes: Any, *, columns: Columns | None = None, limits: Limits | None = None, num_features: int | None = None
) -> NodeTable:
    """Nodes of a file, a frame or an Arrow table.

    Args:
        nodes: the path of a ``.csv``, ``.tsv`` (each also ``.gz``) or ``.parquet`` file; a pandas or polars DataFrame;
            an Arrow table; or a :class:`NodeTable`, which is returned as it is.
        columns: names of columns that differ from the default ones.
        limits: what the file may hold; by default :class:`Limits`.
        num_features: the number of features that is required; sparse text then has so many, whatever its largest index.
    """
    if isinstance(nodes, NodeTable):
        return nodes
    limits = limits or Limits()
    limits.check("features", num_features or 0, "num_features")
    with _opened(nodes, "nodes", limits) as source:
        return source.nodes(columns or Columns(), limits, num_features)


def read_edges(edges: Any, *, columns: Columns | None = None, limits: Limits | None = None) -> EdgeTable:
    """Edges of a file, a frame or an Arrow table; arguments as in :func:`read_nodes`."""
    if isinstance(edges, EdgeTable):
        return edges
    limits = limits or Limits()
    with _opened(edges, "edges", limits) as source:
        return source.edges(columns or Columns(), limits)


as_node_table, as_edge_table = read_nodes, read_edges
"""The same functions, by names that fit frames."""


def read_graph(
    path: str | PathLike[str], *, columns: Columns | None = None, limits: Limits | None = None
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


def _opened(table: Any, what: str, limits: Limits) -> AbstractContextManager[Source]:
    if not isinstance(table, (str, PathLike)):
        return nullcontext(frame_source(table, what))
    path = Path(table)
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
