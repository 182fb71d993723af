"""Convert Arrow tables to nodes and edges: the one path for all files and data frames."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ergnn.config.errors import FormatError, InputError, truncate
from ergnn.config.files import wrap_errors
from ergnn.data.tables.columns import EDGE_ROLES, TEXTS, Columns, Found, find_columns, find_node_columns
from ergnn.data.tables.limits import Limits
from ergnn.data.tables.node_tables import Coded, EdgeTable, NodeTable, canonical
from ergnn.data.tables.values import numbers, read_features, times, words

if TYPE_CHECKING:
    import pyarrow as pa

NO_LABEL = ("NaN", "nan", "NA", "<NA>", "null", "None")
ROW_BYTES = 100
"""Approximate memory of the id and label of a row."""


@dataclass(frozen=True)
class Source:
    """A table that has not been read yet; ``where`` is its name in messages, ``index`` columns are pandas' index."""

    where: str
    names: list[str]
    read: Callable[[Found], pa.Table]
    index: tuple[str, ...] = ()

    def nodes(self, columns: Columns, limits: Limits, num_features: int | None = None) -> NodeTable:
        """Read the table as nodes."""
        found = find_node_columns(self.names, self.index, columns, limits, self.where)
        table, texts = self._read(found, "nodes", limits)
        if not table.num_rows:
            raise FormatError(f"{self.where}: no nodes")
        limits.check_bytes(table.num_rows * (ROW_BYTES + 4 * len(found.features)), self.where)
        labels = texts.get("label")
        if labels is not None and not columns.keep_na_labels:
            labels = Coded([None if canonical(word) in NO_LABEL else word for word in labels.words], labels.codes)
        features, named = read_features(table, found, self.where, limits, num_features)
        return NodeTable(
            ids=texts["id"],
            labels=labels,
            time=times(table[found.roles["time"]], self.where) if "time" in found.roles else None,
            split=texts.get("split"),
            domain=texts.get("domain"),
            features=features,
            feature_names=tuple(name.strip() for name in found.features) if named else None,
            place=self._place,
        )

    def edges(self, columns: Columns, limits: Limits) -> EdgeTable:
        """Read the table as edges; there may be none."""
        found = find_columns(self.names, EDGE_ROLES, columns, self.where)
        table, texts = self._read(found, "edges", limits)
        weight = numbers(table[name], name, self.where) if (name := found.roles.get("weight")) else None
        return EdgeTable(**texts, weight=weight, place=self._place)

    def _place(self, row: int) -> str:
        return f"{self.where}, row {row + 1}"

    def _read(self, found: Found, what: str, limits: Limits) -> tuple[pa.Table, dict[str, Coded]]:
        """Read the table and convert its text columns."""
        table = self.read(found)
        limits.check(what, table.num_rows, self.where)
        limits.check_bytes(table.nbytes, self.where)
        texts = {role: words(table[n], n, self.where) for role, n in found.roles.items() if role in TEXTS}
        for role, coded in texts.items():
            _check_exact(table[found.roles[role]].type, coded, f"{self.where}, column {truncate(found.roles[role])}")
        return table, texts


def _check_exact(kind: pa.DataType, coded: Coded, where: str) -> None:
    """Refuse whole numbers that are floats and too large for them: they lost digits, so that two ids may be one."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_float = pa.types.is_floating(kind)
    bits = {16: 11, 32: 24, 64: 53}[kind.bit_width] if is_float else 53
    for word in (word for word in coded.words if word and (is_float or "." in word or "+" in word)):
        whole = canonical(word) or ""
        rounded = is_float or whole != word.strip()
        if rounded and whole.lstrip("-").isdecimal() and abs(int(whole)) >= 2**bits:
            raise FormatError(
                f"{where}: {truncate(word)} is a float, and whole numbers from 2^{bits} on lose digits as floats; "
                "write the column as integers or as text"
            )


def frame_source(frame: Any, where: str) -> Source:
    """Wrap an Arrow table, a pandas or polars frame, or any object with Arrow's C stream interface."""
    import pyarrow as pa

    is_pandas = hasattr(frame, "iloc")
    if not is_pandas and not hasattr(frame, "__arrow_c_stream__"):
        raise InputError(
            f"{where}: a {type(frame).__name__}; a path, a pandas or polars DataFrame, or an Arrow table is required"
        )
    with wrap_errors(where, "a table"):
        if is_pandas:
            frame = frame.copy(deep=False)
            for name in (name for name in frame.columns if frame[name].dtype == object):
                if pa.types.is_string(column_of(frame[name].tolist()).type):  # possibly mixed types
                    frame[name] = frame[name].map(str, na_action="ignore")
        table = pa.table(frame)
    index = index_columns((table.schema.metadata or {}).get(b"pandas"))
    return Source(where, table.column_names, lambda found: table.select(found.wanted), index)


def index_columns(metadata: str | bytes | None) -> tuple[str, ...]:
    """Names of the columns with the index of a pandas frame, from the metadata that pandas writes."""
    try:
        return tuple(name for name in json.loads(metadata or "{}")["index_columns"] if isinstance(name, str))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()


def column_of(values: list[Any]) -> Any:
    """Convert Python values to an Arrow column; mixed types become text."""
    import pyarrow as pa

    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.array([None if v is None or v != v else str(v) for v in values], pa.string())
