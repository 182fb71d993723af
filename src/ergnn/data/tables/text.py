"""CSV and TSV files, also gzip-compressed, as Arrow tables."""

from __future__ import annotations

import csv as text_csv
import gzip
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ergnn.config.errors import FormatError
from ergnn.config.files import wrap_errors
from ergnn.data.tables.columns import ColumnRoles
from ergnn.data.tables.convert import Source
from ergnn.data.tables.limits import MEGABYTE, Limits, file_size

BOM = b"\xef\xbb\xbf"
GZ = ".gz"
TEXT_RATIO = (16, 100)
"""Compressed text may expand to 16 MB or 100 times the file size (bombs reach 1,000 times)."""
COLUMN_BYTES = 10_000
"""Memory of pyarrow's CSV reader per column, without the values."""
BLOCK, LARGEST_BLOCK = MEGABYTE, 1 << 30


def read_bytes(path: Path, limits: Limits) -> bytes:
    """Read a text file, decompressed if its name ends in ``.gz``, without a byte-order mark."""
    size = file_size(path, limits)
    with wrap_errors(path, "text"):
        if path.suffix.lower() != GZ:
            return path.read_bytes().removeprefix(BOM)
        with gzip.open(path, "rb") as file:
            raw = file.read(min(limits.bytes, max(TEXT_RATIO[0] * MEGABYTE, TEXT_RATIO[1] * size)) + 1)
    limits.check_ratio(len(raw), size, *TEXT_RATIO, path)
    return raw.removeprefix(BOM)


def csv_source(path: Path, delimiter: str, limits: Limits) -> Source:
    """Open a CSV or TSV file with a header; quotes follow RFC 4180, and empty lines are skipped."""
    raw = read_bytes(path, limits)
    # the first nonempty line, with all lines that its quotes span
    first: Any = re.match(rb'[\r\n]*((?:"[^"]*"|[^"\r\n]+)*)', raw)
    header, quoted = first[1], raw.find(b'"', first.end()) >= 0
    if quoted and raw.count(b'"') % 2:
        raise FormatError(f"{path}: a quote is opened and never closed")
    if not header.strip():
        raise FormatError(f"{path}: no header; the file has only empty lines")
    columns = header.count(delimiter.encode()) + 1
    limits.check_bytes(COLUMN_BYTES * columns, path, f"{columns:,} columns take")
    if 8 * len(raw) > limits.bytes:  # a value takes at least a byte of text
        limits.check_bytes(8 * columns * raw.count(b"\n"), path, "its values take")
    parsing = {"delimiter": delimiter, "newlines_in_values": quoted or len(header.splitlines()) > 1}
    with wrap_errors(path, "UTF-8 text"):
        names = _parse(header + b"\n", parsing, None, [], LARGEST_BLOCK).column_names

    def read(roles: ColumnRoles) -> Any:
        texts = [*roles.text_columns, *(roles.features if roles.single else ())]
        try:
            return _parse(raw, parsing, roles.columns, texts, max(BLOCK, 8 * len(header)))
        except ValueError:  # a line longer than a block, or an error; a single thread knows its row
            with wrap_errors(path, "a table"):
                return _parse(raw, parsing, roles.columns, texts, LARGEST_BLOCK)

    return Source(str(path), names, read)


def rows_to_arrow(rows: Sequence[Mapping[str, Any]], limits: Limits, where: str) -> Any:
    """Return values by column name as the Arrow table of a CSV file with these values; absent names are empty.

    Args:
        rows: text, numbers, booleans or ``None`` by column name.
        limits: maximum sizes.
        where: the name of the table in messages.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        raise FormatError(f"{where}: no node has a value in any column")
    limits.check("features", len(names), where)
    limits.check_bytes(len(names) * (COLUMN_BYTES + 8 * len(rows)), where, f"{len(names):,} columns take")
    file = io.StringIO(newline="")
    writer = text_csv.writer(file, quoting=text_csv.QUOTE_ALL)
    writer.writerow(names)
    for row in rows:
        writer.writerow([str(v).lower() if isinstance(v := row.get(name), bool) else v for name in names])
    with wrap_errors(where, "a table"):
        return _parse(file.getvalue().encode(), {"newlines_in_values": True}, None, [], LARGEST_BLOCK)


def _parse(raw: bytes, options: dict[str, Any], wanted: list[str] | None, texts: list[str], block: int) -> Any:
    import pyarrow as pa
    import pyarrow.csv as csv

    reading = csv.ReadOptions(block_size=min(block, len(raw) + 1), use_threads=block < LARGEST_BLOCK)
    parsing = csv.ParseOptions(**options)
    converting = csv.ConvertOptions(include_columns=wanted, column_types=dict.fromkeys(texts, pa.string()))
    try:
        return csv.read_csv(pa.BufferReader(raw), reading, parsing, converting)
    except pa.ArrowInvalid as error:  # which counts the header as a row
        raise ValueError(re.sub(r"Row #(\d+)", lambda row: f"row {int(row[1]) - 1}", str(error))) from error
