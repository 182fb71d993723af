"""Read nodes and edges from files, data frames and Arrow tables, and write them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from ergnn.config.errors import FormatError, InputError, listed, truncate
from ergnn.config.files import replacing
from ergnn.config.limits import Limits
from ergnn.data.tables.columns import (
    EDGE_ROLES,
    FEATURES,
    PREFIX,
    TEXTS,
    ColumnRoles,
    Columns,
    find_columns,
    find_node_columns,
)
from ergnn.data.tables.node_tables import EdgeTable, EncodedText, NodeTable, canonical
from ergnn.data.tables.sources import GZ, Source, csv_source, frame_source, parquet_source
from ergnn.data.tables.values import encode_text, read_features, to_floats, to_times

DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")
TABLES = (*DELIMITERS, *(f"{kind}{GZ}" for kind in DELIMITERS), *PARQUET)
NO_LABEL = ("NaN", "nan", "NA", "<NA>", "null", "None")
ROW_BYTES = 100
"""Approximate memory of the id and label of a row."""


def read_nodes(
    nodes: Any, *, columns: Columns | None = None, limits: Limits | None = None, num_features: int | None = None
) -> NodeTable:
    """Read nodes from a file, a data frame or an Arrow table.

    Args:
        nodes: the path of a ``.csv``, ``.tsv`` (each also ``.gz``) or ``.parquet`` file; a pandas or polars DataFrame;
            an Arrow table; or a :class:`NodeTable`, which is returned as it is.
        columns: column names, where they differ from the defaults.
        limits: maximum sizes; default: :class:`Limits`.
        num_features: required number of features; also the width of sparse text.
    """
    if isinstance(nodes, NodeTable):
        return nodes
    limits, columns = limits or Limits(), columns or Columns()
    limits.check("features", num_features or 0, "num_features")
    source = _open(nodes, "nodes", limits)
    roles = find_node_columns(source.names, source.index, columns, limits, source.where)
    table, texts = _read(source, roles, "nodes", limits)
    if not table.num_rows:
        raise FormatError(f"{source.where}: no nodes")
    limits.check_bytes(table.num_rows * (ROW_BYTES + 4 * len(roles.features)), source.where)
    labels = texts.get("label")
    if labels is not None and not columns.keep_na_labels:
        labels = labels._replace(values=[None if canonical(text) in NO_LABEL else text for text in labels.values])
    return NodeTable(
        ids=texts["id"],
        labels=labels,
        time=to_times(table[roles.names["time"]], source.where) if "time" in roles.names else None,
        split=texts.get("split"),
        domain=texts.get("domain"),
        where=source.where,
        **read_features(table, roles, source.where, limits, num_features),
    )


def read_edges(edges: Any, *, columns: Columns | None = None, limits: Limits | None = None) -> EdgeTable:
    """Read edges from a file, a data frame or an Arrow table; arguments as for :func:`read_nodes`."""
    if isinstance(edges, EdgeTable):
        return edges
    limits, columns = limits or Limits(), columns or Columns()
    source = _open(edges, "edges", limits)
    typed = ("type",) if columns.type_weights else ()
    roles = find_columns(source.names, (*EDGE_ROLES, *typed), columns, source.where)
    table, texts = _read(source, roles, "edges", limits)
    weight = to_floats(table[name], name, source.where) if (name := roles.names.get("weight")) else None
    if columns.type_weights:
        where = f"{source.where}, column {truncate(roles.names['type'])}"
        by_type = _type_weights(texts.pop("type"), columns.type_weights, where)
        weight = by_type if weight is None else by_type * weight
    used = {*roles.columns, *source.index}
    ignored = [name for name in source.names if name not in used and name.strip() not in columns.ignore]
    return EdgeTable(**texts, weight=weight, where=source.where, ignored=ignored)


def _type_weights(types: EncodedText, weights: Mapping[str, float], where: str) -> np.ndarray:
    """Return the weight of the type of each edge."""
    names = [(text or "").strip() for text in types.values]
    for text in sorted({names[code] for code in np.unique(types.codes)} - set(weights)):
        given = f"edges of type {truncate(text)} have no weight" if text else "an edge has no type"
        raise FormatError(f"{where}: {given}; there are weights of: {listed(sorted(weights))}")
    return np.array([weights.get(name, 0.0) for name in names], np.float32)[types.codes]


def read_tables(nodes: Any, edges: Any, columns: Columns, limits: Limits) -> tuple[NodeTable | None, EdgeTable | None]:
    """Read nodes and edges, either of which may be None; one error says what is wrong with both."""
    out: list[Any] = []
    wrong = []
    for read, table in ((read_nodes, nodes), (read_edges, edges)):
        try:
            out.append(None if table is None else read(table, columns=columns, limits=limits))
        except FormatError as error:
            wrong.append(str(error))
    if wrong:
        raise FormatError("; and ".join(wrong))
    return out[0], out[1]


def _open(table: Any, what: str, limits: Limits) -> Source:
    if not isinstance(table, (str, PathLike)):
        return frame_source(table, what)
    path = Path(table)
    return parquet_source(path, limits) if suffix(path) in PARQUET else csv_source(path, delimiter_of(path), limits)


def suffix(path: Path) -> str:
    """Return the suffix that names the format of a file, without ``.gz``."""
    return Path(path.name.lower().removesuffix(GZ)).suffix


def delimiter_of(path: Path) -> str:
    """Return the character that separates the fields of a text table."""
    kind = suffix(path)
    if kind not in DELIMITERS:
        raise FormatError(f"{path}: not a known table of nodes or edges; names end in {', '.join(TABLES)}")
    return DELIMITERS[kind]


def _read(source: Source, roles: ColumnRoles, what: str, limits: Limits) -> tuple[pa.Table, dict[str, EncodedText]]:
    """Read the table and convert its text columns."""
    table = source.read(roles)
    limits.check(what, table.num_rows, source.where)
    limits.check_bytes(table.nbytes, source.where)
    texts = {role: encode_text(table[n], n, source.where) for role, n in roles.names.items() if role in TEXTS}
    for role, text in texts.items():
        _check_exact(table[roles.names[role]].type, text, f"{source.where}, column {truncate(roles.names[role])}")
    return table, texts


def _check_exact(kind: pa.DataType, column: EncodedText, where: str) -> None:
    """Refuse whole numbers that are floats and too large for them: they lost digits, so that two ids may be one."""
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


def write_nodes(nodes: NodeTable, path: str | PathLike[str]) -> None:
    """Write nodes to a ``.csv``, ``.tsv`` (each also ``.gz``) or ``.parquet`` file, which is replaced.

    Features in CSR form are written as sparse text, others as one column each.
    """
    columns: dict[str, Any] = {"id": nodes.ids}
    if any(label is not None for label in nodes.labels):
        columns["label"] = nodes.labels
    columns |= {name: getattr(nodes, name) for name in ("time", "split", "domain") if getattr(nodes, name) is not None}
    _write(columns | _feature_columns(nodes), Path(path))


def write_edges(edges: EdgeTable, path: str | PathLike[str]) -> None:
    """Write edges to a ``.csv``, ``.tsv`` (each also ``.gz``) or ``.parquet`` file."""
    weight = {} if edges.weight is None else {"weight": edges.weight}
    _write({"source": edges.source, "target": edges.target, **weight}, Path(path))


def _feature_columns(nodes: NodeTable) -> dict[str, Any]:
    if not nodes.num_features:
        return {}
    if nodes.is_sparse:
        pairs = [f"{i}:{v}" for i, v in zip(nodes.features.indices.tolist(), nodes.features.data, strict=True)]
        return {FEATURES: [" ".join(pairs[a:b]) for a, b in pairwise(nodes.features.indptr.tolist())]}
    names = nodes.feature_names or tuple(f"{PREFIX}{i}" for i in range(nodes.num_features))
    if find_node_columns(["id", *names], (), Columns(), Limits(), "feature_names").features != names:
        raise InputError(
            f"feature names that begin with {PREFIX!r} among others would be read as the only ones; rename some"
        )
    return dict(zip(names, nodes.features.T, strict=True))


def _write(columns: dict[str, Any], path: Path) -> None:
    delimiter = None if suffix(path) in PARQUET else delimiter_of(path)
    kinds = {name: pa.string() if name in TEXTS else None for name in columns}
    table = pa.table({name: pa.array(columns[name], kind, from_pandas=True) for name, kind in kinds.items()})
    packed = "gzip" if path.name.lower().endswith(GZ) else None
    with replacing(path) as new, pa.output_stream(new, compression=packed) as file:
        if delimiter is None:
            pq.write_table(table, file)
        else:
            csv.write_csv(table, file, csv.WriteOptions(delimiter=delimiter))
