"""Convert columns of Arrow tables to texts, numbers, times and features."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse

from ergnn.config.errors import FormatError, truncate
from ergnn.config.files import wrap_errors
from ergnn.config.limits import Limits
from ergnn.data.tables.columns import CHOOSE, FEATURES, PREFIX, ColumnRoles
from ergnn.data.tables.node_tables import EncodedText, bad_row

MISSING = ("", "-", "--", "?", "#n/a", "na", "n/a", "<na>", "nan", "null", "none")
"""Texts, in lower case, that stand for a missing value."""
TYPES = (pa.int64(), pa.float64(), pa.timestamp("s", "UTC"), pa.timestamp("s"), pa.bool_())
"""Types of which texts may be, in this order."""
PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
PAIR = "^(?P<index>[0-9]{1,18}):(?P<value>.*)$"


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_time(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def is_numeric(kind: pa.DataType) -> bool:
    types = pa.types
    return any(fit(kind) for fit in (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal))


def plain(column: Any) -> Any:
    """Return an Arrow column without missing markers; texts that all are numbers or dates are converted."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not any(fits(column.type) for fits in (is_text, is_numeric, is_time, pa.types.is_null)):
        hint = f"; a list per node must be in a column {FEATURES!r}" if pa.types.is_nested(column.type) else ""
        raise TypeError(f"values are of type {column.type}; numbers, text or dates are required{hint}")
    if pa.types.is_floating(column.type):
        nan = pc.is_nan(column)
        return pc.if_else(nan, pa.scalar(None, column.type), column) if nan.true_count else column
    if not is_text(column.type):
        return column
    column = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    missing = pc.is_in(pc.utf8_lower(column), pa.array(MISSING, pa.large_string()))
    column = pc.if_else(missing, pa.scalar(None, pa.large_string()), column)
    for kind in TYPES:
        with suppress(pa.ArrowInvalid):
            return column.cast(kind)
    return column


def first_misfit(values: Any, fits: Callable[[pa.DataType], bool]) -> int:
    """Return the first row of a :func:`plain` column with which the rows so far are of no type that fits."""

    def ends(row: int) -> bool:
        rows = values[: row + 1]
        return rows.null_count <= row and not fits(plain(rows).type)

    return bisect_left(range(len(values)), True, key=ends)


def encode_text(column: Any, name: str, where: object) -> EncodedText:
    """Convert a column to text; each distinct value is decoded once."""
    kind = column.type
    with wrap_errors(f"{where}, column {truncate(name)}", "text"):
        if pa.types.is_dictionary(kind):
            column = column.unify_dictionaries().combine_chunks()
        elif pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            raise TypeError(f"values are of type {kind}; text or numbers are required")
        else:
            column = (column.cast(pa.large_string()) if is_text(kind) else column).combine_chunks().dictionary_encode()
        values = column.dictionary
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        texts = values.cast(pa.large_string()).to_pylist()
        codes = _to_array(column.indices.fill_null(len(texts)) if column.null_count else column.indices)
    return EncodedText([*texts, *([None] if column.null_count else [])], codes)


def _to_array(column: Any) -> np.ndarray:
    """Return the numbers of an Arrow array; pyarrow's own conversion imports pandas, which takes half a second."""
    return np.asarray(column) if column.null_count or not len(column) else np.from_dlpack(column)


def to_floats(column: Any, name: str, where: object, *, rows: np.ndarray | None = None, hint: str = "") -> np.ndarray:
    """Convert a column to finite ``float32``; booleans are 0 and 1, and text is parsed.

    ``rows`` are the rows of the values, if these are not their positions; ``hint`` is the end of messages.
    """

    def refuse(at: int, problem: str) -> FormatError:
        return bad_row(where, at if rows is None else rows[at], f"{problem}; a finite number is required{hint}", name)

    with wrap_errors(f"{where}, column {truncate(name)}", "numbers"), np.errstate(over="ignore"):
        values = plain(column)
        if values.null_count:
            raise refuse(pc.index(values.is_null(), True).as_py(), "the value is missing")
        if is_text(values.type):
            row = first_misfit(values, is_numeric)
            raise refuse(row, f"{truncate(values[row].as_py())} is not a number")
        if len(values) and not is_numeric(values.type):
            raise TypeError(f"values are of type {values.type}; numbers are required{hint}")
        wide = _to_array(values.cast(pa.float64(), safe=False))
        out = wide.astype(np.float32)
    for bad in np.flatnonzero(~np.isfinite(out)):
        raise refuse(int(bad), f"{wide[bad]}" + (" does not fit into 32 bits" if np.isfinite(wide[bad]) else ""))
    return out


def to_times(column: Any, where: object) -> np.ndarray:
    """Convert a column to numbers; dates become seconds since 1970 (UTC unless a zone is given), missing values NaN."""
    with wrap_errors(f"{where}, column 'time'", "times"):
        values = plain(column)
        if is_text(values.type):
            bad = first_misfit(values, lambda kind: is_numeric(kind) or is_time(kind))
            problem = "neither a number nor a date such as 2024-05-31 or 2024-05-31T12:00:00Z, as in all other rows"
            raise bad_row(where, bad, f"{truncate(values[bad].as_py())} is {problem}", "time")
        if is_time(values.type):
            values = values if pa.types.is_timestamp(values.type) else values.cast(pa.timestamp("ms"))
            return np.asarray(values.cast(pa.int64()).cast(pa.float64(), safe=False)) / PER_SECOND[values.type.unit]
        return np.asarray(values.cast(pa.float64(), safe=False) if values.null_count else values)


