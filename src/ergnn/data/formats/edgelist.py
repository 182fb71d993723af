"""Plain edge lists: two ids a line, and a weight where there is a third."""

from __future__ import annotations

from pathlib import Path

from ergnn.data.formats.delimited import EdgeRows
from ergnn.data.formats.limits import Limits, shown
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.data.formats.text import lines
from ergnn.errors import FormatError

COMMENTS = ("#", "%")


def read_edge_list(path: Path, limits: Limits) -> tuple[NodeTable, EdgeTable]:
    """Ids are separated by blanks, tabs or commas; lines that begin with # or % are comments.

    Nodes are those that edges name, in that order; they have neither labels nor features.
    """
    edges = EdgeRows(path, limits)
    width = 0
    for number, line in lines(path, limits):
        words = line.replace(",", " ").split()
        if not words or words[0].startswith(COMMENTS):
            continue
        if len(words) not in (2, 3):
            raise FormatError(
                f"{path}, line {number}: {shown(line)} has {len(words)} fields; an edge is a source, a target and "
                "perhaps a weight"
            )
        if width and len(words) != width:
            raise FormatError(f"{path}, line {number}: {len(words)} fields; lines before it have {width}")
        width = len(words)
        edges.add(number, words[0], words[1], words[2] if width == 3 else None, None)
        limits.check("nodes", len(edges.known), f"{path}, line {number}")
    if not width:
        raise FormatError(f"{path}: no edges")
    return NodeTable(ids=list(edges.known)), edges.table(width == 3, False)
