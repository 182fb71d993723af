"""What a Parquet file claims to hold, read from its footer and its pages' headers before pyarrow sees the file.

Some kilobytes can stand for gigabytes: runs of one value, a long text many times, pages that unpack to far more than
they are. pyarrow takes memory as it goes along, and its own view of a column's metadata ends the whole process on some
damaged files, as its C++ exception is not caught on the way to Python (pyarrow 26.0.1). Footer and headers are structs
in Thrift's compact protocol, which takes few lines to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ergnn.data.formats.limits import MEGABYTE
from ergnn.errors import FormatError

MAGIC = b"PAR1"
LONGEST = 16 * MEGABYTE
HEADER = 1 << 12
DEEPEST = 24
STOP, TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
WHOLE = (4, 5, 6)

# ids of the fields that are used, struct by struct
ROW_GROUPS = 4
GROUP_COLUMNS, GROUP_ROWS = 1, 3
CHUNK_META = 3
PATH, PACKED, DATA_OFFSET, DICTIONARY_OFFSET = 3, 7, 9, 11
PAGE_UNPACKED, PAGE_PACKED, DATA, DICTIONARY, DATA_2 = 2, 3, 5, 7, 8
NUM_VALUES, ENCODING, ENCODING_2 = 1, 2, 4


@dataclass
class Claims:
    """What the pages of one column of a table claim, over all row groups.

    Args:
        values: values, those of lists counted one by one.
        unpacked: bytes of the pages once unpacked.
        largest: bytes of the largest page.
        encodings: numbers of the encodings, as in the format's specification.
    """

    values: int = 0
    unpacked: int = 0
    largest: int = 0
    encodings: set[int] = field(default_factory=set)


def claims(path: Path, size: int) -> dict[bytes, Claims]:
    """Claims of each column by its name."""
    out: dict[bytes, Claims] = {}
    with open(path, "rb") as file:
        footer = _footer(file, path, size)
        try:
            for group in _Compact(footer).struct(0)[ROW_GROUPS]:
                for chunk in group[GROUP_COLUMNS] if group[GROUP_ROWS] else ():
                    column = out.setdefault(chunk[CHUNK_META][PATH][0], Claims())
                    values = 0
                    for page in _pages(file, chunk[CHUNK_META], size):
                        column.unpacked += page[PAGE_UNPACKED]
                        column.largest = max(column.largest, page[PAGE_UNPACKED])
                        data = page.get(DATA) or page.get(DATA_2) or {}
                        values += data.get(NUM_VALUES, 0)
                        column.encodings.add(data.get(ENCODING_2 if DATA_2 in page else ENCODING, 0))
                    column.values += max(values, group[GROUP_ROWS])
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise FormatError(f"{path}: the metadata of the Parquet file is damaged ({error!r})") from error
    return out


def _footer(file: IO[bytes], path: Path, size: int) -> bytes:
    if size < 12 or file.read(4) != MAGIC:
        raise FormatError(f"{path}: not a Parquet file; it does not begin with PAR1")
    file.seek(size - 8)
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != MAGIC or length > size - 12:
        raise FormatError(f"{path}: not a whole Parquet file; its footer is not at the end")
    if length > LONGEST:
        raise FormatError(f"{path}: a footer of {length:,} bytes; at most {LONGEST:,} are allowed")
    file.seek(size - 8 - length)
    return file.read(length)


def _pages(file: IO[bytes], meta: dict[int, Any], size: int) -> Iterator[dict[int, Any]]:
    """Headers of the pages of a chunk, one after the other."""
    at = min(meta[DATA_OFFSET], meta.get(DICTIONARY_OFFSET) or meta[DATA_OFFSET])
    end = at + meta[PACKED]
    if not 4 <= at <= end <= size - 8:
        raise ValueError(f"pages at {at:,} to {end:,} of {size:,} bytes")
    while at < end:
        page, length = _page(file, at, end)
        if page[PAGE_UNPACKED] < 0 or page[PAGE_PACKED] < 0 or at + length + page[PAGE_PACKED] > end:
            raise ValueError(f"a page of {page[PAGE_PACKED]:,} bytes at {at:,} of {end:,}")
        yield page
        at += length + page[PAGE_PACKED]


def _page(file: IO[bytes], at: int, end: int) -> tuple[dict[int, Any], int]:
    """A page's header and its length; most are short, but statistics in it may hold long texts."""
    for most in (HEADER, LONGEST):
        file.seek(at)
        reader = _Compact(file.read(min(most, end - at)))
        try:
            return reader.struct(0), reader.at
        except (IndexError, ValueError):
            if most == LONGEST or end - at <= most:
                raise
    raise AssertionError("the last try returns or raises")


class _Compact:
    """A value in Thrift's compact protocol as Python objects; a struct is a dict by the fields' ids."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def byte(self) -> int:
        self.at += 1
        return self.content[self.at - 1]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            part = self.byte()
            value |= (part & 0x7F) << shift
            if part < 0x80:
                return value
        raise ValueError("a number is too long")

    def whole(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def struct(self, depth: int) -> dict[int, Any]:
        out: dict[int, Any] = {}
        field = 0
        while head := self.byte():
            field = field + (head >> 4) if head >> 4 else self.whole()
            kind = head & 0x0F
            out[field] = kind == TRUE if kind in (TRUE, FALSE) else self.value(kind, depth + 1)
        return out

    def value(self, kind: int, depth: int) -> Any:
        if depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} deep")
        if kind in WHOLE:
            return self.whole()
        if kind in (TRUE, FALSE, BYTE):
            return self.byte()
        if kind == BINARY:
            return self.bytes(self.varint())
        if kind == DOUBLE:
            return self.bytes(8)
        if kind == STRUCT:
            return self.struct(depth)
        if kind in (LIST, SET):
            head = self.byte()
            count = self.varint() if head >> 4 == 15 else head >> 4
            return [self.value(head & 0x0F, depth + 1) for _ in range(self.fits(count))]
        raise ValueError(f"a value of kind {kind}")

    def bytes(self, length: int) -> bytes:
        start, self.at = self.at, self.at + self.fits(length)
        return self.content[start : self.at]

    def fits(self, count: int) -> int:
        """So many bytes, or values of a byte at least, must be left."""
        if count > len(self.content) - self.at:
            raise ValueError(f"{count:,} values, with {len(self.content) - self.at:,} bytes left")
        return count
