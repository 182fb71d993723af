"""Bodies of requests: JSON and JSON lines, checked and converted to tables of nodes and edges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import scipy.sparse
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from ergnn.config.errors import FormatError, InputError
from ergnn.data.tables.limits import Limits
from ergnn.data.tables.node_tables import EdgeTable, NodeTable, canonical

Name = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
NodeId = Annotated[Name | Annotated[int, Field(ge=-(2**63), lt=2**64)], Field(description="id of a node")]
Number = Annotated[float, Field(allow_inf_nan=False)]
Index = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}$")]


class Checked(BaseModel):
    """A JSON object without additional fields or type conversions."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Node(Checked):
    """A node with its features: a list, or an object ``{"index": value}`` if most are zero."""

    id: NodeId
    features: list[Number] | dict[Index, Number] | None = None


class LabeledNode(Node):
    """A node of an update; a known one needs no features."""

    label: NodeId | None = None
    split: Literal["train", "val", "test"] | None = None


class Edge(Checked):
    """An edge between two nodes."""

    source: NodeId
    target: NodeId


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
    """A table of nodes whose features are all lists, all objects, or all missing."""
    kinds = {type(node.features) for node in nodes if node.features is not None}
    if len(kinds) > 1:
        raise InputError(f"{where}: features are lists in some nodes and objects in others; use one of them")
    rows = [node.features for node in nodes]
    if kinds and None in rows:
        raise InputError(f"{where}: node {nodes[rows.index(None)].id!r} has no features, others have")
    features: Any = None
    if kinds == {list}:
        lengths = {len(row) for row in rows if row is not None}
        if len(lengths) > 1:
            raise InputError(f"{where}: features have {min(lengths):,} to {max(lengths):,} values; lengths must agree")
        limits.check("features", lengths.pop(), where)
        features = np.array(rows, np.float64)
    elif kinds:
        pairs = [{int(key): value for key, value in row.items()} for row in rows if isinstance(row, dict)]
        width = 1 + max((max(row, default=-1) for row in pairs), default=-1)
        limits.check("features", width, where)
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in pairs])])
        values = np.array([value for row in pairs for value in row.values()], np.float64)
        columns = np.array([column for row in pairs for column in row], np.int64)
        features = scipy.sparse.csr_matrix((values, columns, indptr), (len(pairs), width))
    labels = splits = None
    if any(isinstance(node, LabeledNode) for node in nodes):
        labels = np.array([getattr(node, "label", None) for node in nodes], object)
        splits = np.array([getattr(node, "split", None) for node in nodes], object)
    return NodeTable(np.array([node.id for node in nodes], object), labels, split=splits, features=features)


def edge_table(edges: Sequence[Edge]) -> EdgeTable:
    sides = [np.array([getattr(edge, side) for edge in edges], object) for side in ("source", "target")]
    return EdgeTable(sides[0], sides[1])


def json_lines(data: bytes, limits: Limits, where: str) -> tuple[NodeTable | None, EdgeTable | None]:
    """Nodes and edges, one JSON object per line: an edge has ``source`` and ``target``, a node an ``id``."""
    nodes: list[LabeledNode] = []
    edges: list[Edge] = []
    for number, line in _lines(data):
        is_edge = b'"source"' in line and b'"target"' in line
        try:
            if is_edge:
                edges.append(_EDGE.validate_json(line))
            else:
                nodes.append(_NODE.validate_json(line))
        except ValidationError as error:
            raise FormatError(f"{where}, line {number}: {first_error(error.errors())}") from None
        limits.check("edges" if is_edge else "nodes", len(edges) if is_edge else len(nodes), where)
    if not nodes and not edges:
        raise FormatError(f"{where}: no nodes and no edges")
    return node_table(nodes, limits, where) if nodes else None, edge_table(edges) if edges else None


_NODE, _EDGE = TypeAdapter(LabeledNode), TypeAdapter(Edge)


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    start, number = 0, 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        number += 1
        if line := data[start:end].strip():
            yield number, line
        start = end + 1


def first_error(errors: Sequence[Any]) -> str:
    """The first error of pydantic, with the field and without the value."""
    first = errors[0]
    field = ".".join(str(key)[:40] for key in first["loc"] if key != "body")
    more = f" ({len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{field or 'body'}: {first['msg']}{more}"[:400]
