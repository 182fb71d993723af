"""Features from Arrow columns: one column per feature, or one column of lists or of sparse text."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from ergnn.data.formats.columns import CHOOSE, Found
from ergnn.data.formats.limits import Limits, truncate
from ergnn.data.formats.values import is_text, numbers, one_chunk
from ergnn.errors import FormatError

PAIR = "^[0-9]{1,18}:"


def read_features(table: Any, found: Found, where: str, limits: Limits, width: int | None) -> tuple[Any, bool]:
    """Features of the table's nodes, dense or CSR, and whether each has a name.

    Args:
        table: the Arrow table.
        found: its columns.
        where: the file.
        limits: what it may hold.
        width: the number of features that is required, if any; sparse text then has this many.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if found.single:
        name, column = found.features[0], one_chunk(table[found.features[0]])
        column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        if pa.types.is_nested(column.type):
            return _lists(column, name, where, limits, width), False
        if is_text(column.type):
            column = pc.utf8_trim_whitespace(column.cast(pa.large_string()).fill_null(""))
            if ":" in next((text for text in column.to_pylist() if text), ":"):
                return _sparse(column, name, where, limits, width), False
    if width is not None and len(found.features) != width:
        raise FormatError(f"{where}: {len(found.features):,} feature columns; {width:,} are required")
    out = np.empty((len(found.features), table.num_rows), np.float32)
    with np.errstate(over="ignore"):  # values beyond 32 bits are refused later, with their row
        for i, name in enumerate(found.features):
            out[i] = numbers(table[name], name.strip(), where, hint=f"; if this is not a feature, {CHOOSE}")
    return np.ascontiguousarray(out.T), bool(found.features)


def _lists(column: Any, name: str, where: str, limits: Limits, width: int | None) -> np.ndarray:
    import pyarrow.compute as pc

    if column.null_count:
        row = pc.index(column.is_null(), True).as_py() + 1
        raise FormatError(f"{where}, row {row}, column {truncate(name)}: no list")
    try:
        lengths, flat = np.asarray(pc.list_value_length(column)), pc.list_flatten(column)
    except NotImplementedError:
        raise FormatError(f"{where}, column {truncate(name)}: {column.type}; lists of numbers are required") from None
    size = int(lengths[0]) if width is None else width
    for row in np.flatnonzero(lengths != size):
        raise FormatError(
            f"{where}, row {row + 1}, column {truncate(name)}: {lengths[row]:,} features; {size:,} are required"
        )
    limits.check("features", size, where)
    values = numbers(flat, name, where, rows=np.repeat(np.arange(len(lengths)), size))
    with np.errstate(over="ignore"):
        return values.astype(np.float32).reshape(len(lengths), size)


def _sparse(column: Any, name: str, where: str, limits: Limits, width: int | None) -> scipy.sparse.csr_matrix:
    """Texts such as ``3:0.5 17:1``; empty text is a row of zeros."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pairs = pc.utf8_split_whitespace(column)
    counts = np.where(np.asarray(pc.equal(column, "")), 0, np.asarray(pc.list_value_length(pairs)))
    rows = np.repeat(np.arange(len(counts)), counts)
    flat = pairs.flatten()
    flat = flat.filter(pc.not_equal(flat, ""))

    def refuse(at: int, said: str) -> FormatError:
        return FormatError(f"{where}, row {rows[at] + 1}, column {truncate(name)}: {said}")

    bad = pc.index(pc.match_substring_regex(flat, PAIR), False).as_py()
    if bad >= 0:
        raise refuse(bad, f"{truncate(flat[bad].as_py())}; sparse features are index:value pairs, indices from 0")
    halves = pc.split_pattern(flat, ":", max_splits=1).flatten()
    even = np.arange(0, len(halves), 2)
    index = np.asarray(halves.take(pa.array(even)).cast(pa.int64()))
    values = numbers(halves.take(pa.array(even + 1)), name, where, rows=rows)
    most = limits.features if width is None else width
    if index.size and index.max() >= most:
        raise refuse(int(index.argmax()), f"index {index.max()} is out of range; 0 to {most - 1} are allowed")
    order = np.lexsort((index, rows))
    index = index[order]
    for at in np.flatnonzero((np.diff(index) == 0) & (np.diff(rows) == 0)):
        raise refuse(int(at), f"index {index[at]} occurs twice")
    ends = np.concatenate([[0], np.cumsum(counts)])
    shape = (len(counts), int(index.max(initial=-1)) + 1 if width is None else width)
    with np.errstate(over="ignore"):
        return scipy.sparse.csr_matrix((values[order].astype(np.float32), index, ends), shape=shape)
