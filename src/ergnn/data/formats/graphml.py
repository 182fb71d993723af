"""Graphs in GraphML files, parsed as a stream; no document type, and so no entities, are allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn
from xml.parsers import expat

from ergnn.data.formats.attributes import edge_table, node_table
from ergnn.data.formats.limits import Limits, shown
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.data.formats.text import OBJECTS, Text
from ergnn.errors import FormatError

DEEPEST = 64


def read_graphml(path: Path, limits: Limits) -> tuple[NodeTable, EdgeTable]:
    """Nodes and edges of the one graph of a GraphML file, with the attributes that its keys name."""
    reader = _Reader(path, limits)
    with Text(path, limits, limits.bytes // OBJECTS) as text:
        try:
            while chunk := text.chunk():
                reader.parser.Parse(chunk, False)
            reader.parser.Parse(b"", True)
        except (expat.ExpatError, ValueError, LookupError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"{path}, line {reader.parser.CurrentLineNumber}: not XML ({error})") from error
    if not reader.graphs:
        raise FormatError(f"{path}: no graph in it")
    return node_table(reader.nodes, path, limits), edge_table(reader.edges, path, limits)


class _Reader:
    def __init__(self, path: Path, limits: Limits) -> None:
        self.path, self.limits = path, limits
        self.nodes: list[tuple[str, dict[str, Any]]] = []
        self.edges: list[tuple[str, str, dict[str, Any]]] = []
        self.names: dict[str, str] = {}
        self.defaults: dict[str, dict[str, str]] = {"node": {}, "edge": {}}
        self.kind = ""
        self.graphs = 0
        self.open: list[str] = []
        self.into: Callable[[str], None] | None = None
        self.text: list[str] = []
        self.length = 0
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.StartDoctypeDeclHandler = self.doctype
        self.key = ""

    def refuse(self, message: str) -> NoReturn:
        raise FormatError(f"{self.path}, line {self.parser.CurrentLineNumber}: {message}")

    def doctype(self, *_: object) -> None:
        self.refuse("a document type; it could define entities that grow without end, and is never read")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        tag = name.rsplit(" ", 1)[-1]
        self.open.append(tag)
        if len(self.open) > DEEPEST:
            self.refuse(f"elements nested more than {DEEPEST} deep")
        begin = getattr(self, f"start_{tag}", None)
        if begin is not None:
            begin(attributes)
        elif tag in ("hyperedge", "port"):
            self.refuse(f"a {tag}; nodes and edges between two of them are read")

    def start_key(self, attributes: dict[str, str]) -> None:
        self.key = self.needed(attributes, "id", "key")
        self.kind = attributes.get("for", "all")
        if "attr.name" in attributes and self.kind in ("node", "edge", "all"):
            self.names[self.key] = attributes["attr.name"]

    def start_default(self, _: dict[str, str]) -> None:
        if self.key in self.names:
            self.collect(self.set_default)

    def set_default(self, text: str) -> None:
        for kind in ("node", "edge"):
            if self.kind in (kind, "all"):
                self.defaults[kind][self.names[self.key]] = text

    def start_graph(self, _: dict[str, str]) -> None:
        self.graphs += 1
        if self.graphs > 1:
            self.refuse("a second graph; one is read from a file")

    def start_node(self, attributes: dict[str, str]) -> None:
        self.limits.check("nodes", len(self.nodes) + 1, self.path)
        self.nodes.append((self.needed(attributes, "id", "node"), dict(self.defaults["node"])))

    def start_edge(self, attributes: dict[str, str]) -> None:
        self.limits.check("edges", len(self.edges) + 1, self.path)
        ends = (self.needed(attributes, "source", "edge"), self.needed(attributes, "target", "edge"))
        self.edges.append((*ends, dict(self.defaults["edge"])))

    def start_data(self, attributes: dict[str, str]) -> None:
        self.key = self.needed(attributes, "key", "data")
        owner = self.open[-2] if len(self.open) > 1 else ""
        if self.key in self.names and owner in ("node", "edge"):
            self.collect(self.set_node if owner == "node" else self.set_edge)

    def set_node(self, text: str) -> None:
        self.nodes[-1][1][self.names[self.key]] = text

    def set_edge(self, text: str) -> None:
        self.edges[-1][2][self.names[self.key]] = text

    def collect(self, into: Callable[[str], None]) -> None:
        self.into, self.text, self.length = into, [], 0

    def characters(self, text: str) -> None:
        if self.into is not None:
            self.length += len(text)
            if self.length > self.limits.line:
                self.refuse(f"text of more than {self.limits.line:,} characters")
            self.text.append(text)

    def end(self, name: str) -> None:
        tag = self.open.pop()
        if tag in ("data", "default") and self.into is not None:
            self.into("".join(self.text))
            self.into = None

    def needed(self, attributes: dict[str, str], name: str, tag: str) -> str:
        if name not in attributes:
            self.refuse(f"<{tag}> has no {name!r}; it has {shown(sorted(attributes))}")
        return attributes[name]
