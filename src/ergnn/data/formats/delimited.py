"""Nodes and edges in CSV and TSV files."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ergnn.data.formats.columns import edge_columns, node_columns
from ergnn.data.formats.features import DenseRows, FeatureColumn
from ergnn.data.formats.limits import Limits, shown
from ergnn.data.formats.tables import EdgeTable, NodeTable, Place
from ergnn.data.formats.text import records
from ergnn.data.formats.values import Times, number, numbers
from ergnn.errors import FormatError

ROW_BYTES = 200
"""What a node's or an edge's ids and labels take in memory, more or less."""
CHECKED = 1023
"""Memory is looked at again after every so many rows, and one."""


def read_node_rows(path: Path, delimiter: str, limits: Limits, num_features: int | None = None) -> NodeTable:
    """Nodes of a CSV or TSV file with a header."""
    names, rows = _opened(path, delimiter, limits)
    columns = node_columns(names, path, limits)
    check_width(num_features, columns.many, columns.single, path)
    single = FeatureColumn(limits, path, num_features)
    many = DenseRows(limits, path, len(columns.many))
    ids: list[str] = []
    labels: list[str | None] = []
    split: list[str | None] = []
    domain: list[str | None] = []
    time = Times()
    lines = array("q")
    placed = bool(columns.many) or columns.single is not None or columns.time is not None
    for line, cells in rows:
        where = f"{path}, line {line}" if placed else ""
        if len(ids) & CHECKED == 0 or len(ids) >= limits.nodes:
            limits.check("nodes", len(ids) + 1, f"{path}, line {line}")
            limits.check_bytes(ROW_BYTES * len(ids), f"{path}, line {line}")
        lines.append(line)
        ids.append(cells[columns.id])
        labels.append(cells[columns.label] or None if columns.label is not None else None)
        if columns.time is not None:
            time.add(cells[columns.time], where)
        if columns.split is not None:
            split.append(cells[columns.split].strip() or None)
        if columns.domain is not None:
            domain.append(cells[columns.domain] or None)
        if columns.single is not None:
            single.add(cells[columns.single], where)
        elif columns.many:
            many.add(_numbers(cells, columns.many, names, where), where)
    if not ids:
        raise FormatError(f"{path}: a header and no nodes")
    return NodeTable(
        ids=ids,
        labels=labels,
        time=time.array() if columns.time is not None else None,
        split=split if columns.split is not None else None,
        domain=domain if columns.domain is not None else None,
        features=single.matrix() if columns.single is not None else many.matrix() if columns.many else None,
        feature_names=columns.names or None,
        place=_place(path, lines),
    )


def read_edge_rows(path: Path, delimiter: str, limits: Limits) -> EdgeTable:
    """Edges of a CSV or TSV file with a header; there may be none."""
    names, rows = _opened(path, delimiter, limits)
    columns = edge_columns(names, path)
    edges = EdgeRows(path, limits)
    for line, cells in rows:
        edges.add(
            line,
            cells[columns.source],
            cells[columns.target],
            None if columns.weight is None else cells[columns.weight],
            None if columns.time is None else cells[columns.time],
        )
    return edges.table(columns.weight is not None, columns.time is not None)


class EdgeRows:
    """Edges as they are read; text that comes again is stored once."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path, self.limits = path, limits
        self.known: dict[str, str] = {}
        self.source: list[str] = []
        self.target: list[str] = []
        self.weight, self.lines = array("d"), array("q")
        self.time = Times()

    def add(self, line: int, source: str, target: str, weight: str | None, time: str | None) -> None:
        if len(self.source) & CHECKED == 0 or len(self.source) >= self.limits.edges:
            where = f"{self.path}, line {line}"
            self.limits.check("edges", len(self.source) + 1, where)
            self.limits.check_bytes(ROW_BYTES * len(self.known) + 16 * len(self.source), where)
        self.lines.append(line)
        self.source.append(self.known.setdefault(source, source))
        self.target.append(self.known.setdefault(target, target))
        if weight is not None:
            try:
                self.weight.append(number(weight))
            except ValueError:
                raise FormatError(
                    f"{self.path}, line {line}, column 'weight': {shown(weight)} is not a finite number"
                ) from None
        if time is not None:
            self.time.add(time, f"{self.path}, line {line}")

    def table(self, weighted: bool, timed: bool) -> EdgeTable:
        return EdgeTable(
            source=self.source,
            target=self.target,
            weight=np.frombuffer(self.weight, dtype=np.float64) if weighted else None,
            time=self.time.array() if timed else None,
            place=_place(self.path, self.lines),
        )


def check_width(wanted: int | None, many: tuple[int, ...], single: int | None, where: object) -> None:
    """Refuse a file with no features, or with another number of columns, where some are asked for."""
    if wanted is None or single is not None:
        return
    if not many and wanted:
        raise FormatError(f"{where}: no features; {wanted:,} a node are needed")
    if len(many) != wanted:
        raise FormatError(f"{where}: {len(many):,} columns of features; {wanted:,} are needed")


def _opened(path: Path, delimiter: str, limits: Limits) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    rows = records(path, delimiter, limits)
    try:
        _, names = next(rows)
    except StopIteration:
        raise FormatError(f"{path}: no header; the file has only empty lines") from None
    return names, _even(rows, len(names), path)


def _even(rows: Iterator[tuple[int, list[str]]], width: int, path: Path) -> Iterator[tuple[int, list[str]]]:
    for line, cells in rows:
        if len(cells) != width:
            raise FormatError(f"{path}, line {line}: {len(cells):,} fields; the header has {width:,} columns")
        yield line, cells


def _numbers(cells: list[str], places: tuple[int, ...], names: list[str], where: str) -> list[float]:
    try:
        return numbers([cells[place] for place in places])
    except ValueError:
        pass
    for place in places:
        try:
            number(cells[place])
        except ValueError:
            raise FormatError(
                f"{where}, column {shown(names[place].strip())}: {shown(cells[place])} is not a finite number; "
                "features must be numbers"
            ) from None
    raise AssertionError("a number was refused and then read")


def _place(path: Path, lines: array[int]) -> Place:
    return lambda row: f"{path}, line {lines[row]}"
