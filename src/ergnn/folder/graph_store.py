"""The graph of a folder: segments, read where they are touched.

Nodes are numbered in the order in which they came, and keep their number for ever; a node that was forgotten leaves a
hole. A segment holds what a run of updates brought:

    ``node.…``    one entry a node: whether it is alive, and the update that brought it
    ``id.…``      the user's ids, as text
    ``x.…``       attributes in CSR form
    ``name``      table: hash of an id → node
    ``edge``      table: target → source (an undirected edge is there both ways)
    ``label``     table: node → class, split and update (see :func:`pack_label`)
    ``member``    table: update and split → node
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from ergnn.folder.files import FolderError
from ergnn.folder.segment import Layout, Segment
from ergnn.folder.table import entries, look_up, make_table
from ergnn.folder.tensors import Array

TABLES = ("name", "edge", "label", "member")
SPLITS = ("train", "val", "test")
ROWS = 4096
"""Nodes that a merge holds in memory."""


def id_hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest(), "little", signed=True)


def pack_label(label: Array, split: Array, update: int) -> Array:
    """Class, split (place in ``SPLITS``) and update in one number."""
    return (np.int64(update) << np.int64(32)) + (np.asarray(label, np.int64) << np.int64(2)) + split


def member_key(update: int, split: str) -> int:
    return update * 4 + SPLITS.index(split)


def make_arrays(
    ids: Sequence[str],
    x: tuple[Array, Array, Array],
    first: int,
    update: int,
    edges: Array,
    labelled: tuple[Array, Array, Array],
) -> dict[str, Array]:
    """The arrays of one update's segment.

    Args:
        ids: of the new nodes.
        x: their attributes: pointers, columns, values.
        first: number of the first new node.
        edges: ``[2, m]`` sources and targets, as node numbers.
        labelled: nodes that have a label since this update, their classes, and their splits.
    """
    texts = [text.encode("utf-8") for text in ids]
    pointers = np.concatenate([[0], np.cumsum([len(text) for text in texts], dtype=np.int64)])
    nodes, labels, splits = labelled
    return {
        "id.ptr": pointers,
        "x.ptr": np.asarray(x[0], np.int64),
        **make_table("name", np.array([id_hash(text) for text in ids], np.int64), first + np.arange(len(ids))),
        **make_table("edge", edges[1], edges[0]),
        **make_table("label", nodes, pack_label(labels, splits, update)),
        **make_table("member", update * 4 + splits, nodes),
        "x.col": np.asarray(x[1], np.int32),
        "x.value": np.asarray(x[2], np.float32),
        "node.update": np.full(len(ids), update, np.int32),
        "node.alive": np.ones(len(ids), np.uint8),
        "id.bytes": np.frombuffer(b"".join(texts), np.uint8),
    }


def layout_of(arrays: dict[str, Array]) -> Layout:
    """Arrays in memory, for :func:`write_segment`."""
    return {name: (array.dtype, array.shape, partial(iter, [array])) for name, array in arrays.items()}


class GraphStore:
    """A graph in segments.

    Args:
        segments: in the order of their nodes.
        num_features: attributes a node.
    """

    def __init__(self, segments: Sequence[Segment], num_features: int) -> None:
        self.segments, self.num_features = list(segments), num_features
        sizes = [segment.size("node.alive") for segment in self.segments]
        self.starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self.num_nodes = int(self.starts[-1])

    def find(self, ids: Sequence[str]) -> Array:
        """Node numbers; -1 for an id that is not there."""
        found = np.full(len(ids), -1, np.int64)
        if not len(ids):
            return found
        keys, place = np.unique(np.array([id_hash(text) for text in ids], np.int64), return_inverse=True)
        rows, nodes = self._look_up("name", keys)
        order = np.argsort(place, kind="stable")
        first = np.searchsorted(place[order], np.arange(len(keys) + 1))
        names = self.names(nodes)
        for row, node, name in zip(rows, nodes, names, strict=True):
            for i in order[first[row] : first[row + 1]]:
                if ids[i] == name:
                    found[i] = node
        return found

    def names(self, nodes: Array) -> list[str]:
        """The user's ids of some nodes."""
        out = [""] * len(nodes)
        for segment, mine, rows in self._by_segment(nodes):
            distinct, place = np.unique(rows, return_inverse=True)
            row, at = segment.rows("id.ptr", distinct)
            data = segment.take("id.bytes", at).tobytes()
            ends = np.searchsorted(row, np.arange(len(distinct) + 1))
            for i, k in zip(mine, place, strict=True):
                try:
                    out[i] = data[ends[k] : ends[k + 1]].decode("utf-8")
                except UnicodeDecodeError:
                    raise FolderError(f"{segment}: an id is not text: the segment is damaged") from None
        return out

    def alive(self, nodes: Array) -> Array:
        return self._column("node.alive", nodes) == 1

    def arrived(self, nodes: Array) -> Array:
        """The update that brought each node."""
        return self._column("node.update", nodes)

    def incoming(self, nodes: Array) -> tuple[Array, Array]:
        """Edges into some nodes (each named once): place in ``nodes`` and source, in the order of both."""
        rows, sources = self._look_up("edge", nodes)
        if sources.size and not 0 <= sources.min() <= sources.max() < self.num_nodes:
            raise FolderError("an edge names a node that is not there: a segment is damaged")
        order = np.lexsort((sources, rows))
        return rows[order], sources[order]

    def labels(self, nodes: Array) -> tuple[Array, Array, Array]:
        """Class (-1 for none), split (place in ``SPLITS``) and the update that brought the label."""
        distinct, place = np.unique(nodes, return_inverse=True)
        packed = np.full(len(distinct), -1, np.int64)
        rows, values = self._look_up("label", distinct)
        packed[rows] = values
        packed = packed[place]
        label = np.where(packed < 0, -1, (packed >> 2) & 0x3FFFFFFF)
        return label, packed & 3, packed >> 32

    def members(self, update: int, split: str) -> Array:
        """The labelled nodes of an update's split, in their order."""
        return self.members_of([update], split)[0]

    def members_of(self, updates: Sequence[int], split: str) -> list[Array]:
        """The same for several updates."""
        rows, nodes = self._look_up("member", np.array([member_key(update, split) for update in updates], np.int64))
        if nodes.size and not 0 <= nodes.min() <= nodes.max() < self.num_nodes:
            raise FolderError("an update names a node that is not there: a segment is damaged")
        order = np.lexsort((nodes, rows))
        ends = np.searchsorted(rows[order], np.arange(1, len(updates)))
        return np.split(nodes[order], ends)

    def rows(self, nodes: Array) -> tuple[Array, Array, Array]:
        """Attributes of some nodes (each named once): pointers, columns, values."""
        count = np.zeros(len(nodes), np.int64)
        parts = []
        for segment, mine, rows in self._by_segment(nodes):
            row, at = segment.rows("x.ptr", rows)
            col = segment.take("x.col", at)
            if col.size and not 0 <= col.min() <= col.max() < self.num_features:
                raise FolderError(f"{segment}: an attribute beyond the {self.num_features} there are: it is damaged")
            count[mine] = np.bincount(row, minlength=len(mine))
            parts.append((mine[row], col, segment.take("x.value", at)))
        pointers = np.concatenate([[0], np.cumsum(count)])
        if not parts:
            return pointers, np.empty(0, np.int32), np.empty(0, np.float32)
        owner, col, value = (np.concatenate([part[i] for part in parts]) for i in range(3))
        order = np.argsort(owner, kind="stable")
        return pointers, col[order], value[order]

    def count(self, table: str) -> int:
        """Entries of a table."""
        return sum(entries(segment, table) for segment in self.segments)

    def release(self) -> None:
        """Give back the memory of what was read."""
        for segment in self.segments:
            segment.release()

    def _look_up(self, table: str, keys: Array) -> tuple[Array, Array]:
        found = [look_up(segment, table, keys) for segment in self.segments]
        if not found:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate([rows for rows, _ in found]), np.concatenate([values for _, values in found])

    def _column(self, name: str, nodes: Array) -> Array:
        out = np.zeros(len(nodes), np.int64)
        for segment, mine, rows in self._by_segment(nodes):
            out[mine] = segment.take(name, rows)
        return out

    def _by_segment(self, nodes: Array) -> Iterator[tuple[Segment, Array, Array]]:
        """Segment, the places in ``nodes`` that it has, and their rows in it."""
        if nodes.size and not 0 <= nodes.min() <= nodes.max() < self.num_nodes:
            raise FolderError("a table names a node that is not there: a segment is damaged")
        owner = np.searchsorted(self.starts, nodes, side="right") - 1
        for number in np.unique(owner):
            mine = np.flatnonzero(owner == number)
            yield self.segments[number], mine, nodes[mine] - self.starts[number]
