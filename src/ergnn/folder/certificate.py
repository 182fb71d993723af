"""Certificates of deletion: what was removed from a folder, and that neither a byte nor the model depends on it.

Names that only removed nodes had are removed as well.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ergnn import __version__
from ergnn.config.errors import FolderError
from ergnn.config.files import wrap_errors
from ergnn.folder import database
from ergnn.folder.database import VISIBLE, insert, to_json
from ergnn.folder.snapshot import Snapshot, relearned, write_records
from ergnn.folder.spool import spooled_ids
from ergnn.folder.update import short_name

FORMAT = "ergnn deletion certificate 1"
MIN_DISTINCT = 3
"""Ids and features with fewer distinct bytes, or fewer bytes in all, occur by chance: they are not searched for."""
CHUNK = 1 << 22
"""Bytes to search at a time."""
MIN_TEXT = 6
"""Ids and class names of fewer characters are not searched for in names of updates: they also occur by chance."""
TOLERANCE = 1e-8
"""Largest difference of a probability by rounding."""
MAX_NODES = 10_000
"""Nodes whose probabilities are compared at most."""


def make_certificate(snapshot: Snapshot, before: int, traces: Mapping[str, Collection[bytes]]) -> dict[str, Any]:
    """Search a folder that was purged, learn its model from scratch, and certify the result."""
    needles = {text for name, rows in traces.items() for text in (name.encode(), *rows)}
    needles = {text for text in needles if len(text) >= MIN_TEXT and len(set(text)) >= MIN_DISTINCT}
    hits, searched = find_bytes(snapshot, needles)
    if hits:
        raise FolderError(f"{snapshot.root}: no certificate, as bytes of removed nodes are in {', '.join(hits)}")
    salt = secrets.token_hex(16)
    certificate: dict[str, Any] = {
        "format": FORMAT,
        "ergnn": __version__,
        "time": database.now(),
        "salt": salt,
        "removed": sorted(_hash(salt, name) for name in traces),
        "version_before": before,
        "version_after": snapshot.version.number,
        "searched": {**searched, "hits": 0},
        "compared": compare_models(snapshot),
    }
    if not certificate["compared"]["largest_difference"] <= TOLERANCE:
        raise FolderError(f"{snapshot.root}: no certificate, as the model differs: {certificate['compared']}")
    return {**certificate, "digest": digest(certificate)}


def digest(certificate: Mapping[str, Any]) -> str:
    """A digest of all other fields, which the folder's log stores."""
    rest = {name: value for name, value in certificate.items() if name != "digest"}
    return hashlib.sha256(to_json(rest).encode()).hexdigest()


def verify_certificate(snapshot: Snapshot, path: Path) -> dict[str, str | None]:
    """Check a certificate again; returns each statement, and what contradicts it, if anything."""
    with wrap_errors(path, "a certificate of `ergnn forget`"):
        certificate = json.loads(path.read_bytes())
        salt, removed, after = certificate["salt"], set(certificate["removed"]), int(certificate["version_after"])
        genuine = certificate["format"] == FORMAT and certificate["digest"] == digest(certificate)
    connection = snapshot.connection
    rows = connection.execute("SELECT details FROM log WHERE action = 'purge'")
    known = genuine and any(certificate["digest"] in details for (details,) in rows)
    stored = {name for (name,) in connection.execute("SELECT id FROM nodes")}
    ids = {"the database": stored, "the spool": spooled_ids(snapshot.root, snapshot.version.columns)}
    there = [place for place, names in ids.items() if any(_hash(salt, name) in removed for name in names)]
    older = [number for number in database.kept_versions(connection) if number < after]
    damage = database.check_database(connection)
    statements = {
        "the certificate was issued for this folder": None if known else "its digest is not in the folder's log",
        f"none of the {len(removed):,} nodes is there": f"{' and '.join(there)} has some of them" if there else None,
        "no older version is kept": f"versions {older} are" if older else None,
        "the database is intact": "; ".join(damage[:3]) or None,
    }
    if snapshot.learner.exact or snapshot.version.number == after:  # a network that learned more depends on the order
        compared = compare_models(snapshot)
        count, difference = compared["nodes"], compared["largest_difference"]
        wrong = None if difference <= TOLERANCE else f"the largest difference is {difference:.2g}"
        statements[f"the model is that of learning from scratch (probabilities of {count:,} nodes)"] = wrong
    return statements


def compare_models(snapshot: Snapshot) -> dict[str, Any]:
    """The largest difference between probabilities of the model and of one that learns the same graph from scratch."""
    if not snapshot.learner.num_tasks:
        return {"nodes": 0, "largest_difference": 0.0}
    nodes = snapshot.graph.nodes()
    if len(nodes) > MAX_NODES:
        nodes = np.sort(np.random.default_rng(snapshot.settings.seed).permutation(nodes)[:MAX_NODES])
    kept, expected = (each.probabilities(snapshot.graph, nodes) for each in (snapshot, relearned(snapshot)))
    return {"nodes": len(nodes), "largest_difference": float(np.abs(kept - expected).max(initial=0))}


