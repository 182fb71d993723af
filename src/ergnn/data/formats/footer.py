"""How many values a Parquet file claims to hold, read from its footer before pyarrow sees the file.

The footer is a struct in Thrift's compact protocol. It is read here because pyarrow's own view of a column's metadata
ends the whole process on some damaged files: its C++ exception is not caught on the way to Python (pyarrow 26.0.1).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ergnn.data.formats.limits import MEGABYTE
from ergnn.errors import FormatError

MAGIC = b"PAR1"
LONGEST = 16 * MEGABYTE
DEEPEST = 24
STOP, TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
WHOLE = (4, 5, 6)

ROW_GROUPS, COLUMNS, ROWS, META_DATA, PATH, NUM_VALUES = 4, 1, 3, 3, 3, 5
"""Ids of the fields that are used, in FileMetaData, RowGroup (two), ColumnChunk and ColumnMetaData (two)."""


def claimed_values(path: Path, size: int) -> dict[bytes, int]:
    """Values of each column of the table over all row groups, those of lists counted one by one."""
    with open(path, "rb") as file:
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
        content = file.read(length)
    values: dict[bytes, int] = {}
    try:
        for group in _Compact(content).struct(0)[ROW_GROUPS]:
            for chunk in group[COLUMNS]:
                meta = chunk[META_DATA]
                name = meta[PATH][0]
                values[name] = values.get(name, 0) + max(meta[NUM_VALUES], group[ROWS], 0)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise FormatError(f"{path}: the footer of the Parquet file is damaged ({error!r})") from error
    return values


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
