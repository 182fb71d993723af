"""What is noted about each update when it is learnt, in a file of its own that never changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ergnn.folder import files
from ergnn.folder.files import FolderError

COUNTS = ("nodes", "edges", "train", "val", "test")


def write_record(root: Path, name: str, record: dict[str, Any]) -> dict[str, Any]:
    """Write a record, and say how the manifest has to name it."""
    data = files.to_json(record)
    path = root / "segments" / f"{name}.json"
    files.write_file(path, data)
    return {"name": path.name, "bytes": len(data), "sha256": files.checksum(data)}


def read_record(root: Path, entry: dict[str, Any], update: int) -> dict[str, Any]:
    """The record of an update, if it is one."""
    path = root / "segments" / entry["name"]
    record = files.from_json(files.read_file(path, files.MOST_JSON, entry["bytes"], entry["sha256"]), path)
    if record.get("update") != update:
        raise FolderError(f"{path}: is the record of update {str(record.get('update'))[:30]}, not {update}")
    files.field(record, "name", str, path)
    for name in ("touched", "remembered"):
        files.number(record, name, path)
    for name, keys in (("counts", COUNTS), ("graph", ("nodes", "edges"))):
        inner = files.field(record, name, dict, path)
        for key in keys:
            files.number(inner, key, path)
    if record.get("task") is not None:
        files.number(record, "task", path)
    if record.get("drift") is not None:
        files.field(record, "drift", float, path)
    if not all(isinstance(name, str) for name in files.field(record, "classes", list, path)):
        raise FolderError(f"{path}: a class is not named by text")
    for score in files.field(record, "scores", list, path):
        fits = isinstance(score, list) and len(score) == 3 and all(type(n) is int and 0 <= n < 2**40 for n in score)
        if not fits or not score[1] <= score[2] or not score[2] or score[0] > update:
            raise FolderError(f"{path}: {str(score)[:60]!r} is no score; update, right, of was expected")
    return record
