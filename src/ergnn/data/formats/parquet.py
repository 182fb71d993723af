"""Nodes and edges in Parquet files, batch by batch.

A Parquet file of some kilobytes can stand for gigabytes (runs of one value, one long text many times), and says in its
metadata how many values there are. These are held to the limits first; text is kept as dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ergnn.data.formats.arrow import numbers, texts, times
from ergnn.data.formats.boundary import extra, foreign
from ergnn.data.formats.columns import edge_columns, node_columns
from ergnn.data.formats.delimited import ROW_BYTES, check_width
from ergnn.data.formats.features import FeatureColumn
from ergnn.data.formats.footer import LONGEST, Claims, claims
from ergnn.data.formats.limits import MEGABYTE, Limits, file_size, shown
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.errors import FormatError

NODES_UNPACKED = (512 * MEGABYTE, 200)
EDGES_UNPACKED = (64 * MEGABYTE, 200)
"""Bytes of all values, 8 each: 512 MB (dense features that are mostly zero pack well) or 200 times the file."""
BATCH = 32 * MEGABYTE
PAGE = 64 * MEGABYTE
"""Bytes of one page, of which writers aim at one megabyte."""
DICTIONARIES = {2, 8}
DELTA_BYTE_ARRAY = 7
"""Numbers of encodings in the format's specification."""


def read_node_parquet(path: Path, limits: Limits, num_features: int | None = None) -> NodeTable:
    """Nodes of a Parquet file; features as columns of numbers, a list, or sparse text."""
    file = _File(path, limits, NODES_UNPACKED)
    names = file.names
    columns = node_columns(names, path, limits)
    check_width(num_features, columns.many, columns.single, path)
    limits.check("nodes", file.rows, path)
    if not file.rows:
        raise FormatError(f"{path}: no nodes")
    width = len(columns.many)
    limits.check_bytes(file.rows * (ROW_BYTES + 4 * width), path)
    single = FeatureColumn(limits, path, num_features)
    many = np.empty((file.rows, width), dtype=np.float32)
    named = {"id": columns.id, "label": columns.label, "split": columns.split, "domain": columns.domain}
    text: dict[str, list[str | None]] = {name: [] for name in named}
    time: list[np.ndarray] = []
    wanted = [place for place in (*named.values(), columns.time, columns.single, *columns.many) if place is not None]
    row = 0
    for batch in file.batches(wanted):
        for name, place in named.items():
            if place is not None:
                text[name] += texts(batch[place], name, path, row)
        if columns.time is not None:
            time.append(times(batch[columns.time], path, row))
        if columns.single is not None:
            _add_features(single, batch[columns.single], path, row)
        for i, place in enumerate(columns.many):
            values = numbers(batch[place], names[place], path, row)
            many[row : row + len(values), i] = values
        row += len(batch[columns.id])
    return NodeTable(
        ids=text["id"],
        labels=text["label"] if columns.label is not None else None,
        time=np.concatenate(time) if columns.time is not None else None,
        split=text["split"] if columns.split is not None else None,
        domain=text["domain"] if columns.domain is not None else None,
        features=single.matrix() if columns.single is not None else many if width else None,
        feature_names=columns.names or None,
        place=lambda i: f"{path}, row {i + 1}",
    )


def read_edge_parquet(path: Path, limits: Limits) -> EdgeTable:
    """Edges of a Parquet file; there may be none."""
    file = _File(path, limits, EDGES_UNPACKED)
    columns = edge_columns(file.names, path)
    limits.check("edges", file.rows, path)
    source: list[str | None] = []
    target: list[str | None] = []
    weight: list[np.ndarray] = [np.empty(0)]
    time: list[np.ndarray] = []
    places = (columns.source, columns.target, columns.weight, columns.time)
    known: dict[str, str] = {}
    for batch in file.batches([place for place in places if place is not None]):
        row = len(source)
        limits.check_bytes(ROW_BYTES * len(known) + 16 * row, path)
        source += [t and known.setdefault(t, t) for t in texts(batch[columns.source], "source", path, row)]
        target += [t and known.setdefault(t, t) for t in texts(batch[columns.target], "target", path, row)]
        if columns.weight is not None:
            weight.append(numbers(batch[columns.weight], "weight", path, row))
        if columns.time is not None:
            time.append(times(batch[columns.time], path, row))
    return EdgeTable(
        source=source,
        target=target,
        weight=np.concatenate(weight) if columns.weight is not None else None,
        time=np.concatenate(time or [np.empty(0)]) if columns.time is not None else None,
        place=lambda i: f"{path}, row {i + 1}",
    )


