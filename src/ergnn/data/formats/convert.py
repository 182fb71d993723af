"""Arrow tables, from any file or frame, as nodes and edges: the one way in for all tabular data."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ergnn.data.formats.boundary import wrap_errors
from ergnn.data.formats.columns import Columns, Found, find_edge_columns, find_node_columns
from ergnn.data.formats.features import read_features
from ergnn.data.formats.limits import Limits
from ergnn.data.formats.tables import Coded, EdgeTable, NodeTable, canonical
from ergnn.data.formats.values import numbers, times, words
from ergnn.errors import FormatError, InputError

if TYPE_CHECKING:
    import pyarrow as pa

NO_LABEL = ("NaN", "nan", "NA", "null", "None")
ROW_BYTES = 100
"""What the ids and labels of a row take in memory, more or less."""


@dataclass(frozen=True)
class Source:
    """A table that has not been read yet.

    Args:
        where: what it is called in messages.
        names: names of its columns.
        index: those that were the index of a pandas frame.
        read: reads the columns that were found.
    """

    where: str
    names: list[str]
    index: list[str]
    read: Callable[[Found], pa.Table]

    def place(self, row: int) -> str:
        return f"{self.where}, row {row + 1}"


def read_node_source(source: Source, columns: Columns, limits: Limits, num_features: int | None = None) -> NodeTable:
    """Nodes of a table."""
    found = find_node_columns(source.names, source.index, columns, limits, source.where)
    table = _read(source, found, "nodes", limits)
    if not table.num_rows:
        raise FormatError(f"{source.where}: no nodes")
    limits.check_bytes(table.num_rows * (ROW_BYTES + 4 * len(found.features)), source.where)
    texts = {role: words(table[found.roles[role]], role, source.where) for role in found.roles if role != "time"}
    if "label" in texts and not columns.keep_na_labels:
        labels = texts["label"]
        texts["label"] = Coded([None if canonical(w) in NO_LABEL else w for w in labels.words], labels.codes)
    features, named = read_features(table, found, source.where, limits, num_features)
    return NodeTable(
        ids=texts["id"],
        labels=texts.get("label"),
        time=times(table[found.roles["time"]], source.where) if "time" in found.roles else None,
        split=texts.get("split"),
        domain=texts.get("domain"),
        features=features,
        feature_names=tuple(name.strip() for name in found.features) if named else None,
        place=source.place,
    )


def read_edge_source(source: Source, columns: Columns, limits: Limits) -> EdgeTable:
    """Edges of a table; there may be none."""
    found = find_edge_columns(source.names, columns, source.where)
    table = _read(source, found, "edges", limits)
    roles = found.roles
    return EdgeTable(
        source=words(table[roles["source"]], "source", source.where),
        target=words(table[roles["target"]], "target", source.where),
        weight=numbers(table[roles["weight"]], roles["weight"], source.where) if "weight" in roles else None,
        time=times(table[roles["time"]], source.where) if "time" in roles else None,
        place=source.place,
    )


def _read(source: Source, found: Found, what: str, limits: Limits) -> pa.Table:
    table = source.read(found)
    limits.check(what, table.num_rows, source.where)
    limits.check_bytes(table.nbytes, source.where)
    return table


def frame_source(frame: Any, where: str) -> Source:
    """An Arrow table, a pandas or polars frame, or anything else with Arrow's C stream interface."""
    import pyarrow as pa

    if type(frame).__module__.split(".")[0] == "pandas" and hasattr(frame, "iloc"):
        with wrap_errors(where, "a pandas DataFrame"):
            try:
                table = pa.Table.from_pandas(frame)
            except (pa.ArrowInvalid, pa.ArrowTypeError):  # values of several types in one column
                mixed = [name for name in frame.columns if frame[name].dtype == object]
                texts = {name: frame[name].map(str, na_action="ignore") for name in mixed}
                table = pa.Table.from_pandas(frame.assign(**texts))
    elif hasattr(frame, "__arrow_c_stream__") or isinstance(frame, dict):
        with wrap_errors(where, "an Arrow table"):
            table = pa.table(frame)
    else:
        raise InputError(
            f"{where}: a {type(frame).__name__}; a path, a pandas or polars DataFrame, or an Arrow table is required"
        )
    names = [str(name) for name in table.column_names]
    index = index_columns((table.schema.metadata or {}).get(b"pandas"))
    return Source(where, names, index, lambda found: table.select(found.wanted))


def index_columns(metadata: bytes | None) -> list[str]:
    """Columns that hold the index of a pandas frame, by the metadata that pandas writes."""
    try:
        found = json.loads(metadata or b"{}").get("index_columns", [])
        return [name for name in found if isinstance(name, str)]
    except (ValueError, AttributeError, TypeError, RecursionError):
        return []


def named_columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Arrow columns of objects with values by name; a value that is absent is missing."""
    import pyarrow as pa

    out = {}
    for name in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(name) for row in rows]
        try:
            out[str(name)] = pa.array(values, from_pandas=True)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):  # of several types
            out[str(name)] = pa.array([None if v is None or v != v else str(v) for v in values], pa.string())
    return out
