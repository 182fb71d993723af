"""Features from Arrow columns: one column per feature, or one column of lists or of sparse text."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from ergnn.data.formats.columns import Found
from ergnn.data.formats.limits import Limits, truncate
from ergnn.data.formats.values import is_text, numbers
from ergnn.errors import FormatError

PAIR = "^[0-9]{1,18}:"


def read_features(table: Any, found: Found, where: str, limits: Limits, width: int | None) -> tuple[Any, bool]:
    """Features of the table's nodes, dense or CSR, and whether each has a name.

    Args:
        table: the Arrow table.
        found: its columns.
        where: the file.
        limits: what it may hold.
        width: the number of features that is required, if any; sparse text then has so many.
    """
    import pyarrow as pa

    if found.single:
        name = found.features[0]
        column = table[name]
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if is_text(kind):
            column = _trimmed(column)
            first = next((text for text in column.to_pylist() if text), ":")
            if first.startswith("["):
                return _lists(_split_lists(column, name, where), name, where, limits, width), False
            if ":" in first:
                return _sparse(column, name, where, limits, width), False
        elif pa.types.is_nested(kind):
            return _lists(column, name, where, limits, width), False
    if width is not None and len(found.features) != width:
        raise FormatError(f"{where}: {len(found.features):,} feature columns; {width:,} are required")
    if not found.features:
        return None, False
    out = np.empty((len(found.features), table.num_rows), np.float32)
    with np.errstate(over="ignore"):  # what does not fit into 32 bits is refused later, with its row
        for i, name in enumerate(found.features):
            out[i] = numbers(table[name], name.strip(), where)
    return np.ascontiguousarray(out.T), True


def _trimmed(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = pc.utf8_trim_whitespace(column.cast(pa.large_string())).fill_null("")
    return _one_chunk(column)


def _one_chunk(column: Any) -> Any:
    import pyarrow as pa

    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _split_lists(column: Any, name: str, where: str) -> Any:
    """Texts such as ``[0.1, 2]`` as lists of texts."""
    import pyarrow.compute as pc

    fits = pc.and_(pc.starts_with(column, "["), pc.ends_with(column, "]"))
    bad = fits.index(False).as_py()
    if bad >= 0:
        raise FormatError(
            f"{where}, row {bad + 1}, column {truncate(name)}: {truncate(column[bad].as_py())}; other rows have lists "
            "such as [0.1, 2]"
        )
    return pc.split_pattern(pc.utf8_slice_codeunits(column, 1, -1), ",")


def _lists(column: Any, name: str, where: str, limits: Limits, width: int | None) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _one_chunk(column)
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or
            pa.types.is_fixed_size_list(column.type)):
        raise FormatError(f"{where}, column {truncate(name)}: values are of type {column.type}; lists are required")
    if column.null_count:
        raise FormatError(f"{where}, row {column.is_null().index(True).as_py() + 1}, column {truncate(name)}: no list")
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    flat = column.flatten()
    if len(flat) == len(lengths) and is_text(flat.type) and not pc.any(pc.not_equal(flat, "")).as_py():
        lengths, flat = lengths * 0, flat.slice(0, 0)  # "[]" in each row
    size = int(lengths[0]) if width is None else width
    bad = np.flatnonzero(lengths != size)
    if bad.size:
        raise FormatError(
            f"{where}, row {bad[0] + 1}, column {truncate(name)}: {lengths[bad[0]]:,} features; {size:,} are required"
        )
    limits.check("features", size, where)
    values = numbers(flat, name, where, row_length=max(size, 1))
    with np.errstate(over="ignore"):
        return values.astype(np.float32).reshape(len(lengths), size)


def _sparse(column: Any, name: str, where: str, limits: Limits, width: int | None) -> scipy.sparse.csr_matrix:
    """Texts such as ``3:0.5 17:1``; empty text is a row of zeros."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pairs = pc.utf8_split_whitespace(column)
    counts = pc.list_value_length(pairs).to_numpy(zero_copy_only=False).astype(np.int64)
    counts[pc.equal(column, "").to_numpy(zero_copy_only=False)] = 0
    flat = pairs.flatten()
    flat = flat.filter(pc.not_equal(flat, ""))
    rows = np.repeat(np.arange(len(counts)), counts)

    def refuse(at: int, said: str) -> FormatError:
        return FormatError(f"{where}, row {rows[at] + 1}, column {truncate(name)}: {said}")

    bad = pc.match_substring_regex(flat, PAIR).index(False).as_py()
    if bad >= 0:
        raise refuse(bad, f"{truncate(flat[bad].as_py())}; sparse features are index:value pairs, indices from 0")
    halves = pc.split_pattern(flat, ":", max_splits=1).flatten()
    index = halves.take(pa.array(np.arange(0, len(halves), 2))).cast(pa.int64()).to_numpy(zero_copy_only=False)
    values = numbers(halves.take(pa.array(np.arange(1, len(halves), 2))), name, where, rows=rows)
    most = limits.features if width is None else width
    if index.size and index.max() >= most:
        raise refuse(int(index.argmax()), f"index {index.max()} is out of range; 0 to {most - 1} are allowed")
    order = np.lexsort((index, rows))
    index, values = index[order], values[order]
    twice = np.flatnonzero((np.diff(index) == 0) & (np.diff(rows) == 0))
    if twice.size:
        raise refuse(int(twice[0]), f"index {index[twice[0]]} occurs twice")
    size = width if width is not None else int(index.max(initial=-1)) + 1
    ends = np.concatenate([[0], np.cumsum(counts)])
    with np.errstate(over="ignore"):
        return scipy.sparse.csr_matrix((values.astype(np.float32), index, ends), shape=(len(counts), size))
