"""Mutated databases: each must be refused with an ergnn error, or read correctly.

``fuzz`` runs in a process that may take 1 GB of memory. Half of the mutations hit bytes of the file; the others put
wild values into rows and then make the row's checksum right again, as somebody who means harm would: of those only a
clean end is asked.
"""

import json
import os
import resource
import shutil
import signal
import sqlite3
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from ergnn.config.errors import ErgnnError
from ergnn.folder import LearnerFolder
from ergnn.folder.database import FILE, checksum
from ergnn.lab.run import peak_memory_mb

SHOWN = ["n0", "n17", "n41", "n79"]
WILD: list[Any] = [-1, 0, 1, 4096, 2**31, 2**40, 2**62, -(2**62), 1e308]
WILD += [None, "", "[]", "{}", "null", "../../x", b"", b"\0" * 7]


def mutate_bytes(path: Path, rng: np.random.Generator) -> None:
    """Change the file as bad disks and bad copies do."""
    data = path.read_bytes()
    kind, at = rng.integers(0, 8), int(rng.integers(0, len(data)))
    if kind == 0:
        path.write_bytes(data[:at])
    elif kind == 1:
        path.write_bytes(data[:at] + rng.bytes(int(rng.integers(1, 40))) + data[at:])
    elif kind == 2:
        path.write_bytes(data[:at] + data[at + int(rng.integers(1, 5000)) :])
    elif kind == 3:
        path.unlink()
        [lambda: path.symlink_to("/etc/passwd"), path.mkdir, lambda: os.mkfifo(path), lambda: None][rng.integers(4)]()
    else:
        broken = bytearray(data)
        start = at if kind == 4 else at // 4096 * 4096  # the start of a page holds its structure
        span = len(data) if kind == 5 else min(start + 120, len(data)) - start
        for place in rng.integers(0, max(span, 1), int(rng.integers(1, 8))):
            broken[(start + place) % len(data)] = int(rng.integers(256))
        path.write_bytes(broken)


def mutate_row(path: Path, rng: np.random.Generator) -> None:
    """Put a wild value into a row, or part of another JSON text, and make the checksum right."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    filled = [name for name in tables if connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]]
    table = filled[int(rng.integers(len(filled)))]
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    rows = connection.execute(f"SELECT * FROM {table}").fetchall()
    row = dict(zip(columns, rows[int(rng.integers(len(rows)))], strict=True))
    where, keys = " AND ".join(f"{name} IS ?" for name in columns), list(row.values())
    name = columns[int(rng.integers(len(columns)))]
    value = row[name]
    if isinstance(value, str | bytes) and rng.random() < 0.7:
        raw = bytearray(value.encode() if isinstance(value, str) else value)
        for place in rng.integers(0, max(len(raw), 1), 3):
            if raw:
                raw[place] = int(rng.integers(32, 127))
        value = raw.decode("utf-8", "replace") if isinstance(value, str) else bytes(raw)
    else:
        value = WILD[int(rng.integers(len(WILD)))]
    row[name] = value
    if "checksum" in row:
        row["checksum"] = checksum(*(v for k, v in row.items() if k not in ("removed", "checksum")))
    try:
        connection.execute(
            f"UPDATE {table} SET {', '.join(f'{k} = ?' for k in row)} WHERE {where}", [*row.values(), *keys]
        )
        connection.commit()
    except (sqlite3.Error, OverflowError):  # not a value that this column can hold
        pass
    connection.close()


def ask(root: Path) -> Any:
    """Everything a reader asks, and what a writer does with an update that was interrupted."""
    folder = LearnerFolder(root)
    answers = [[ids, names, p.round(4).tolist()] for ids, names, p in folder.predict(SHOWN)]
    answers += [[record["name"], score] for record, score in folder.evaluate()]
    found = folder.inspect()
    found.pop("log")
    found["folder"] = found["bytes"] = ""
    if folder.resume() is not None:
        answers += [[ids, names, p.round(4).tolist()] for ids, names, p in folder.predict(SHOWN)]
    return json.loads(json.dumps([answers, found]))


def fuzz(send: Connection, base: Path, place: Path, seed: int, count: int) -> None:
    warnings.simplefilter("ignore")
    right = {kind: ask(shutil.copytree(base / kind, place / f"right-{kind}")) for kind in ("whole", "begun")}
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmSize"):
            limit = int(line.split()[1]) * 1024 + (1 << 30)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    result: dict[str, Any] = {"refused": 0, "read": 0, "wrong": []}
    before = peak_memory_mb()  # libraries, and two intact folders
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        kind = "begun" if number % 4 == 0 else "whole"
        root = shutil.copytree(base / kind, place / "case" / "d")
        path, signed = root / FILE, bool(rng.integers(2))
        (mutate_row if signed else mutate_bytes)(path, rng)
        signal.alarm(60)
        try:
            answer = ask(root)
            fine = signed or answer == right[kind]
            result["read"] += fine
            if not fine:
                result["wrong"].append([number, signed, "read wrongly"])
        except ErgnnError:
            result["refused"] += 1
        except BaseException as error:
            result["wrong"].append([number, signed, f"{type(error).__name__}: {error}"[:300]])
        signal.alarm(0)
        if sorted(p.name for p in (place / "case").iterdir()) != ["d"]:
            result["wrong"].append([number, signed, "a file outside of the folder"])
        shutil.rmtree(place / "case")
    result["extra_mb"] = peak_memory_mb() - before
    send.send(result)
