"""Graphs that NetworkX holds in memory, and those that it writes as node-link JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ergnn.data.formats.attributes import edge_table, node_table
from ergnn.data.formats.boundary import foreign
from ergnn.data.formats.limits import Limits, shown
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.data.formats.text import OBJECTS, whole
from ergnn.errors import FormatError, InputError

if TYPE_CHECKING:
    import networkx


def from_networkx(graph: networkx.Graph, *, limits: Limits | None = None) -> tuple[NodeTable, EdgeTable]:
    """Tables of a NetworkX graph (directed or not, also a multigraph).

    Attributes of nodes are read as columns of a table are: ``label``, ``time``, ``split``, ``domain`` and features;
    attributes of edges are ``weight`` and ``time``. Ids become text, so that no two nodes may read the same.
    """
    if not (hasattr(graph, "nodes") and hasattr(graph, "edges")):
        raise InputError(f"a {type(graph).__name__} is not a NetworkX graph")
    limits = limits or Limits()
    limits.check("nodes", graph.number_of_nodes(), "the NetworkX graph")
    limits.check("edges", graph.number_of_edges(), "the NetworkX graph")
    nodes = list(graph.nodes(data=True))
    return (
        node_table(nodes, "the NetworkX graph", limits),
        edge_table(list(graph.edges(data=True)), "the NetworkX graph", limits),
    )


def read_node_link(path: Path, limits: Limits) -> tuple[NodeTable, EdgeTable]:
    """A graph as ``networkx.node_link_data`` gives it: ``{"nodes": [{"id": …}], "edges": [{"source": …, …}]}``."""
    text = whole(path, limits, limits.bytes // OBJECTS)
    with foreign(path, "JSON"):
        content = json.loads(text)
    del text
    if not isinstance(content, dict):
        raise FormatError(f"{path}: holds a {type(content).__name__}; an object with 'nodes' and 'edges' is needed")
    nodes = _entries(content, ("nodes",), ("id",), path)
    edges = _entries(content, ("edges", "links"), ("source", "target"), path)
    return (
        node_table([(node.pop("id"), node) for node in nodes], path, limits),
        edge_table([(_pop(edge, "source"), _pop(edge, "target"), edge) for edge in edges], path, limits),
    )


def _pop(edge: dict[str, Any], end: str) -> Any:
    edge.pop("key", None)  # of a multigraph
    return edge.pop(end)


def _entries(content: dict[str, Any], names: tuple[str, ...], keys: tuple[str, ...], path: Path) -> list[Any]:
    name = next((name for name in names if name in content), None)
    if name is None:
        raise FormatError(
            f"{path}: no {names[0]!r}; found are {', '.join(shown(key, 20) for key in list(content)[:8])}"
        )
    entries = content[name]
    if not isinstance(entries, list):
        raise FormatError(f"{path}, {name!r}: a {type(entries).__name__}; a list of objects is needed")
    for i, entry in enumerate(entries):
        if not isinstance(entry, dict) or any(key not in entry for key in keys):
            raise FormatError(f"{path}, {name!r}, entry {i + 1}: {shown(entry)}; an object with {keys} is needed")
    return entries
