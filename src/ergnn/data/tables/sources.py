"""Tables of CSV, TSV and Parquet files, data frames and Arrow, as lazy sources: a header first, then chosen columns."""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from ergnn.config.errors import FormatError, InputError, similar_file, truncate
from ergnn.config.files import wrap_errors
from ergnn.config.limits import MEGABYTE, Limits
from ergnn.data.tables.columns import ColumnRoles
from ergnn.data.tables.values import is_text

BOM = b"\xef\xbb\xbf"
OTHERS = {
    b"PK\x03\x04": "a zip archive, as Excel writes them; save the table as CSV",
    b"\x1f\x8b": "compressed by gzip; its name must end in .gz",
    b"PAR1": "a Parquet file; its name must end in .parquet",
    b"\xff\xfe": "UTF-16 text; save the file as UTF-8",
    b"\xfe\xff": "UTF-16 text; save the file as UTF-8",
}
"""How files begin that are no CSV, and what they are."""
GZ = ".gz"
TEXT_RATIO = (16, 100)
"""Compressed text may expand to 16 MB or 100 times the file size (bombs reach 1,000 times)."""
COLUMN_BYTES = 10_000
"""Memory of pyarrow's CSV reader per column, without the values."""
BLOCK, LARGEST_BLOCK = MEGABYTE, 1 << 30
EXPANDED = (512, 200)
"""All values of a Parquet file may take 512 MB (features that are mostly zero compress well) or 200 times the file."""
LONGEST = 1 << 24
"""Maximum size of texts and lists in the footer of a Parquet file."""
BOUNDS: dict[str, Any] = {"thrift_string_size_limit": LONGEST, "thrift_container_size_limit": LONGEST}
BATCH_ROWS = 1 << 17


@dataclass(frozen=True)
class Source:
    """A table that has not been read yet; ``where`` is its name in messages, ``index`` columns are pandas' index."""

    where: str
    names: list[str]
    read: Callable[[ColumnRoles], pa.Table]
    index: tuple[str, ...] = ()


def file_size(path: Path, limits: Limits) -> int:
    """Return the size of a regular file; a missing, empty or too large file is refused."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        reason = f"{getattr(error, 'strerror', None) or error}{similar_file(path)}"
        raise FormatError(f"{path}: cannot be read ({reason})") from error
    if not stat.S_ISREG(status.st_mode):
        raise FormatError(f"{path}: not a file" + (", but a folder" if stat.S_ISDIR(status.st_mode) else ""))
    if status.st_size == 0:
        raise FormatError(f"{path}: the file is empty")
    limits.check_bytes(status.st_size, path, "the file has")
    return status.st_size


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
    for start, what in OTHERS.items():
        if raw.startswith(start):
            raise FormatError(f"{path}: {what}")
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
            table = _parse(raw, parsing, roles.columns, texts, max(BLOCK, 8 * len(header)))
        except ValueError:  # a line longer than a block, or an error; a single thread knows its row
            with wrap_errors(path, "a table"):
                table = _parse(raw, parsing, roles.columns, texts, LARGEST_BLOCK)
        for field in table.schema:
            if str(field.type) == "binary":
                raise FormatError(f"{path}, column {truncate(field.name)}: not UTF-8 text; save the file as UTF-8")
        return table

    return Source(str(path), names, read)


def rows_to_arrow(rows: Sequence[Mapping[str, Any]], limits: Limits, where: str) -> Any:
    """Return values (text, numbers, booleans or ``None``) by column name as an Arrow table of texts, as in a CSV file.

    Absent names are missing values.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        raise FormatError(f"{where}: no node has a value in any column")
    limits.check("features", len(names), where)
    limits.check_bytes(len(names) * (COLUMN_BYTES + 8 * len(rows)), where, f"{len(names):,} columns take")
    columns = {name: [None if (v := row.get(name)) is None else str(v) for row in rows] for name in names}
    with wrap_errors(where, "a table"):
        return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