def find_bytes(snapshot: Snapshot, needles: Collection[bytes]) -> tuple[list[str], dict[str, int]]:
    """Files of a folder with bytes of removed nodes, and how much was searched.

    Bytes within an id, a class name or the features of a node that is there do not count, nor do those of settings.
    """
    hits, size, files = [], 0, sorted(path for path in snapshot.root.rglob("*") if path.is_file())
    allowed = _stored_values(snapshot)
    for path in files:
        data = path.read_bytes()
        size += len(data)
        if any(not _is_within(data, at, needle, allowed) for at, needle in _occurrences(data, needles)):
            hits.append(str(path.relative_to(snapshot.root)))
    return hits, {"files": len(files), "bytes": size, "texts": len(needles)}


def _stored_values(snapshot: Snapshot) -> list[bytes]:
    """Ids, class names, features and settings that are there, and the schema."""
    query = f"""SELECT id, columns, features FROM nodes WHERE {VISIBLE} UNION ALL SELECT name, NULL, NULL FROM classes
                UNION ALL SELECT name, value, NULL FROM settings UNION ALL SELECT sql, NULL, NULL FROM sqlite_schema"""
    rows = snapshot.connection.execute(query, {"v": snapshot.version.number})
    values = (value for row in rows for value in row if value is not None)
    return [value.encode() if isinstance(value, str) else value for value in values]


def _occurrences(data: bytes, needles: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
    """Where texts occur, by their first bytes."""
    by_start = defaultdict(list)
    for needle in needles:
        by_start[needle[:MIN_TEXT]].append(needle)
    starts = np.array([int.from_bytes(start, "little") for start in by_start], np.uint64)
    words = np.ndarray(len(data), "<u8", data + bytes(8), strides=(1,))  # eight bytes from each place
    for first in range(0, len(data), CHUNK):
        window = words[first : first + CHUNK] & np.uint64((1 << 8 * MIN_TEXT) - 1)
        for at in (first + np.flatnonzero(np.isin(window, starts))).tolist():
            for needle in by_start[data[at : at + MIN_TEXT]]:
                if data.startswith(needle, at):
                    yield at, needle


def _is_within(data: bytes, at: int, needle: bytes, allowed: list[bytes]) -> bool:
    """Whether an occurrence is part of other bytes that may be there."""
    pattern = re.compile(b"(?=" + re.escape(needle) + b")")  # occurrences may overlap
    places = ((text, match.start()) for text in allowed if needle in text for match in pattern.finditer(text))
    return any(at >= place and data.startswith(text, at - place) for text, place in places)


def _hash(salt: str, name: str) -> str:
    return hashlib.sha256(f"{salt}:{name}".encode()).hexdigest()


def unused_classes(snapshot: Snapshot) -> dict[int, str]:
    """Classes that neither a label nor the model of a version has."""
    used = {*snapshot.graph.labels(snapshot.graph.nodes())[0].tolist(), *snapshot.learner.classes()}
    return {c: name for c, name in enumerate(snapshot.classes) if c not in used}


def clear_names(snapshot: Snapshot, ids: Collection[str]) -> None:
    """Remove the names of unused classes, whose numbers stay in use, and texts that contain them or an id.

    Call it in a transaction, with the only version that is kept.
    """
    connection, number, gone = snapshot.connection, snapshot.version.number, unused_classes(snapshot)
    for c in gone:
        connection.execute("DELETE FROM classes WHERE class = ?", (c,))
    insert(connection, "classes", ((c, f"(removed class {c})", number) for c in gone))
    names = set(gone.values())
    texts = [text for text in (*names, *ids) if len(text) >= MIN_TEXT]
    patterns = [re.compile(rf"(?<!\w){re.escape(short_name(name))}(?!\w)") for name in names]
    for record in snapshot.records:
        cleared: dict[str, Any] = {
            "notes": [note for note in record["notes"] if not any(pattern.search(note) for pattern in patterns)],
            "classes": [name for name in record["classes"] if name not in names],
        }
        if any(text in record["name"] for text in texts):
            cleared["name"] = f"update {record['update'] + 1}"
        if {**record, **cleared} != record:
            connection.execute("DELETE FROM updates WHERE number = ?", (record["update"],))
            write_records(connection, [{**record, **cleared}], number)
    for row, details in connection.execute("SELECT rowid, details FROM log").fetchall():
        if any(text in details or to_json(text)[1:-1] in details for text in texts):
            connection.execute("UPDATE log SET details = '{}' WHERE rowid = ?", (row,))
