"""Graphs of NetworkX, in memory and in the files that it reads."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ergnn.data.formats.boundary import extra, wrap_errors
from ergnn.data.formats.columns import Columns
from ergnn.data.formats.convert import Source, column_of, frame_source
from ergnn.data.formats.limits import Limits
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.data.formats.text import BOM, read_bytes
from ergnn.errors import FormatError, InputError

if TYPE_CHECKING:
    import networkx

OBJECT_RATIO = 16
"""JSON and XML take about 16 times their size in memory once they are objects."""


def from_networkx(
    graph: networkx.Graph, *, columns: Columns | None = None, limits: Limits | None = None, source: str = "graph"
) -> tuple[NodeTable, EdgeTable]:
    """Tables of a NetworkX graph (directed or not, also a multigraph).

    Node and edge attributes are read as the columns of a table are. Ids become text, so that no two nodes may read the
    same. An edge without a weight, where others have one, has weight 1.
    """
    if not (hasattr(graph, "nodes") and hasattr(graph, "edges")):
        raise InputError(f"{source}: a {type(graph).__name__} is not a NetworkX graph")
    limits, columns = limits or Limits(), columns or Columns()
    limits.check("nodes", graph.number_of_nodes(), source)
    limits.check("edges", graph.number_of_edges(), source)
    if not graph.number_of_nodes():
        raise FormatError(f"{source}: no nodes")
    ends, weight = (columns.source or "source", columns.target or "target"), columns.weight or "weight"
    missing = dict(graph.graph.get("edge_default", {}))  # where networkx keeps the defaults of GraphML
    if any(weight in data for *_, data in graph.edges(data=True)):
        missing = {weight: 1.0, **missing}
    edges = [{**missing, **data, ends[0]: a, ends[1]: b} for a, b, data in graph.edges(data=True)]
    missing = graph.graph.get("node_default", {})
    nodes = [{**missing, **data, columns.id or "id": node} for node, data in graph.nodes(data=True)]
    return (
        _table(nodes, (), source).nodes(columns, limits),
        _table(edges, ends, source).edges(columns, limits),
    )


def _table(rows: list[dict[str, Any]], names: tuple[str, ...], source: str) -> Source:
    import pyarrow as pa

    with wrap_errors(source, "a graph with attributes"):
        names = tuple(dict.fromkeys([*names, *(str(name) for row in rows for name in row)]))
        return frame_source(pa.table({name: column_of([row.get(name) for row in rows]) for name in names}), source)


def read_graphml(path: Path, limits: Limits, columns: Columns | None = None) -> tuple[NodeTable, EdgeTable]:
    """The graph of a GraphML file."""
    networkx, raw = extra("networkx", "networkx", "reading GraphML files"), _bounded(path, limits)
    if b"<!DOCTYPE" in raw:
        raise FormatError(f"{path}: a document type, which could define entities that expand without end; remove it")
    with wrap_errors(path, "GraphML"):
        graph = networkx.read_graphml(io.BytesIO(raw))
    return from_networkx(graph, columns=columns, limits=limits, source=str(path))


def read_node_link(path: Path, limits: Limits, columns: Columns | None = None) -> tuple[NodeTable, EdgeTable]:
    """A graph as ``networkx.node_link_data`` gives it: ``{"nodes": [{"id": …}], "edges": [{"source": …, …}]}``."""
    networkx = extra("networkx", "networkx", "reading node-link JSON files")
    with wrap_errors(path, "node-link JSON of NetworkX"):
        content: Any = json.loads(_bounded(path, limits).removeprefix(BOM))
        graph = networkx.node_link_graph(content, edges="edges" if "edges" in content else "links")
    return from_networkx(graph, columns=columns, limits=limits, source=str(path))


def _bounded(path: Path, limits: Limits) -> bytes:
    raw = read_bytes(path, limits)
    limits.check_bytes(OBJECT_RATIO * len(raw), path, "its objects take")
    return raw
