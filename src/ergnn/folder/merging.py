"""Several segments in one, with or without some nodes, a piece in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from ergnn.folder.graph_store import ROWS, TABLES, GraphStore
from ergnn.folder.segment import Layout, Segment
from ergnn.folder.table import merge_tables
from ergnn.folder.tensors import Array

NOBODY = np.empty(0, np.int64)


def merge_segments(parts: Sequence[Segment], first: int, drop: Array = NOBODY) -> Layout:
    """One segment of several neighbouring ones, for :func:`write_segment`.

    Args:
        first: number of the first node.
        drop: nodes to leave out (sorted): their ids, attributes, labels and edges; a hole is left in their place.
    """
    store = GraphStore(parts, 0)
    total = store.num_nodes

    def stays(*columns: int):  # type: ignore[no-untyped-def]
        return None if not drop.size else lambda *entry: ~np.any([np.isin(entry[i], drop) for i in columns], axis=0)

    keep = {"name": stays(1), "edge": stays(0, 1), "label": stays(0), "member": stays(1)}
    tables = [merge_tables(parts, name, keep[name]) for name in TABLES]
    wide: Layout = {}
    narrow: Layout = {}
    for pointers, others in (("id.ptr", {"id.bytes": np.uint8}), ("x.ptr", {"x.col": np.int32, "x.value": np.float32})):
        count = sum(int(part.sum()) for part in _counts(parts, pointers, first, drop))
        wide[pointers] = (np.int64, (total + 1,), partial(_pointers, parts, pointers, first, drop))
        for name, dtype in others.items():
            narrow[name] = (dtype, (count,), partial(_entries, parts, pointers, name, first, drop))
    for table in tables:
        wide.update(table)
    narrow["node.update"] = (np.int32, (total,), partial(_column, parts, "node.update", first, NOBODY))
    narrow["node.alive"] = (np.uint8, (total,), partial(_column, parts, "node.alive", first, drop))
    small_last = sorted(narrow.items(), key=lambda item: -np.dtype(item[1][0]).itemsize)
    return {**wide, **dict(small_last)}


def _pieces(parts: Sequence[Segment], first: int, drop: Array) -> Iterator[tuple[Segment, Array, Array]]:
    """Segment, some of its rows in order, and which of them stay."""
    for part in parts:
        size = part.size("node.alive")
        for start in range(0, size, ROWS):
            rows = np.arange(start, min(start + ROWS, size))
            yield part, rows, ~np.isin(first + rows, drop)
        first += size


def _counts(parts: Sequence[Segment], pointers: str, first: int, drop: Array) -> Iterator[Array]:
    for part, rows, stays in _pieces(parts, first, drop):
        yield np.diff(part.slice(pointers, int(rows[0]), int(rows[-1]) + 2)) * stays


def _pointers(parts: Sequence[Segment], pointers: str, first: int, drop: Array) -> Iterator[Array]:
    yield np.zeros(1, np.int64)
    end = 0
    for count in _counts(parts, pointers, first, drop):
        ends = end + np.cumsum(count)
        yield ends
        end = int(ends[-1])


def _entries(parts: Sequence[Segment], pointers: str, name: str, first: int, drop: Array) -> Iterator[Array]:
    for part, rows, stays in _pieces(parts, first, drop):
        yield part.take(name, part.rows(pointers, rows[stays])[1])


def _column(parts: Sequence[Segment], name: str, first: int, drop: Array) -> Iterator[Array]:
    for part, rows, stays in _pieces(parts, first, drop):
        yield part.take(name, rows) * stays