class _File:
    """A Parquet file whose metadata was read and held to the limits."""

    def __init__(self, path: Path, limits: Limits, unpacked: tuple[int, int]) -> None:
        parquet = extra("pyarrow.parquet", "parquet", "reading Parquet files")
        self.path = path
        self.size = file_size(path, limits)
        self.most = limits.unpacked(self.size, unpacked)
        self.claims = claims(path, self.size)
        with foreign(path, "a Parquet file"):
            with parquet.ParquetFile(
                path, thrift_string_size_limit=LONGEST, thrift_container_size_limit=LONGEST
            ) as file:
                self.rows: int = file.metadata.num_rows
                self.schema = file.schema_arrow
            self.names = [str(name) for name in self.schema.names]
        if self.rows < 0:
            raise FormatError(f"{path}: the metadata claims {self.rows} rows")

    def batches(self, places: list[int]) -> Iterator[dict[int, Any]]:
        """Columns by their place, a batch of rows at a time; all rows that the metadata names, or an error."""
        import pyarrow.parquet as parquet

        names = [self.names[place] for place in places]
        size, dictionaries = self._plan(names)
        seen = held = 0
        with (
            foreign(self.path, "a Parquet file"),
            parquet.ParquetFile(
                self.path,
                read_dictionary=dictionaries,
                thrift_string_size_limit=LONGEST,
                thrift_container_size_limit=LONGEST,
                page_checksum_verification=True,
            ) as file,
        ):
            for batch in file.iter_batches(batch_size=size, columns=names, use_threads=False):
                batch.validate(full=True)
                seen += batch.num_rows
                held += sum(batch.column(name).nbytes for name in names if name not in dictionaries)
                if held > self.most:
                    raise self._too_much("more than", held)
                if seen > self.rows:
                    break
                yield {place: batch.column(name) for place, name in zip(places, names, strict=True)}
        if seen != self.rows:
            raise FormatError(f"{self.path}: {seen:,} rows; its metadata claims {self.rows:,}")

    def _plan(self, names: list[str]) -> tuple[int, list[str]]:
        """Rows a batch, so that a batch stays small, and texts to be kept as dictionaries.

        A text that is in a page once, and many times in the table, stays a dictionary. Where texts share their
        beginnings instead (DELTA_BYTE_ARRAY), each may be as long as the page, and batches are as short as that asks.
        """
        import pyarrow.types as types

        values = largest = 0
        dictionaries = []
        for name in names:
            claim = self.claims.get(name.encode(), Claims(values=self.rows))
            if max(8 * claim.values, claim.unpacked) > self.most:
                raise self._too_much(f"column {shown(name)} has", max(8 * claim.values, claim.unpacked))
            if claim.largest > PAGE:
                raise FormatError(f"{self.path}: a page of {claim.largest:,} bytes; at most {PAGE:,} are allowed")
            values += claim.values
            kind = self.schema.field(name).type
            if types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind):
                if DELTA_BYTE_ARRAY in claim.encodings:
                    largest = max(largest, claim.largest)
                elif claim.encodings & DICTIONARIES:
                    dictionaries.append(name)
        if 8 * values > self.most:
            raise self._too_much("columns have", 8 * values)
        rows = min(1 << 16, BATCH * max(self.rows, 1) // max(8 * values, 1), BATCH // max(largest, 1))
        return max(1, rows), dictionaries

    def _too_much(self, what: str, size: int) -> FormatError:
        return FormatError(
            f"{self.path}: {what} {-(-size // MEGABYTE):,} MB of values in a file of {self.size:,} bytes; at most "
            f"{self.most // MEGABYTE:,} MB are allowed (limit 'megabytes')"
        )


def _add_features(column: FeatureColumn, values: Any, path: Path, first: int) -> None:
    import pyarrow.types as types

    kind = values.type
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not is_list:
        for i, text in enumerate(texts(values, "features", path, first)):
            column.add(text or "", f"{path}, row {first + i + 1}")
        return
    for i in range(len(values)):
        where = f"{path}, row {first + i + 1}"
        row = values[i].values
        if row is None:
            raise FormatError(f"{where}, column 'features': no list")
        column.add(numbers(row, "features", path, first + i, row_of=False).tolist(), where)
