"""Columns of Arrow arrays as text, numbers and times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ergnn.data.formats.boundary import foreign
from ergnn.data.formats.limits import shown
from ergnn.data.formats.values import Times
from ergnn.errors import FormatError

UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def texts(column: Any, name: str, path: Path, first: int) -> list[str | None]:
    """Text of each value, ``None`` for a missing or empty one; whole numbers become their digits."""
    import pyarrow.types as types

    kind = column.type
    if types.is_dictionary(kind):
        words = texts(column.dictionary, name, path, first)
        return [None if i is None else words[i] for i in column.indices.to_pylist()]
    if types.is_string(kind) or types.is_large_string(kind) or str(kind) == "string_view":
        with foreign(f"{path}, column {shown(name)}", "UTF-8 text"):
            return [text or None for text in column.to_pylist()]
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_null(kind):
        return [None if value is None else str(value) for value in column.to_pylist()]
    if types.is_floating(kind):
        return [_whole(value, name, path, first + i) for i, value in enumerate(column.to_pylist())]
    raise FormatError(f"{path}, column {shown(name)}: values are of type {kind}; text or whole numbers are needed")


def _whole(value: float | None, name: str, path: Path, row: int) -> str | None:
    """Whole numbers that a table with gaps made into floats; NaN is such a gap."""
    if value is None or value != value:
        return None
    if not float(value).is_integer():
        raise FormatError(f"{path}, row {row + 1}, column {shown(name)}: {value} is neither text nor a whole number")
    return str(int(value))


def numbers(column: Any, name: str, path: Path, first: int, row_of: bool = True) -> np.ndarray:
    """Finite numbers; ``row_of``: one a row of the file (else all belong to one row)."""
    import pyarrow as pa
    import pyarrow.types as types

    kind = column.type
    if types.is_dictionary(kind):
        kind = kind.value_type
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise FormatError(
            f"{path}, column {shown(name)}: values are of type {kind}; numbers are needed (name the columns with "
            "features feature_…, and all others are left alone)"
        )
    with foreign(f"{path}, column {shown(name)}", "numbers"):
        wide = pa.float64() if not types.is_boolean(kind) else pa.uint8()
        values = column.cast(wide, safe=False).to_numpy(zero_copy_only=False).astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        at = int(bad[0])
        found = "nothing" if not column[at].is_valid else values[at]
        raise FormatError(
            f"{path}, row {first + (at if row_of else 0) + 1}, column {shown(name)}: {found}"
            f"{'' if row_of else f' at place {at + 1}'}; a finite number is needed"
        )
    return values


def times(column: Any, path: Path, first: int) -> np.ndarray:
    """Numbers, or seconds since 1970 of dates and times (UTC where no zone is named); NaN where there is none."""
    import pyarrow as pa
    import pyarrow.types as types

    kind = column.type
    if types.is_dictionary(kind) or types.is_string(kind) or types.is_large_string(kind):
        parsed = Times()
        for i, text in enumerate(texts(column, "time", path, first)):
            parsed.add(text or "", f"{path}, row {first + i + 1}")
        return parsed.array()
    per_second = 1.0
    with foreign(f"{path}, column 'time'", "times"):
        if types.is_timestamp(kind):
            column, per_second = column.cast(pa.int64()), float(UNITS[kind.unit])
        elif types.is_date(kind):
            column, per_second = column.cast(pa.date64()).cast(pa.int64()), 1000.0
        elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind)):
            raise FormatError(f"{path}, column 'time': values are of type {kind}; numbers or dates are needed")
        if types.is_null(kind) or column.null_count:
            column = column.cast(pa.float64(), safe=False)
        values = column.to_numpy(zero_copy_only=False)
    return values if per_second == 1.0 and values.dtype.kind in "iu" else values / per_second
