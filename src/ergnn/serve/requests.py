"""Bodies of requests: JSON and JSON lines, checked and converted to tables of nodes and edges."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Annotated, Any, Literal

import numpy as np
import scipy.sparse
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from ergnn.config.errors import FormatError, InputError
from ergnn.config.limits import Limits
from ergnn.data.tables.columns import ColumnRoles
from ergnn.data.tables.node_tables import NOT_TEXT, EdgeTable, NodeTable, canonical
from ergnn.data.tables.sources import rows_to_arrow
from ergnn.data.tables.values import read_features

Name = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
NodeId = Annotated[Name | Annotated[int, Field(ge=-(2**63), lt=2**64)], Field(description="id of a node")]
Number = Annotated[float, Field(allow_inf_nan=False)]
Index = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}$")]


def _check_value(value: Any) -> Any:
    """Refuse what no field of a CSV file can hold."""
    if isinstance(value, str) and NOT_TEXT.search(value):
        raise PydanticCustomError("text", "text must be valid Unicode without NUL")
    if isinstance(value, float | int) and not abs(value) <= sys.float_info.max:
        raise PydanticCustomError("number", "the number is too large, or not finite")
    if not (value is None or isinstance(value, str | float | int)):
        kind = "an object" if isinstance(value, dict) else "a list"
        raise PydanticCustomError("value", f"{kind}; text, a number, true, false or null is required")
    return value


_TYPES = [{"type": name} for name in ("string", "number", "boolean", "null")]
Value = Annotated[Any, AfterValidator(_check_value), WithJsonSchema({"anyOf": _TYPES})]


class Checked(BaseModel):
    """A JSON object without additional fields or type conversions."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Node(Checked):
    """A node with its values: by column name, as in a CSV file, or ``features`` without names."""

    id: NodeId
    columns: dict[Name, Value] | None = Field(None, description="values by column name; absent ones are missing")
    features: list[Number] | dict[Index, Number] | None = Field(
        None, description="a list, or an object of index and value if most are zero"
    )


class LabeledNode(Node):
    """A node of an update; a known one needs no features."""

    label: NodeId | None = None
    split: Literal["train", "val", "test"] | None = None


class Edge(Checked):
    """An edge between two nodes."""

    source: NodeId
    target: NodeId


class ObserveRequest(Checked):
    """An update: new nodes, known nodes with new labels, and edges."""

    nodes: list[LabeledNode] = Field(default_factory=list)
    edges: list[Edge] = Field(default_factory=list)


class PredictRequest(Checked):
    """Nodes to predict: known nodes by id, new nodes with features and edges, which are used for this request only."""

    ids: list[NodeId] | None = Field(None, min_length=1, description="nodes to predict; default: all of `nodes`")
    nodes: list[Node] | None = Field(None, min_length=1, description="nodes that are not in the graph")
    edges: list[Edge] | None = Field(None, description="edges of `nodes`, or additional edges of known nodes")
    classes: list[Name] | None = Field(None, min_length=1, description="classes that compete; default: all")


class Prediction(BaseModel):
    """The probabilities of a node, in the order of `classes`."""

    id: str
    label: str
    probability: float
    probabilities: list[float]


class PredictResponse(BaseModel):
    """Predictions, all of one version."""

    version: int
    classes: list[str]
    predictions: list[Prediction]


class ForgetRequest(Checked):
    """Nodes to remove from the graph and the model."""

    ids: list[NodeId] = Field(min_length=1)
    retrain: bool = Field(False, description="learn all updates again without them")


class RollbackRequest(Checked):
    """The version to restore; by default the previous one."""

    version: Annotated[int, Field(ge=0, lt=2**63)] | None = None


class Problem(BaseModel):
    """The reason of an error, in one line."""

    error: str


def texts(ids: Iterable[str | int]) -> list[str]:
    """Ids in their canonical form."""
    return [canonical(name) or "" for name in ids]


def node_table(nodes: Sequence[Node], limits: Limits, where: str = "nodes") -> NodeTable:
    """A table of nodes whose values are all columns, all lists, all objects, or all missing."""
    named = [node.columns for node in nodes]
    if any(row is not None for row in named):
        if any(node.features is not None for node in nodes):
            raise InputError(f"{where}: some nodes have columns and some features; use one of them")
        _check_all(nodes, named, "columns", where)
        table = rows_to_arrow([row or {} for row in named], limits, where)
        values = read_features(table, ColumnRoles({}, tuple(table.column_names)), where, limits)
        values["partial_columns"] = True
    else:
        values = {"features": _features(nodes, limits, where)}
    if any(isinstance(node, LabeledNode) for node in nodes):
        for field, name in (("labels", "label"), ("split", "split")):
            values[field] = np.array([getattr(node, name, None) for node in nodes], object)
    ids = np.array([node.id for node in nodes], object)
    return NodeTable(ids, **values, where=where)