def read_features(
    table: pa.Table, roles: ColumnRoles, where: str, limits: Limits, width: int | None = None
) -> dict[str, Any]:
    """Return ``features``, ``feature_names`` and ``columns`` of a :class:`~ergnn.data.tables.NodeTable`.

    ``width`` is the required number of features, if any; also the width of sparse text.
    """
    if roles.single:
        name, column = roles.features[0], table[roles.features[0]].combine_chunks()
        column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        if pa.types.is_nested(column.type):
            return {"features": _lists(column, name, where, limits, width)}
        if is_text(column.type):
            column = pc.utf8_trim_whitespace(column.cast(pa.large_string()).fill_null(""))
            if ":" in next((text for text in column.to_pylist() if text), ":"):
                return {"features": _sparse(column, name, where, limits, width)}
    columns, values = {name.strip(): table[name] for name in roles.features}, dict[str, Any]()
    of_any_kind = bool(columns) and not roles.single and not next(iter(columns)).lower().startswith(PREFIX)
    for name, column in columns.items():
        what = "numbers, dates, categories or text" if of_any_kind else "numbers"
        with wrap_errors(f"{where}, column {truncate(name)}", what):
            values[name] = plain(column)
    if of_any_kind and not all(map(_is_number, values.values())):
        return {"columns": columns}
    if width is not None and len(columns) != width:
        raise FormatError(f"{where}: {len(columns):,} feature columns; {width:,} are required")
    features = np.empty((table.num_rows, len(columns)), np.float32)
    for i, (name, column) in enumerate(values.items()):
        ready = column.type == pa.float32() and _is_number(column)
        hint = f"; if this is not a feature, {CHOOSE}"
        features[:, i] = _to_array(column) if ready else to_floats(column, name, where, hint=hint)
    names = tuple(columns) if columns else None
    return {"features": features, "feature_names": names, "columns": columns if of_any_kind else None}


def _is_number(values: Any) -> bool:
    """Return whether every value of a :func:`plain` column is a finite number or a boolean, and none is missing."""
    if values.null_count or not pa.types.is_floating(values.type):
        return not values.null_count and (pa.types.is_boolean(values.type) or pa.types.is_integer(values.type))
    return bool(np.isfinite(_to_array(values)).all())


def _lists(column: Any, name: str, where: str, limits: Limits, width: int | None) -> np.ndarray:
    if column.null_count:
        raise bad_row(where, pc.index(column.is_null(), True).as_py(), "no list", name)
    with wrap_errors(f"{where}, column {truncate(name)}", "lists of numbers"):
        lengths, flat = np.asarray(pc.list_value_length(column)), pc.list_flatten(column)
    size = int(lengths[0]) if width is None else width
    for row in np.flatnonzero(lengths != size):
        raise bad_row(where, int(row), f"{lengths[row]:,} features; {size:,} are required", name)
    limits.check("features", size, where)
    rows = np.repeat(np.arange(len(lengths)), size)
    return to_floats(flat, name, where, rows=rows).reshape(len(lengths), size)


def _sparse(column: Any, name: str, where: str, limits: Limits, width: int | None) -> scipy.sparse.csr_matrix:
    """Parse texts such as ``3:0.5 17:1``; empty text is a row of zeros."""
    pairs = pc.utf8_split_whitespace(column)
    counts = np.where(np.asarray(pc.equal(column, "")), 0, np.asarray(pc.list_value_length(pairs)))
    rows = np.repeat(np.arange(len(counts)), counts)
    flat = pairs.flatten()
    flat = flat.filter(pc.not_equal(flat, ""))

    halves = pc.extract_regex(flat, PAIR)
    bad = pc.index(halves.is_null(), True).as_py()
    if bad >= 0:
        problem = f"{truncate(flat[bad].as_py())}; sparse features are index:value pairs, indices from 0"
        raise bad_row(where, rows[bad], problem, name)
    index = np.asarray(halves.field("index").cast(pa.int64()))
    values = to_floats(halves.field("value"), name, where, rows=rows)
    most = limits.features if width is None else width
    if index.size and index.max() >= most:
        problem = f"index {index.max()} is out of range; 0 to {most - 1} are allowed"
        raise bad_row(where, rows[index.argmax()], problem, name)
    ends = np.concatenate([[0], np.cumsum(counts)])
    shape = (len(counts), int(index.max(initial=-1)) + 1 if width is None else width)
    matrix = scipy.sparse.csr_matrix((values, index, ends), shape=shape)
    matrix.sort_indices()
    for at in np.flatnonzero((np.diff(matrix.indices) == 0) & (np.diff(rows) == 0)):
        raise bad_row(where, rows[at], f"index {matrix.indices[at]} occurs twice", name)
    return matrix
