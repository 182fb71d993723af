"""The tables of an update: saved from a request to files, and read from these as tables of nodes and edges.

File names in a request are never used as paths; only their suffix is.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from anyio import to_thread
from starlette.datastructures import UploadFile
from starlette.requests import Request

from ergnn.config.errors import InputError
from ergnn.data.tables import Columns, EdgeTable, Limits, NodeTable, read_edges, read_nodes
from ergnn.data.tables.sources import GZ, read_bytes
from ergnn.folder.spool import JSON_LINES, TABLES
from ergnn.serve.requests import json_lines, to_json_lines

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


class MediaTypeError(InputError):
    """A body in an unsupported format."""


def media_type(content_type: str | None) -> str:
    """The media type of a header, without parameters."""
    return (content_type or "").partition(";")[0].strip().lower()


async def save_upload(request: Request, directory: Path, name: str, table: str) -> str:
    """Write the tables of a request to a folder; returns the name of the update, which a form may contain."""
    kind = media_type(request.headers.get("content-type"))
    packed = request.headers.get("content-encoding", "identity").strip().lower()
    if packed not in ("identity", "gzip") or (packed == "gzip" and TYPES.get(kind, ".parquet") == ".parquet"):
        raise MediaTypeError(f"content-encoding {packed[:60]!r} is not supported for {kind[:60]!r}")
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
        raise MediaTypeError(
            f"content-type {kind[:60]!r} is not supported; allowed are {', '.join([JSON, FORM, *TYPES])}"
        )
    if len(name) > 200 or re.search(r"[\x00-\x1f\x7f]", name):
        raise InputError("the name of the update is longer than 200 characters, or contains control characters")
    return name


def _save_file(upload: UploadFile, stem: Path) -> None:
    """Write a file of a form, in the format of its suffix or its media type."""
    name = (upload.filename or "").lower()
    ending = next((ending for ending in ENDINGS if name.endswith(ending)), TYPES.get(media_type(upload.content_type)))
    if ending is None:
        raise MediaTypeError(f"part {stem.name!r}: the suffix of the file name must be one of {', '.join(ENDINGS)}")
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
