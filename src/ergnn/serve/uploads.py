"""The tables of an update: saved from a request to files, and read from these as tables of nodes and edges.

File names in a request are never used as paths; only their suffix is.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ergnn.config.errors import InputError
from ergnn.data.tables import EdgeTable, Limits, NodeTable, read_edges, read_nodes
from ergnn.data.tables.sources import GZ, read_bytes
from ergnn.folder.spool import JSON_LINES, TABLES

if TYPE_CHECKING:
    from starlette.datastructures import UploadFile
    from starlette.requests import Request

TYPES = {
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "application/vnd.apache.parquet": ".parquet",
    "application/x-ndjson": JSON_LINES,
    "application/jsonl": JSON_LINES,
}
"""Media types, and the suffixes of the files that they are saved to."""
JSON = "application/json"
ENDINGS = (*dict.fromkeys(TYPES.values()), *(f"{kind}{GZ}" for kind in (".csv", ".tsv", JSON_LINES)))
*PARTS, BOTH = TABLES
"""Names of files of a form, and of a file with nodes and edges."""


class MediaTypeError(InputError):
    """A body in an unsupported format."""


async def save_upload(request: Request, directory: Path) -> str:
    """Write the tables of a request to a folder; returns the name of the update, if given."""
    from anyio import to_thread

    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    packed = request.headers.get("content-encoding", "identity").strip().lower()
    if packed not in ("identity", "gzip") or (packed == "gzip" and TYPES.get(kind, ".parquet") == ".parquet"):
        raise MediaTypeError(f"content-encoding {packed[:60]!r} is not supported for {kind[:60]!r}")
    name = request.query_params.get("name", "")
    if kind == "multipart/form-data":
        async with request.form(max_files=len(PARTS), max_fields=1) as form:
            for field, value in form.multi_items():
                if field == "name" and isinstance(value, str):
                    name = value
                elif field in PARTS and not isinstance(value, str):
                    await to_thread.run_sync(_save_file, value, directory / field)
                else:
                    raise InputError(f"part {field[:60]!r}: files 'nodes' and 'edges' and a field 'name' are allowed")
    elif kind == JSON:
        from ergnn.serve.requests import to_json_lines

        lines = await to_thread.run_sync(to_json_lines, await request.body())
        (directory / f"{BOTH}{JSON_LINES}").write_bytes(lines or b"\n")
    elif kind in TYPES:
        table = BOTH if TYPES[kind] == JSON_LINES else request.query_params.get("table", "nodes")
        if table not in (*PARTS, BOTH):
            raise InputError(f"table is {table[:60]!r}; 'nodes' and 'edges' are allowed")
        with open(directory / f"{table}{TYPES[kind]}{GZ if packed == 'gzip' else ''}", "wb") as file:
            async for chunk in request.stream():
                file.write(chunk)
    else:
        allowed = ", ".join([JSON, "multipart/form-data", *TYPES])
        raise MediaTypeError(f"content-type {kind[:60]!r} is not supported; allowed are {allowed}")
    if len(name) > 200 or re.search(r"[\x00-\x1f\x7f]", name):
        raise InputError("the name of the update is longer than 200 characters, or contains control characters")
    return name


def _save_file(upload: UploadFile, stem: Path) -> None:
    """Write a file of a form, in the format of its suffix or its media type."""
    kind, name = (upload.content_type or "").partition(";")[0].strip().lower(), (upload.filename or "").lower()
    fitting = [ending for ending in ENDINGS if name.endswith(ending)]
    ending = max(fitting, key=len) if fitting else TYPES.get(kind)
    if ending is None:
        raise MediaTypeError(f"part {stem.name!r}: the suffix of the file name must be one of {', '.join(ENDINGS)}")
    if any(stem.parent.glob(f"{stem.name}.*")):
        raise InputError(f"part {stem.name!r} occurs twice")
    with open(f"{stem}{ending}", "wb") as file:
        shutil.copyfileobj(upload.file, file)


def read_upload(directory: Path, limits: Limits) -> tuple[NodeTable | None, EdgeTable | None]:
    """Read the tables that :func:`save_upload` wrote to a folder."""
    nodes: list[NodeTable] = []
    edges: list[EdgeTable] = []
    for path in sorted(directory.iterdir(), reverse=True):
        table = path.name.partition(".")[0]
        if table not in (*PARTS, BOTH):
            continue
        if path.name.removesuffix(GZ).endswith(JSON_LINES):
            from ergnn.serve.requests import json_lines

            in_lines = json_lines(read_bytes(path, limits), limits, path.name)
            for other, what in zip(reversed(in_lines), PARTS, strict=True):
                if table == what and other is not None:
                    raise InputError(f"{path.name}: contains more than {what}")
            nodes += [in_lines[0]] if in_lines[0] is not None else []
            edges += [in_lines[1]] if in_lines[1] is not None else []
        elif table == "nodes":
            nodes.append(read_nodes(path, limits=limits))
        else:
            edges.append(read_edges(path, limits=limits))
    if not nodes and not edges:
        raise InputError("an update needs nodes, or edges, or both")
    return nodes[0] if nodes else None, edges[0] if edges else None