def _parse(raw: bytes, options: dict[str, Any], wanted: list[str] | None, texts: list[str], block: int) -> Any:
    reading = csv.ReadOptions(block_size=min(block, len(raw) + 1), use_threads=block < LARGEST_BLOCK)
    parsing = csv.ParseOptions(**options)
    converting = csv.ConvertOptions(include_columns=wanted, column_types=dict.fromkeys(texts, pa.string()))
    try:
        return csv.read_csv(pa.BufferReader(raw), reading, parsing, converting)
    except pa.ArrowInvalid as error:  # which counts the header as a row
        text = re.sub(r"Row #(\d+)", lambda row: f"row {int(row[1]) - 1}", str(error))
        text += f"; a value with {options['delimiter']!r} in it needs quotes" if "columns, got" in text else ""
        raise ValueError(text) from error


def parquet_source(path: Path, limits: Limits) -> Source:
    """Open a Parquet file; only its footer is read."""
    size = file_size(path, limits)
    with wrap_errors(path, "a Parquet file"), pq.ParquetFile(path, **BOUNDS) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows

    def read(roles: ColumnRoles) -> Any:
        limits.check("edges" if "source" in roles.names else "nodes", rows, path)
        limits.check_ratio(8 * rows * len(roles.columns), size, *EXPANDED, path)
        with wrap_errors(path, "a Parquet file"):
            table = _read_columns(path, size, schema, roles, limits)
        if table.num_rows != rows:
            raise FormatError(f"{path}: {table.num_rows:,} rows; its metadata claim {rows:,}")
        return table

    return Source(str(path), schema.names, read, index_columns((schema.metadata or {}).get(b"pandas")))


def _read_columns(path: Path, size: int, schema: Any, roles: ColumnRoles, limits: Limits) -> Any:
    """Read columns in batches, so that sizes are checked on the way; texts are dictionary-encoded."""

    def read(dictionaries: list[str]) -> Any:
        options = {**BOUNDS, "read_dictionary": dictionaries, "page_checksum_verification": True, "pre_buffer": False}
        batches, expanded = [], 0
        with pq.ParquetFile(path, **options) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=roles.columns):
                batch.validate(full=True)
                expanded += batch.nbytes
                limits.check_ratio(expanded, size, *EXPANDED, path)
                batches.append(batch)
            return pa.Table.from_batches(batches, None if batches else file.schema_arrow)

    try:
        return read([name for name in roles.text_columns if is_text(schema.field(name).type)])
    except (OSError, pa.ArrowException):  # not every encoding of texts can be read as a dictionary
        return read([])


def frame_source(frame: Any, where: str) -> Source:
    """Wrap an Arrow table, a pandas or polars frame, or any object with Arrow's C stream interface."""
    is_pandas = hasattr(frame, "iloc")
    if not hasattr(frame, "columns") or not (is_pandas or hasattr(frame, "__arrow_c_stream__")):
        raise InputError(
            f"{where}: a {type(frame).__name__}; a path, a pandas or polars DataFrame, or an Arrow table is required"
        )
    with wrap_errors(where, "a table"):
        if is_pandas:
            if not frame.columns.is_unique:
                raise ValueError(f"column {frame.columns[frame.columns.duplicated()][0]!r} occurs twice")
            frame = frame.copy(deep=False)
            for name in (name for name in frame.columns if frame[name].dtype == object):
                if _is_text_or_mixed(frame[name].tolist()):
                    frame[name] = frame[name].map(str, na_action="ignore")
        table = pa.table(frame)
    index = index_columns((table.schema.metadata or {}).get(b"pandas"))
    return Source(where, table.column_names, lambda roles: table.select(roles.columns), index)


def index_columns(metadata: str | bytes | None) -> tuple[str, ...]:
    """Names of the columns with the index of a pandas frame, from the metadata that pandas writes."""
    try:
        return tuple(name for name in json.loads(metadata or "{}")["index_columns"] if isinstance(name, str))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()


def _is_text_or_mixed(values: list[Any]) -> bool:
    try:
        return bool(pa.types.is_string(pa.array(values, from_pandas=True).type))
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return True
