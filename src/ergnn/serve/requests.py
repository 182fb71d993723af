"""Bodies of requests: JSON, JSON lines and files, checked and converted to tables of nodes and edges.

The tables of an update are saved to files, and read from these. File names in a request are never used as paths; only
their suffix is.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import scipy.sparse
from anyio import to_thread
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
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from ergnn.config.errors import FormatError, InputError
from ergnn.config.limits import Limits
from ergnn.data.tables import Columns, read_edges, read_nodes
from ergnn.data.tables.columns import ColumnRoles
from ergnn.data.tables.node_tables import NOT_TEXT, EdgeTable, NodeTable, canonical
from ergnn.data.tables.sources import GZ, read_bytes, rows_to_arrow
from ergnn.data.tables.values import read_features
from ergnn.folder.spool import JSON_LINES, TABLES

TYPES = {
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "application/vnd.apache.parquet": ".parquet",
    "application/x-ndjson": JSON_LINES,
    "application/jsonl": JSON_LINES,
}
"""Media types, and the suffixes of the files that they are saved to."""
JSON, FORM = "application/json", "multipart/form-data"
ENDINGS = (*(f"{kind}{GZ}" for kind in (".csv", ".tsv", JSON_LINES)), *dict.fromkeys(TYPES.values()))
*PARTS, BOTH = TABLES
"""Names of files of a form, and of a file with nodes and edges."""

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


def media_type(content_type: str | None) -> str:
    """The media type of a header, without parameters."""
    return (content_type or "").partition(";")[0].strip().lower()


async def save_upload(request: Request, directory: Path, name: str, table: str) -> str:
    """Write the tables of a request to a folder; returns the name of the update, which a form may contain."""
    kind = media_type(request.headers.get("content-type"))
    packed = request.headers.get("content-encoding", "identity").strip().lower()
    if packed not in ("identity", "gzip") or (packed == "gzip" and TYPES.get(kind, ".parquet") == ".parquet"):
        raise HTTPException(415, f"content-encoding {packed[:60]!r} is not supported for {kind[:60]!r}")
    if kind == FORM:
        async with request.form(max_files=len(PARTS), max_fields=1) as form:
            for field, value in form.multi_items():
                if field == "name" and isinstance(value, str):
                    name = value
                elif field in PARTS and not isinstance(value, str):
                    await to_thread.run_sync(_save_file, value, directory / field)
                else:
                    raise InputError(f"part {field[:60]!r}: files 'nodes' and 'edges' and a field 'name' are allowed")
    elif kind == JSON:
        lines = await to_thread.run_sync(to_json_lines, await request.body())
        (directory / f"{BOTH}{JSON_LINES}").write_bytes(lines or b"\n")
    elif kind in TYPES:
        table = BOTH if TYPES[kind] == JSON_LINES else table
        if table not in TABLES:
            raise InputError(f"table is {table[:60]!r}; 'nodes' and 'edges' are allowed")
        with open(directory / f"{table}{TYPES[kind]}{GZ if packed == 'gzip' else ''}", "wb") as file:
            async for chunk in request.stream():
                file.write(chunk)
    else:
        allowed = ", ".join([JSON, FORM, *TYPES])
        raise HTTPException(415, f"content-type {kind[:60]!r} is not supported; allowed are {allowed}")
    if len(name) > 200 or re.search(r"[\x00-\x1f\x7f]", name):
        raise InputError("the name of the update is longer than 200 characters, or contains control characters")
    return name


def _save_file(upload: UploadFile, stem: Path) -> None:
    """Write a file of a form, in the format of its suffix or its media type."""
    name = (upload.filename or "").lower()
    ending = next((ending for ending in ENDINGS if name.endswith(ending)), TYPES.get(media_type(upload.content_type)))
    if ending is None:
        raise HTTPException(415, f"part {stem.name!r}: the suffix of the file name must be one of {', '.join(ENDINGS)}")
    if any(stem.parent.glob(f"{stem.name}.*")):
        raise InputError(f"part {stem.name!r} occurs twice")
    with open(f"{stem}{ending}", "wb") as file:
        shutil.copyfileobj(upload.file, file)


def read_upload(directory: Path, limits: Limits, columns: Columns) -> tuple[NodeTable | None, EdgeTable | None]:
    """Read the tables that :func:`save_upload` wrote to a folder."""
    nodes, edges = None, None
    for path in sorted(directory.iterdir(), reverse=True):
        table = path.name.partition(".")[0]
        if path.name.removesuffix(GZ).endswith(JSON_LINES):
            new_nodes, new_edges = json_lines(read_bytes(path, limits), limits, path.name)
            if {"nodes": new_edges, "edges": new_nodes}.get(table) is not None:
                raise InputError(f"{path.name}: contains more than {table}")
            nodes, edges = new_nodes or nodes, new_edges or edges
        elif table == "nodes":
            nodes = read_nodes(path, columns=columns, limits=limits)
        elif table == "edges":
            edges = read_edges(path, columns=columns, limits=limits)
    if nodes is None and edges is None:
        raise InputError("an update needs nodes, or edges, or both")
    return nodes, edges
