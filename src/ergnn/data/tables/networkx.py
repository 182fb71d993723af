"""NetworkX graphs, in memory and from GraphML and JSON files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ergnn.config.errors import FormatError, InputError
from ergnn.config.files import wrap_errors
from ergnn.config.lazy import extra
from ergnn.data.tables.columns import EDGE_ROLES, Columns
from ergnn.data.tables.convert import Source, column_of, frame_source
from ergnn.data.tables.limits import Limits
from ergnn.data.tables.node_tables import EdgeTable, NodeTable
from ergnn.data.tables.text import read_bytes

if TYPE_CHECKING:
    import networkx

OBJECT_RATIO = 16
"""Memory of the objects of a JSON or XML file, as a multiple of the file size."""


def from_networkx(
    graph: networkx.Graph, *, columns: Columns | None = None, limits: Limits | None = None, source: str = "graph"
) -> tuple[NodeTable, EdgeTable]:
    """Convert a NetworkX graph (directed or undirected, also a multigraph) to tables.

    Node attributes are the columns of the node table, and the edge attribute ``weight`` that of the edge table (by
    default 1). Ids become text, which must be unique.
    """
    if not (hasattr(graph, "nodes") and hasattr(graph, "edges")):
        raise InputError(f"{source}: a {type(graph).__name__} is not a NetworkX graph")
    limits, columns = limits or Limits(), columns or Columns()
    missing = graph.graph.get("node_default", {})  # defaults of GraphML attributes
    key = columns.id or "id"
    rows = [{**missing, **data, key: node} for node, data in graph.nodes(data=True)]
    names = dict.fromkeys([key, *(name for row in rows for name in row)])
    nodes = _source({str(name): [row.get(name) for row in rows] for name in names}, source)
    roles = [role for role in EDGE_ROLES if role != "weight" or role not in columns.ignore]
    found = list(graph.edges(data=columns.weight or "weight", default=1))
    edges = _source({role: [edge[i] for edge in found] for i, role in enumerate(roles)}, source)
    return nodes.nodes(columns, limits), edges.edges(Columns(), limits)


def _source(columns: dict[str, list[Any]], where: str) -> Source:
    import pyarrow as pa

    with wrap_errors(where, "a graph with attributes"):
        return frame_source(pa.table({name: column_of(values) for name, values in columns.items()}), where)


def read_graphml(path: Path, limits: Limits, columns: Columns | None = None) -> tuple[NodeTable, EdgeTable]:
    """Read a GraphML file."""
    networkx, raw = extra("networkx", "networkx", "reading GraphML files"), _read(path, limits)
    if b"<!DOCTYPE" in raw:
        raise FormatError(f"{path}: a document type, which could define entities that expand without end; remove it")
    with wrap_errors(path, "GraphML"):
        graph = networkx.read_graphml(io.BytesIO(raw))
    return from_networkx(graph, columns=columns, limits=limits, source=str(path))


def read_node_link(path: Path, limits: Limits, columns: Columns | None = None) -> tuple[NodeTable, EdgeTable]:
    """Read the JSON of ``networkx.node_link_data``: ``{"nodes": [{"id": …}], "edges": [{"source": …, …}]}``."""
    networkx = extra("networkx", "networkx", "reading node-link JSON files")
    with wrap_errors(path, "node-link JSON of NetworkX"):
        content: Any = json.loads(_read(path, limits))
        graph = networkx.node_link_graph(content, edges="edges" if "edges" in content else "links")
    return from_networkx(graph, columns=columns, limits=limits, source=str(path))


def _read(path: Path, limits: Limits) -> bytes:
    raw = read_bytes(path, limits)
    limits.check_bytes(OBJECT_RATIO * len(raw), path, "its objects take")
    return raw
