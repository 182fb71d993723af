"""Convert Arrow tables to nodes and edges: the one path for all files and data frames."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ergnn.config.errors import FormatError, InputError, truncate
from ergnn.config.files import wrap_errors
from ergnn.data.tables.columns import EDGE_ROLES, PREFIX, TEXTS, ColumnRoles, Columns, find_columns, find_node_columns
from ergnn.data.tables.kinds import is_number
from ergnn.data.tables.limits import Limits
from ergnn.data.tables.node_tables import EdgeTable, EncodedText, NodeTable, canonical
from ergnn.data.tables.values import encode_text, to_features, to_floats, to_times

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
    read: Callable[[ColumnRoles], pa.Table]
    index: tuple[str, ...] = ()

    def nodes(self, columns: Columns, limits: Limits, num_features: int | None = None) -> NodeTable:
        """Read the table as nodes."""
        roles = find_node_columns(self.names, self.index, columns, limits, self.where)
        table, texts = self._read(roles, "nodes", limits)
        if not table.num_rows:
            raise FormatError(f"{self.where}: no nodes")
        limits.check_bytes(table.num_rows * (ROW_BYTES + 4 * len(roles.features)), self.where)
        labels = texts.get("label")
        if labels is not None and not columns.keep_na_labels:
            labels = labels._replace(values=[None if canonical(text) in NO_LABEL else text for text in labels.values])
        return NodeTable(
            ids=texts["id"],
            labels=labels,
            time=to_times(table[roles.names["time"]], self.where) if "time" in roles.names else None,
            split=texts.get("split"),
            domain=texts.get("domain"),
            row_name=self._row_name,
            **read_columns(table, roles, self.where, limits, num_features),
        )

    def edges(self, columns: Columns, limits: Limits) -> EdgeTable:
        """Read the table as edges; there may be none."""
        roles = find_columns(self.names, EDGE_ROLES, columns, self.where)
        table, texts = self._read(roles, "edges", limits)
        weight = to_floats(table[name], name, self.where) if (name := roles.names.get("weight")) else None
        used = {*roles.columns, *self.index}
        ignored = [name for name in self.names if name not in used and name.strip() not in columns.ignore]
        return EdgeTable(**texts, weight=weight, row_name=self._row_name, ignored=ignored)

    def _row_name(self, row: int) -> str:
        return f"{self.where}, row {row + 1}"

    def _read(self, roles: ColumnRoles, what: str, limits: Limits) -> tuple[pa.Table, dict[str, EncodedText]]:
        """Read the table and convert its text columns."""
        table = self.read(roles)
        limits.check(what, table.num_rows, self.where)
        limits.check_bytes(table.nbytes, self.where)
        texts = {role: encode_text(table[n], n, self.where) for role, n in roles.names.items() if role in TEXTS}
        for role, text in texts.items():
            _check_exact(table[roles.names[role]].type, text, f"{self.where}, column {truncate(roles.names[role])}")
        return table, texts


def read_columns(
    table: pa.Table, roles: ColumnRoles, where: str, limits: Limits, num_features: int | None = None
) -> dict[str, Any]:
    """Return ``features``, ``feature_names`` and ``columns`` of a :class:`NodeTable`."""
    columns, features, named = None, None, False
    if roles.features and not roles.single and not roles.features[0].strip().lower().startswith(PREFIX):
        columns = {name.strip(): table[name] for name in roles.features}
    if columns is None or all(map(is_number, columns.values())):
        features, named = to_features(table, roles, where, limits, num_features)
    names = tuple(name.strip() for name in roles.features) if named else None
    return {"features": features, "feature_names": names, "columns": columns}


def _check_exact(kind: pa.DataType, column: EncodedText, where: str) -> None:
    """Refuse whole numbers that are floats and too large for them: they lost digits, so that two ids may be one."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_float = pa.types.is_floating(kind)
    bits = {16: 11, 32: 24, 64: 53}[kind.bit_width] if is_float else 53
    for text in (text for text in column.values if text and (is_float or "." in text or "+" in text)):
        whole = canonical(text) or ""
        rounded = is_float or whole != text.strip()
        if rounded and whole.lstrip("-").isdecimal() and abs(int(whole)) >= 2**bits:
            raise FormatError(
                f"{where}: {truncate(text)} is a float, and whole numbers from 2^{bits} on lose digits as floats; "
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
    import pyarrow as pa

    try:
        return bool(pa.types.is_string(pa.array(values, from_pandas=True).type))
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return True