def _check_all(nodes: Sequence[Node], rows: Sequence[Any], what: str, where: str) -> None:
    if None in rows:
        raise InputError(f"{where}: node {nodes[rows.index(None)].id!r} has no {what}, others have")


def _features(nodes: Sequence[Node], limits: Limits, where: str) -> Any:
    """Features without names, dense or in CSR form; None if no node has any."""
    kinds = {type(node.features) for node in nodes if node.features is not None}
    if not kinds:
        return None
    if len(kinds) > 1:
        raise InputError(f"{where}: features are lists in some nodes and objects in others; use one of them")
    rows = [node.features for node in nodes]
    _check_all(nodes, rows, "features", where)
    if kinds == {list}:
        lengths = {len(row) for row in rows if row is not None}
        if len(lengths) > 1:
            raise InputError(f"{where}: features have {min(lengths):,} to {max(lengths):,} values; lengths must agree")
        limits.check("features", lengths.pop(), where)
        return np.array(rows, np.float64)
    pairs = [{int(key): value for key, value in row.items()} for row in rows if isinstance(row, dict)]
    width = 1 + max((max(row, default=-1) for row in pairs), default=-1)
    limits.check("features", width, where)
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in pairs])])
    values = np.array([value for row in pairs for value in row.values()], np.float64)
    columns = np.array([column for row in pairs for column in row], np.int64)
    return scipy.sparse.csr_matrix((values, columns, indptr), (len(pairs), width))


def edge_table(edges: Sequence[Edge], where: str = "edges") -> EdgeTable:
    source, target = np.array([(edge.source, edge.target) for edge in edges], object).T
    return EdgeTable(source, target, where=where)


def _kind(row: Any) -> str:
    """Whether a row of JSON lines is an edge; a node may have columns named source and target."""
    return "edge" if isinstance(row, dict) and {"source", "target"} <= row.keys() and "id" not in row else "node"


_ROW: TypeAdapter[LabeledNode | Edge] = TypeAdapter(
    Annotated[Annotated[LabeledNode, Tag("node")] | Annotated[Edge, Tag("edge")], Discriminator(_kind)]
)


def json_lines(data: bytes, limits: Limits, where: str) -> tuple[NodeTable | None, EdgeTable | None]:
    """Nodes and edges, one JSON object per line: an edge has ``source`` and ``target``, a node an ``id``."""
    nodes: list[LabeledNode] = []
    edges: list[Edge] = []
    for number, line in enumerate(BytesIO(data), 1):
        if not line.strip():
            continue
        try:
            row = _ROW.validate_json(line)
        except ValidationError as error:
            raise FormatError(f"{where}, line {number}: {first_error(error.errors())}") from None
        if isinstance(row, Edge):
            edges.append(row)
            limits.check("edges", len(edges), where)
        else:
            nodes.append(row)
            limits.check("nodes", len(nodes), where)
    if not nodes and not edges:
        raise FormatError(f"{where}: no nodes and no edges")
    return node_table(nodes, limits, where) if nodes else None, edge_table(edges, where) if edges else None


def to_json_lines(data: bytes) -> bytes:
    """The body of an update in JSON as JSON lines, the form in which updates are stored."""
    try:
        body = ObserveRequest.model_validate_json(data)
    except ValidationError as error:
        raise InputError(first_error(error.errors())) from None
    return b"".join(row.model_dump_json(exclude_unset=True).encode() + b"\n" for row in (*body.nodes, *body.edges))


def first_error(errors: Sequence[Any]) -> str:
    """The first error of pydantic, with the field and without the value."""
    first = errors[0]
    field = ".".join(str(key)[:40] for key in first["loc"] if key not in ("body", "node", "edge", "constrained-str"))
    more, problem = f" ({len(errors) - 1} more)" if len(errors) > 1 else "", first["msg"]
    if first["type"] == "json_invalid":
        return f"invalid JSON: {first.get('ctx', {}).get('error', problem)}{field and f' (character {field})'}"[:400]
    if first["loc"][-1:] == ("constrained-str",):
        problem, more = "text or a whole number is required", ""
    elif first["type"] == "extra_forbidden":
        problem = "no such field; values by column name belong in 'columns'"
    return f"{field or 'body'}: {problem}{more}"[:400]
