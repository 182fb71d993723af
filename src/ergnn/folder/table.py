"""Tables from whole numbers to whole numbers, in arrays that can be read in parts and merged in pieces.

A key may have several values. Entries lie in the order of a hash of their key, ``pointers`` says where those with the
same first bits begin, so that a look-up reads a few neighbouring entries, and a merge of two tables is one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ergnn.folder.files import FolderError
from ergnn.folder.segment import Layout, Segment
from ergnn.folder.tensors import Array

_ODD = np.uint64(0x9E3779B97F4A7C15)
PIECE = 1 << 15
"""Entries that a merge holds in memory."""

Keep = Callable[[Array, Array], Array]
"""Which entries (keys, values) stay."""


def _mix(keys: Array) -> Array:
    """A hash of each key, and no two the same (multiplication by an odd number has an inverse)."""
    hashed = keys.astype(np.int64).view(np.uint64) * _ODD
    return hashed ^ (hashed >> np.uint64(32))


def _bits(entries: int) -> int:
    """First bits of the hash that number a bucket: about four entries each."""
    return max(1, (entries // 4).bit_length())


def _bucket(mixed: Array, bits: int) -> Array:
    return (mixed >> np.uint64(64 - bits)).astype(np.int64)


def make_table(name: str, keys: Array, values: Array) -> dict[str, Array]:
    """The arrays of a table."""
    keys, values = np.asarray(keys, np.int64), np.asarray(values, np.int64)
    mixed = _mix(keys)
    order = np.lexsort((values, keys, mixed))
    bits = _bits(len(keys))
    count = np.bincount(_bucket(mixed, bits), minlength=1 << bits)
    pointers = np.concatenate([[0], np.cumsum(count)])
    return {f"{name}.ptr": pointers, f"{name}.key": keys[order], f"{name}.value": values[order]}


def look_up(segment: Segment, name: str, keys: Array) -> tuple[Array, Array]:
    """Entries with these keys (each named once): the place in ``keys``, and the value."""
    keys = np.asarray(keys, np.int64)
    buckets = np.unique(_bucket(_mix(keys), _table_bits(segment, name)))
    _, at = segment.rows(f"{name}.ptr", buckets)
    found = segment.take(f"{name}.key", at)
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys, found, sorter=order)
    place = order[np.minimum(place, len(order) - 1)] if len(order) else place
    hit = keys[place] == found if len(order) else np.zeros(0, bool)
    return place[hit], segment.take(f"{name}.value", at[hit])


def entries(segment: Segment, name: str) -> int:
    return segment.size(f"{name}.key")


def merge_tables(parts: Sequence[Segment], name: str, keep: Keep | None = None) -> Layout:
    """One table of several, less what is not kept, for :func:`write_segment`; a piece is in memory at a time."""
    bits = _bits(sum(entries(part, name) for part in parts))
    count = np.zeros(1 << bits, np.int64)
    for keys, _ in _pieces(parts, name, keep):
        np.add.at(count, _bucket(_mix(keys), bits), 1)
    total = int(count.sum())
    pointers = np.concatenate([[0], np.cumsum(count)])
    return {
        f"{name}.ptr": (np.int64, pointers.shape, lambda: iter([pointers])),
        f"{name}.key": (np.int64, (total,), lambda: (keys for keys, _ in _pieces(parts, name, keep))),
        f"{name}.value": (np.int64, (total,), lambda: (values for _, values in _pieces(parts, name, keep))),
    }


def _pieces(parts: Sequence[Segment], name: str, keep: Keep | None) -> Iterator[tuple[Array, Array]]:
    """Keys and values of all parts in the table's order, those of a few first bits at a time."""
    total = sum(entries(part, name) for part in parts)
    bits = (total // PIECE).bit_length()
    for first in range(1 << bits):
        found = [_slice(part, name, first, bits) for part in parts]
        keys, values = (np.concatenate([pair[i] for pair in found]) for i in (0, 1))
        if keep is not None:
            stays = keep(keys, values)
            keys, values = keys[stays], values[stays]
        order = np.lexsort((values, keys, _mix(keys)))
        yield keys[order], values[order]


def _slice(part: Segment, name: str, first: int, bits: int) -> tuple[Array, Array]:
    """Entries whose hash begins with the ``bits`` bits of ``first``."""
    own = _table_bits(part, name)
    shift = own - bits
    low, high = (first << shift, (first + 1) << shift) if shift >= 0 else (first >> -shift, (first >> -shift) + 1)
    start, stop = (int(part.slice(f"{name}.ptr", n, n + 1)[0]) for n in (low, high))
    keys, values = part.slice(f"{name}.key", start, stop), part.slice(f"{name}.value", start, stop)
    if bits == 0:
        return keys, values
    own_place = _bucket(_mix(keys), bits) == first
    return keys[own_place], values[own_place]


def _table_bits(segment: Segment, name: str) -> int:
    size = segment.size(f"{name}.ptr") - 1
    bits = size.bit_length() - 1
    if size != 1 << max(bits, 0) or not 1 <= bits <= 48:
        raise FolderError(f"{segment}: the table {name!r} has {size} buckets: the segment is damaged")
    return bits
