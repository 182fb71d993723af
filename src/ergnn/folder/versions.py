"""Versions of a folder: each one whole, with a manifest of checksums; ``CURRENT`` names the good one.

    DIR/CURRENT              which version is the good one, and the checksums of all versions' manifests
    DIR/versions/000017/     manifest.json, settings.json, state.json, weights.safetensors, buffer.safetensors
    DIR/segments/            what versions share: parts of the graph, and a record of each update
    DIR/progress/            an update that is being learnt
    DIR/log.jsonl            when what was done, and how long it took; nothing depends on it

A version is written beside the others, brought to the disk, and becomes current by one rename of ``CURRENT``.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ergnn.folder import files
from ergnn.folder.files import FolderError, VanishedError
from ergnn.folder.records import read_record
from ergnn.folder.segment import FileSegment
from ergnn.folder.settings import Settings
from ergnn.folder.tensors import Array, from_bytes, to_bytes

SCHEMA = 1
PARTS = ("settings.json", "state.json", "weights.safetensors", "buffer.safetensors")
SEGMENT = re.compile(r"[0-9]{6,9}\.safetensors")
RECORD = re.compile(r"[0-9]{6,9}(-[0-9]{1,6})?\.json")
MOST_VERSIONS = 10_000
TRIES = 20


@dataclass(frozen=True)
class Current:
    """What ``CURRENT`` says: the good version, the newest number ever given, and the versions that are kept."""

    version: int
    newest: int
    manifests: dict[int, dict[str, Any]]


@dataclass(eq=False)
class Version:
    """One version, read and checked; segments are open, and stay readable when newer versions replace them."""

    root: Path
    number: int
    settings: Settings
    state: dict[str, Any]
    weights: dict[str, Array]
    buffer: dict[str, Array]
    segment_entries: list[dict[str, Any]]
    record_entries: list[dict[str, Any]]
    sizes: dict[str, int]
    current: Current
    segments: list[FileSegment] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return version_path(self.root, self.number)

    def record(self, update: int) -> dict[str, Any]:
        """What was noted about an update when it was learnt."""
        return read_record(self.root, self.record_entries[update], update)


def version_path(root: Path, number: int) -> Path:
    return root / "versions" / f"{number:06d}"


def read_current(root: Path) -> Current:
    path = root / "CURRENT"
    if not root.is_dir():
        raise FolderError(f"{root}: there is no such folder; `ergnn init {root}` makes a learner there")
    if not os.path.lexists(path):
        raise FolderError(f"{root}: holds no learner (there is no CURRENT in it); `ergnn init` makes one")
    body = files.unseal(files.read_file(path, files.MOST_JSON), path)
    check_schema(body, path)
    listed = files.field(body, "manifests", list, path)
    if len(listed) > MOST_VERSIONS or not all(isinstance(entry, dict) for entry in listed):
        raise FolderError(f"{path}: the list of versions is malformed")
    manifests = {files.number(entry, "version", path, most=10**9): _entry(entry, path) for entry in listed}
    version = files.number(body, "version", path)
    if version not in manifests:
        raise FolderError(f"{path}: version {version} is current but not among those kept")
    return Current(version, files.number(body, "newest", path, least=max(manifests), most=10**9), manifests)


def write_current(root: Path, current: Current) -> None:
    listed = [{**entry, "version": number} for number, entry in sorted(current.manifests.items())]
    body = {"schema": SCHEMA, "version": current.version, "newest": current.newest, "manifests": listed}
    files.replace_file(root / "CURRENT", files.seal(body))


def check_schema(body: dict[str, Any], path: Path) -> None:
    schema = body.get("schema")
    if schema != SCHEMA:
        newer = type(schema) is int and schema > SCHEMA
        hint = "; it was written by a newer ergnn" if newer else ""
        raise FolderError(f"{path}: has schema {str(schema)[:30]!r}; this version of ergnn reads {SCHEMA}{hint}")


def open_version(root: Path, number: int | None = None) -> Version:
    """Read a version (by default the current one). If it is replaced and removed meanwhile, read its successor."""
    for attempt in range(TRIES):
        current = read_current(root)
        wanted = current.version if number is None else number
        if wanted not in current.manifests:
            kept = ", ".join(map(str, sorted(current.manifests)))
            raise FolderError(f"{root}: version {wanted} is not kept; versions {kept} are")
        try:
            return _read_version(root, wanted, current)
        except VanishedError:
            if attempt == TRIES - 1 or read_current(root).manifests.get(wanted) == current.manifests[wanted]:
                raise
    raise AssertionError


def _read_version(root: Path, number: int, current: Current) -> Version:
    folder = version_path(root, number)
    path = folder / "manifest.json"
    entry = current.manifests[number]
    manifest = files.from_json(files.read_file(path, files.MOST_JSON, entry["bytes"], entry["sha256"]), path)
    check_schema(manifest, path)
    if manifest.get("version") != number:
        raise FolderError(f"{path}: is the manifest of version {str(manifest.get('version'))[:30]}, not {number}")
    listed = files.field(manifest, "files", dict, path)
    if set(listed) != set(PARTS):
        raise FolderError(f"{path}: lists {', '.join(sorted(listed))[:100]}; {', '.join(PARTS)} were expected")
    segments, records = _entries(manifest, "segments", SEGMENT, path), _entries(manifest, "records", RECORD, path)
    most = files.MOST_JSON
    raw = {}
    settings = None
    for name in PARTS:  # the settings come first: they say how large the others may be
        part = _entry(listed[name], path)
        raw[name] = files.read_file(folder / name, most, part["bytes"], part["sha256"])
        if settings is None:
            settings = Settings.from_dict(files.from_json(raw[name], folder / name), folder / name)
            most = settings.limits.bytes
    assert settings is not None
    version = Version(
        root,
        number,
        settings,
        files.from_json(raw["state.json"], folder / "state.json"),
        from_bytes(raw["weights.safetensors"], folder / "weights.safetensors")[0],
        from_bytes(raw["buffer.safetensors"], folder / "buffer.safetensors")[0],
        segments,
        records,
        _sizes(raw, segments, records),
        current,
    )
    for segment in segments:
        version.segments.append(open_segment(root / "segments" / segment["name"], segment))
    return version


def _sizes(raw: dict[str, bytes], segments: list[dict[str, Any]], records: list[dict[str, Any]]) -> dict[str, int]:
    """Bytes on disk by part."""
    own = {name.partition(".")[0]: len(data) for name, data in raw.items()}
    shared = {"graph": segments, "records": records}
    return own | {name: sum(entry["bytes"] for entry in entries) for name, entries in shared.items()}


def open_segment(path: Path, entry: dict[str, Any]) -> FileSegment:
    return FileSegment(path, entry["bytes"], entry["payload"], entry["root"])


def _entry(entry: Any, path: Path) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise FolderError(f"{path}: an entry is malformed")
    found = {"bytes": files.number(entry, "bytes", path), "sha256": files.field(entry, "sha256", str, path)}
    return found


def _entries(manifest: dict[str, Any], name: str, pattern: re.Pattern[str], path: Path) -> list[dict[str, Any]]:
    """Files in ``segments/``; their names cannot lead anywhere else."""
    out = []
    for entry in files.field(manifest, name, list, path):
        if not isinstance(entry, dict) or not pattern.fullmatch(str(entry.get("name"))):
            raise FolderError(f"{path}: {name} has an entry that names no file of ours: {str(entry)[:80]}")
        out.append(check_entry(entry, path, segment=pattern is SEGMENT))
    return out


def check_entry(entry: dict[str, Any], path: Path, segment: bool = True) -> dict[str, Any]:
    name = files.field(entry, "name", str, path)
    if not segment:
        return {"name": name, **_entry(entry, path)}
    sizes = {key: files.number(entry, key, path, least=1) for key in ("bytes", "payload")}
    return {"name": name, **sizes, "root": files.field(entry, "root", str, path)}


def write_version(
    root: Path,
    number: int,
    settings: Settings,
    state: dict[str, Any],
    weights: dict[str, Array],
    buffer: dict[str, Array],
    segments: list[dict[str, Any]],
    records: list[dict[str, Any]],
    parent: Current | None,
) -> Current:
    """Write a version and make it the current one; drop versions beyond those kept, and what only they used."""
    folder = version_path(root, number)
    shutil.rmtree(folder, ignore_errors=True)  # left by a writer that was killed before it was done
    folder.mkdir(parents=True)
    parts = {
        "settings.json": files.to_json(settings.to_dict()),
        "state.json": files.to_json(state),
        "weights.safetensors": to_bytes(weights),
        "buffer.safetensors": to_bytes(buffer),
    }
    listed = {name: {"bytes": len(data), "sha256": files.checksum(data)} for name, data in parts.items()}
    manifest = {"schema": SCHEMA, "version": number, "files": listed, "segments": segments, "records": records}
    manifest["parent"] = None if parent is None else parent.version
    parts["manifest.json"] = files.to_json(manifest)
    for name, data in parts.items():
        files.write_file(folder / name, data)
    for place in (folder, folder.parent, root / "segments"):
        files.sync_folder(place)
    data = parts["manifest.json"]
    manifests = {} if parent is None else dict(parent.manifests)
    manifests[number] = {"bytes": len(data), "sha256": files.checksum(data)}
    kept = {n: manifests[n] for n in sorted(manifests)[-settings.keep :]}
    current = Current(number, number, kept)
    write_current(root, current)
    tidy(root, current)
    return current


def tidy(root: Path, current: Current) -> None:
    """Remove what no kept version needs: versions that were dropped or never finished, and their segments."""
    needed: set[str] = set()
    for number, entry in current.manifests.items():
        path = version_path(root, number) / "manifest.json"
        manifest = files.from_json(files.read_file(path, files.MOST_JSON, entry["bytes"], entry["sha256"]), path)
        for name, pattern in (("segments", SEGMENT), ("records", RECORD)):
            needed |= {part["name"] for part in _entries(manifest, name, pattern, path)}
    kept = {version_path(root, number).name for number in current.manifests}
    for folder in (root / "versions").iterdir():
        if folder.name not in kept:
            shutil.rmtree(folder, ignore_errors=True)
    for file in (root / "segments").iterdir():
        if file.name not in needed:
            file.unlink(missing_ok=True)
