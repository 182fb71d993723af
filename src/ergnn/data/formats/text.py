"""Lines and records of a text file, gz-compressed or not, without ever holding more of it than a record."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from ergnn.data.formats.limits import MEGABYTE, TEXT_UNPACKED, Limits, file_size
from ergnn.errors import FormatError

BOM = b"\xef\xbb\xbf"
GZ = ".gz"
CHUNK = 1 << 16
OBJECTS = 16
"""JSON and XML take so many times their size in memory once they are objects, more or less."""


class Text:
    """The bytes of a text file, unpacked where it is gz, and no more of them than allowed.

    Args:
        path: the file.
        limits: what it may hold.
        most: bytes it may hold once unpacked, where that is less than ``limits`` allow.
    """

    def __init__(self, path: Path, limits: Limits, most: int | None = None) -> None:
        self.path, self.total = path, 0
        self.size = file_size(path, limits)
        self.packed = path.suffix.lower() == GZ
        allowed = limits.unpacked(self.size, TEXT_UNPACKED) if self.packed else limits.bytes
        self.most = allowed if most is None else min(most, allowed)

    def __enter__(self) -> Text:
        try:
            self.file = cast(IO[bytes], gzip.open(self.path, "rb") if self.packed else open(self.path, "rb"))
        except OSError as error:
            raise FormatError(f"{self.path}: cannot be read ({error.strerror or error})") from error
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def chunk(self) -> bytes:
        """The next bytes, none at the end."""
        try:
            raw = self.file.read(CHUNK)
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(f"{self.path}: cannot be read after {self.total:,} bytes ({error})") from error
        self.total += len(raw)
        if self.total > self.most:
            raise FormatError(
                f"{self.path}: more than {self.most // MEGABYTE:,} MB of text in a file of {self.size:,} bytes, the "
                "most that is allowed (limit 'megabytes'"
                + (f", and {TEXT_UNPACKED[1]} times the size of a compressed file)" if self.packed else ")")
            )
        return raw


def whole(path: Path, limits: Limits, most: int) -> str:
    """All of a file, which may take ``most`` bytes."""
    with Text(path, limits, most) as text:
        raw = b"".join(iter(text.chunk, b""))
    try:
        return raw.removeprefix(BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: byte 0x{raw[error.start]:02x} at place {error.start + 1} is not UTF-8") from error


def lines(path: Path, limits: Limits) -> Iterator[tuple[int, str]]:
    """Numbered lines from 1, without the line feed; UTF-8, a byte-order mark is skipped."""
    number, kept = 0, [b""]  # what was read of a line that has not ended yet
    with Text(path, limits) as text:
        while chunk := text.chunk():
            end = chunk.rfind(b"\n") + 1
            if end:
                for line in _lines(b"".join((*kept, chunk[:end])), number, path, limits):
                    number += 1
                    yield number, line
                kept = []
            kept.append(chunk[end:])
            if len(kept) * CHUNK > limits.line + CHUNK:
                raise _too_long(path, number + 1, limits)
        for line in _lines(b"".join(kept), number, path, limits):
            number += 1
            yield number, line


def _lines(block: bytes, before: int, path: Path, limits: Limits) -> list[str]:
    """Lines of a block; only the first can be longer than a chunk."""
    if before == 0:
        block = block.removeprefix(BOM)
    if not block:
        return []
    if block.find(b"\n", 0, limits.line + 1) < 0 and len(block) > limits.line:
        raise _too_long(path, before + 1, limits)
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError as error:
        number, start = before + 1 + block.count(b"\n", 0, error.start), block.rfind(b"\n", 0, error.start) + 1
        raise FormatError(
            f"{path}, line {number}: byte 0x{block[error.start]:02x} at place {error.start - start + 1} is not UTF-8; "
            "save the file as UTF-8"
        ) from error
    if "\0" in text:
        number = before + 1 + text.count("\n", 0, text.index("\0"))
        raise FormatError(f"{path}, line {number}: a NUL byte; this is not a text file")
    return text.removesuffix("\n").split("\n")


def _too_long(path: Path, number: int, limits: Limits) -> FormatError:
    return FormatError(
        f"{path}, line {number}: longer than {limits.line:,} bytes, enough for {limits.features:,} features "
        "(limit 'features')"
    )


def records(path: Path, delimiter: str, limits: Limits) -> Iterator[tuple[int, list[str]]]:
    """Rows of a CSV or TSV file (RFC 4180: quotes around a field, doubled within) with the line they begin in.

    Empty lines are skipped. A quote that is not closed, or stands in the middle of a field, is refused.
    """
    # the quoted form is unambiguous, so that matching takes time linear in the record
    field = re.compile(rf'(?:"([^"]*(?:""[^"]*)*)"|([^"\r\n{delimiter}]*))({delimiter}|\Z)')
    parts: list[str] = []
    started = quotes = length = 0
    for number, line in lines(path, limits):
        if not parts:
            if '"' not in line and "\r" not in line:
                if line:
                    yield number, line.split(delimiter)
                continue
            started, quotes, length = number, 0, 0
        parts.append(line)
        quotes += line.count('"')
        length += len(line) + 1
        if length > limits.line:
            raise FormatError(
                f"{path}, line {started}: a quote that is not closed within {limits.line:,} characters, "
                "or a row longer than that"
            )
        if quotes % 2 == 0:
            if record := "\n".join(parts).removesuffix("\r"):
                yield started, _fields(record, field, started, path)
            parts = []
    if parts:
        raise FormatError(f"{path}, line {started}: a quote is opened and never closed")


def _fields(record: str, field: re.Pattern[str], number: int, path: Path) -> list[str]:
    out: list[str] = []
    at, separator = 0, "at the start"
    while separator:
        found = field.match(record, at)
        if found is None:
            raise FormatError(
                f"{path}, line {number}, field {len(out) + 1}: a quote or a carriage return in the middle of a field; "
                'put the field in quotes, and write a quote within it twice ("")'
            )
        quoted, plain, separator = found.groups()
        out.append(plain if quoted is None else quoted.replace('""', '"'))
        at = found.end()
    return out
