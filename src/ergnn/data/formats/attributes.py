"""Nodes and edges with attributes by name, as in NetworkX: the names mean what they mean as columns of a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ergnn.data.formats.columns import NodeColumns, edge_columns, node_columns
from ergnn.data.formats.features import DenseRows, FeatureColumn
from ergnn.data.formats.limits import Limits, shown
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.data.formats.values import Times, number
from ergnn.errors import FormatError

Attributes = Mapping[str, Any]


def node_table(nodes: Sequence[tuple[Any, Attributes]], source: object, limits: Limits) -> NodeTable:
    """Nodes with their attributes; features must be there on every node, all else may be missing."""
    if not nodes:
        raise FormatError(f"{source}: no nodes")
    limits.check("nodes", len(nodes), source)
    names = list(dict.fromkeys(name for _, attributes in nodes for name in attributes))
    # a node's own id stands first; an attribute of that name would be a second one
    columns = node_columns(["id", *names], source, limits)
    limits.check_bytes(4 * len(nodes) * len(columns.many), source, "features take")
    key = ["", *names]
    single, many = FeatureColumn(limits, source), DenseRows(limits, source, len(columns.many))
    time = Times()
    listed: dict[str, list[str | None]] = {"label": [], "split": [], "domain": []}
    ids = []
    for row, (name, attributes) in enumerate(nodes):
        where = f"{source}, node {shown(name)}"
        ids.append(_text(name, "id", f"{source}, node {row + 1}"))
        for what, values in listed.items():
            if (place := getattr(columns, what)) is not None:
                values.append(_text(attributes.get(key[place]), what, where))
        if columns.time is not None:
            time.add(_text(attributes.get(key[columns.time]), "time", where, whole=False) or "", where)
        _add_features(attributes, columns, key, single, many, where)
    return NodeTable(
        ids=ids,
        labels=listed["label"] or None,
        time=time.array() if columns.time is not None else None,
        split=listed["split"] or None,
        domain=listed["domain"] or None,
        features=single.matrix() if columns.single is not None else many.matrix() if columns.many else None,
        feature_names=columns.names or None,
        place=lambda row: f"{source}, node {shown(nodes[row][0])}",
    )


def edge_table(edges: Sequence[tuple[Any, Any, Attributes]], source: object, limits: Limits) -> EdgeTable:
    """Edges with ``weight`` and ``time`` where any has them; an edge without a weight among others has weight 1."""
    limits.check("edges", len(edges), source)
    names = list(dict.fromkeys(name for _, _, attributes in edges for name in attributes))
    columns = edge_columns(["source", "target", *names], source)
    key = ["", "", *names]
    time = Times()
    weight = []
    ends: tuple[list[str | None], list[str | None]] = ([], [])
    for row, (a, b, attributes) in enumerate(edges):
        where = f"{source}, edge {row + 1} ({shown(a, 20)} to {shown(b, 20)})"
        ends[0].append(_text(a, "source", where))
        ends[1].append(_text(b, "target", where))
        if columns.weight is not None:
            value = attributes.get(key[columns.weight])
            weight.append(1.0 if value is None else _number(value, "weight", where))
        if columns.time is not None:
            time.add(_text(attributes.get(key[columns.time]), "time", where, whole=False) or "", where)
    return EdgeTable(
        source=ends[0],
        target=ends[1],
        weight=np.array(weight) if columns.weight is not None else None,
        time=time.array() if columns.time is not None else None,
        place=lambda row: f"{source}, edge {row + 1}",
    )


def _add_features(
    attributes: Attributes, columns: NodeColumns, key: list[str], single: FeatureColumn, many: DenseRows, where: str
) -> None:
    if columns.single is not None:
        value = attributes.get(key[columns.single], "")
        if isinstance(value, Mapping) or not isinstance(value, (str, Iterable)):
            raise FormatError(f"{where}, attribute 'features': {shown(value)}; a list or sparse text is needed")
        single.add(value if isinstance(value, str) else [_number(v, "features", where) for v in value], where)
    elif columns.many:
        many.add([_number(attributes.get(key[i]), key[i], where) for i in columns.many], where)


def _number(value: Any, name: str, where: str) -> float:
    try:
        if value is None:
            raise ValueError
        out = number(value) if isinstance(value, str) else float(value)
        if math.isfinite(out):
            return out
    except (ValueError, TypeError, OverflowError):
        pass
    found = "is missing" if value is None else f"is {shown(value)}"
    raise FormatError(f"{where}: attribute {shown(name)} {found}; a finite number is needed") from None


def _text(value: Any, name: str, where: str, whole: bool = True) -> str | None:
    """Text of a word or a number; ``whole``: a float must be a whole number."""
    if value is None or value == "":
        return None
    if isinstance(value, float) and whole:
        if not value.is_integer():
            raise FormatError(f"{where}: {name} is {value}; text or a whole number is needed")
        return str(int(value))
    if isinstance(value, (str, int, float, np.integer, np.floating)) or hasattr(value, "isoformat"):
        return value.isoformat() if hasattr(value, "isoformat") else str(value)
    raise FormatError(f"{where}: {name} is {shown(value)}; text or a number is needed")
