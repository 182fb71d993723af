"""Tables from whole numbers to whole numbers, in arrays that can be read in parts and merged in pieces.

A key may have several values. Entries lie in the order of their keys, and pointers say where those of every so many
keys begin, so that a look-up reads a few neighbouring entries, and neighbouring keys the same ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ergnn.folder.files import FolderError
from ergnn.folder.segment import Layout, Segment
from ergnn.folder.tensors import Array

PIECE = 1 << 15
"""Entries that a merge holds in memory, more or less."""

Keep = Callable[[Array, Array], Array]
"""Which entries (keys, values) stay."""


def make_table(name: str, keys: Array, values: Array) -> dict[str, Array]:
    """The arrays of a table."""
    keys, values = np.asarray(keys, np.int64), np.asarray(values, np.int64)
    order = np.lexsort((values, keys))
    keys, values = keys[order], values[order]
    count = np.zeros(1 << _bits(len(keys)), np.int64)
    if len(keys):
        count += np.bincount(_buckets(keys, keys[0], keys[-1], len(count)), minlength=len(count))
    return {f"{name}.ptr": np.concatenate([[0], np.cumsum(count)]), f"{name}.key": keys, f"{name}.value": values}


def look_up(segment: Segment, name: str, keys: Array) -> tuple[Array, Array]:
    """Entries with these keys (each named once): the place in ``keys``, and the value."""
    keys, size = np.asarray(keys, np.int64), entries(segment, name)
    if not size or not len(keys):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    low, high = (_key(segment, name, place) for place in (0, size - 1))
    inside = np.flatnonzero((keys >= low) & (keys <= high))
    buckets = np.unique(_buckets(keys[inside], low, high, _bucket_count(segment, name)))
    _, at = segment.rows(f"{name}.ptr", buckets)
    found = segment.take(f"{name}.key", at)
    order = np.argsort(keys, kind="stable")
    place = order[np.minimum(np.searchsorted(keys, found, sorter=order), len(order) - 1)]
    hit = keys[place] == found
    return place[hit], segment.take(f"{name}.value", at[hit])


def entries(segment: Segment, name: str) -> int:
    return segment.size(f"{name}.key")


def merge_tables(parts: Sequence[Segment], name: str, keep: Keep | None = None) -> Layout:
    """One table of several, less what is not kept, for :func:`write_segment`; a piece is in memory at a time."""
    ends = [(len(keys), keys[0], keys[-1]) for keys, _ in _pieces(parts, name, keep) if len(keys)]
    total = sum(size for size, _, _ in ends)
    count = np.zeros(1 << _bits(total), np.int64)
    for keys, _ in _pieces(parts, name, keep) if ends else ():
        np.add.at(count, _buckets(keys, ends[0][1], ends[-1][2], len(count)), 1)
    pointers = np.concatenate([[0], np.cumsum(count)])
    return {
        f"{name}.ptr": (np.int64, pointers.shape, lambda: iter([pointers])),
        f"{name}.key": (np.int64, (total,), lambda: (keys for keys, _ in _pieces(parts, name, keep))),
        f"{name}.value": (np.int64, (total,), lambda: (values for _, values in _pieces(parts, name, keep))),
    }


def _pieces(parts: Sequence[Segment], name: str, keep: Keep | None) -> Iterator[tuple[Array, Array]]:
    """Keys and values of all parts in their order, a range of keys at a time."""
    parts = [part for part in parts if entries(part, name)]
    if not parts:
        return
    low = min(_key(part, name, 0) for part in parts)
    high = max(_key(part, name, entries(part, name) - 1) for part in parts) + 1
    count = 1 + sum(entries(part, name) for part in parts) // PIECE
    starts = [0] * len(parts)
    for number in range(1, count + 1):
        cut = low + (high - low) * number // count
        stops = [_place(part, name, cut, start) for part, start in zip(parts, starts, strict=True)]
        spans = list(zip(parts, starts, stops, strict=True))
        keys = np.concatenate([part.slice(f"{name}.key", a, b) for part, a, b in spans])
        values = np.concatenate([part.slice(f"{name}.value", a, b) for part, a, b in spans])
        if keep is not None:
            stays = keep(keys, values)
            keys, values = keys[stays], values[stays]
        order = np.lexsort((values, keys))
        yield keys[order], values[order]
        starts = stops


def _key(part: Segment, name: str, place: int) -> int:
    return int(part.slice(f"{name}.key", place, place + 1)[0])


def _place(part: Segment, name: str, key: int, start: int) -> int:
    """Where the first entry with this key, or a larger one, lies."""
    return bisect_left(range(entries(part, name)), key, lo=start, key=lambda place: _key(part, name, place))


def _bits(count: int) -> int:
    """Buckets are a power of two, of about four entries each."""
    return max(1, (count // 4).bit_length())


def _buckets(keys: Array, low: int, high: int, count: int) -> Array:
    """The bucket of each key between low and high: its place in that range, to the first few bits."""
    shift = max(0, (int(high) - int(low)).bit_length() - (count.bit_length() - 1))
    return ((keys.view(np.uint64) - np.array(low, np.int64).view(np.uint64)) >> np.uint64(shift)).astype(np.int64)


def _bucket_count(segment: Segment, name: str) -> int:
    size = segment.size(f"{name}.ptr") - 1
    if size < 2 or size & (size - 1) or size > 1 << 48:
        raise FolderError(f"{segment}: the table {name!r} has {size} buckets: the segment is damaged")
    return size
