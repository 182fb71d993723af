"""Columns of Arrow tables as texts, numbers and times."""

from __future__ import annotations

import math
import re
from datetime import datetime, timezone
from typing import Any

import numpy as np

from ergnn.data.formats.boundary import wrap_errors
from ergnn.data.formats.limits import truncate
from ergnn.data.formats.tables import Coded
from ergnn.errors import FormatError

NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
DATE = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?\s?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
HINT = "name the feature columns with --feature-columns, or leave this one out with --ignore-column"


def words(column: Any, name: str, where: object) -> Coded:
    """A column as text; each distinct value is decoded once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types, kind = pa.types, column.type
    with wrap_errors(f"{where}, column {truncate(name)}", "text"):
        if types.is_dictionary(kind):
            column = column.unify_dictionaries() if isinstance(column, pa.ChunkedArray) else column
        else:
            column = column.dictionary_encode()
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if isinstance(column, pa.ChunkedArray):  # one without chunks
            return Coded([], np.empty(0, np.int64))
        values, kind = column.dictionary, column.type.value_type
        if types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind):
            raise FormatError(
                f"{where}, column {truncate(name)}: values are of type {kind}; text or numbers are required"
            )
        if types.is_floating(kind):
            values = pc.if_else(pc.is_nan(values), pa.scalar(None, kind), values)
        texts = values.to_pylist() if types.is_string(kind) else values.cast(pa.string()).to_pylist()
        codes = column.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False).astype(np.int64)
    return Coded([*texts, None], codes)


def numbers(column: Any, name: str, where: object, *, row_length: int = 1, rows: Any = None) -> np.ndarray:
    """Finite numbers, as ``float64``; booleans are 0 and 1, and text is parsed.

    Args:
        column: the Arrow column.
        name: its name.
        where: the file.
        row_length: values per row of the file.
        rows: the row of each value, where that is not regular.
    """
    import pyarrow as pa

    types, kind = pa.types, column.type
    if types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type

    def refuse(at: int, found: str) -> FormatError:
        row = at // row_length if rows is None else int(rows[at])
        return FormatError(f"{where}, row {row + 1}, column {truncate(name)}: {found}; a finite number is required")

    if is_text(kind):
        column, bad = _parsed(column)
        if bad is not None:
            raise refuse(bad, f"{truncate(column[bad].as_py())} is not a number (if it is text: {HINT})")
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind)):
        if not types.is_null(kind):
            raise FormatError(
                f"{where}, column {truncate(name)}: values are of type {kind}; numbers are required ({HINT})"
            )
    with wrap_errors(f"{where}, column {truncate(name)}", "numbers"):
        if column.null_count:
            raise refuse(column.is_null().index(True).as_py(), "the value is missing")
        if types.is_boolean(column.type):
            column = column.cast(pa.uint8())
        values = column.cast(pa.float64(), safe=False).to_numpy()
    if not math.isfinite(values.sum()):
        bad_rows = np.flatnonzero(~np.isfinite(values))
        if bad_rows.size:
            raise refuse(int(bad_rows[0]), str(values[bad_rows[0]]))
    return values


def is_text(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _parsed(column: Any) -> tuple[Any, int | None]:
    """Text as numbers or booleans; or else the text, and the place of the first that is neither."""
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(column.cast(pa.string()))
    for kind in (pa.float64(), pa.bool_()):
        try:
            return trimmed.cast(kind), None
        except pa.ArrowInvalid:
            pass
    fits = pc.match_substring_regex(trimmed, NUMBER)
    return column, max(fits.index(False).as_py(), 0)


def times(column: Any, where: object) -> np.ndarray:
    """Numbers, or seconds since 1970 for dates and times (UTC unless a zone is given); NaN where there is none."""
    import pyarrow as pa

    types, kind = pa.types, column.type
    if types.is_dictionary(kind) or is_text(kind):
        return _parsed_times(words(column, "time", where), where)
    per_second = 1.0
    with wrap_errors(f"{where}, column 'time'", "times"):
        if types.is_timestamp(kind):
            column, per_second = column.cast(pa.int64()), float(UNITS[kind.unit])
        elif types.is_date(kind):
            column, per_second = column.cast(pa.date64()).cast(pa.int64()), 1000.0
        elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind)):
            raise FormatError(f"{where}, column 'time': values are of type {kind}; numbers or dates are required")
        if types.is_null(kind) or column.null_count:
            column = column.cast(pa.float64(), safe=False)
        values: np.ndarray = column.to_numpy()
    return values if per_second == 1.0 and values.dtype.kind in "iu" else values / per_second


def _parsed_times(column: Coded, where: object) -> np.ndarray:
    """Times that stand there as text: numbers or dates, and not both."""
    kinds, values = [], []
    for word in column.words:
        kind, value = "", math.nan
        if word is not None and word.strip():
            try:
                kind, value = "number", float(word)
            except ValueError:
                try:
                    kind, value = "date", seconds(word)
                except ValueError:
                    kind = "neither a number nor a date such as 2024-05-31 or 2024-05-31T12:00:00Z"
        kinds.append(kind)
        values.append(value)
    first = next((kinds[code] for code in column.codes if kinds[code]), "")
    for code, kind in enumerate(kinds):
        if kind and (kind != first or kind.startswith("neither")):
            row = int(np.flatnonzero(column.codes == code)[0])
            said = kind if kind.startswith("neither") else f"a {kind}; the column began with a {first}"
            raise FormatError(f"{where}, row {row + 1}, column 'time': {truncate(column.words[code])} is {said}")
    out = np.array(values, dtype=np.float64)[column.codes]
    return out.astype(np.int64) if len(out) and (np.abs(out) < 2**53).all() and (out % 1 == 0).all() else out


def seconds(text: str) -> float:
    """Seconds since 1970 of a date or time in ISO 8601, UTC unless a zone is given; else ``ValueError``."""
    found = DATE.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    day, minute, second, fraction, zone = found.groups()
    zone = "+00:00" if zone in (None, "Z") else zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
    moment = datetime.fromisoformat(f"{day}T{minute or '00:00'}:{second or '00'}{zone}")
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds() + float(f"0.{fraction or 0}")
