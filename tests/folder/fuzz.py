"""Mutated folders: each must be refused with an ergnn error, or read correctly.

    python fuzz.py BASE PLACE SEED COUNT

runs in a process that may take 1 GB of memory, and prints what happened as JSON. Half of the mutations are *signed*:
all checksums are made right again afterwards, as somebody who means harm would; of those only a clean end is asked.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

SHOWN = ["n0", "n17", "n41", "n79"]
WILD = ["-1", "0", "1", "4096", "1e308", "9" * 30, str(2**31), str(2**40), str(2**62), "null", "true", "[]", "{}"]
WORDS = ['"../../../../etc/passwd"', '"/etc/passwd"', '""', '"' + "x" * 5000 + '"', '"\\u0000"', '"gat"', '"random"']


def mutate(data: bytes, rng: np.random.Generator, text: bool) -> bytes:
    """One mutation of a file's content."""
    kind = rng.integers(0, 9 if text else 6)
    at = int(rng.integers(0, max(len(data), 1)))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + rng.bytes(int(rng.integers(1, 40))) + data[at:]
    if kind == 2:
        return data[:at] + data[at + int(rng.integers(1, 40)) :]
    if kind == 3:
        return rng.bytes(int(rng.integers(0, 200)))
    if kind in (4, 5):
        broken = bytearray(data or b"\0")
        for place in rng.integers(0, len(broken), int(rng.integers(1, 6))):
            broken[place] = int(rng.integers(256)) if kind == 4 else broken[place] ^ (1 << int(rng.integers(8)))
        return bytes(broken)
    found = list(re.finditer(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?" if kind < 8 else rb'"[^"]*"', data))
    if not found:
        return data + b"{"
    hit = found[int(rng.integers(len(found)))]
    words = WILD if kind < 8 else WORDS
    return data[: hit.start()] + words[int(rng.integers(len(words)))].encode() + data[hit.end() :]


def mutate_header(data: bytes, rng: np.random.Generator) -> bytes:
    """A number or a word in the header of a safetensors file, with the header's length set right."""
    length = int.from_bytes(data[:8], "little")
    header = mutate(data[8 : 8 + length], rng, True)
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def replace(path: Path, rng: np.random.Generator) -> None:
    """Another kind of thing in the place of a file."""
    path.unlink()
    kind = rng.integers(4)
    if kind == 0:
        path.symlink_to("/etc/passwd")
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        os.mkfifo(path)


def _entry(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _canonical(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def sign(root: Path) -> None:
    """Make every checksum right; what cannot be read as JSON is left as it is."""
    current = json.loads((root / "CURRENT").read_bytes())
    for listed in current["body"]["manifests"]:
        folder = root / "versions" / f"{listed['version']:06d}"
        try:
            manifest = json.loads((folder / "manifest.json").read_bytes())
            for name, entry in manifest["files"].items():
                entry.update(_entry((folder / name).read_bytes()))
            for entry in manifest["records"]:
                entry.update(_entry((root / "segments" / entry["name"]).read_bytes()))
            for entry in manifest["segments"]:
                sign_segment(root / "segments" / entry["name"], entry)
            (folder / "manifest.json").write_bytes(_canonical(manifest))
        except (ValueError, TypeError, KeyError, AttributeError, OSError):
            pass
        if (folder / "manifest.json").is_file():
            listed.update(_entry((folder / "manifest.json").read_bytes()))
    (root / "CURRENT").write_bytes(_sealed(current["body"]))
    for path in root.glob("progress/*.json"):
        try:
            body = json.loads(path.read_bytes())["body"]
            if path.name == "update.json":
                sign_segment(path.with_name("update.safetensors"), body["segment"])
            else:
                body.update(_entry(path.with_name(body["name"]).read_bytes()))
            path.write_bytes(_sealed(body))
        except (ValueError, TypeError, KeyError, AttributeError, OSError):
            pass


def _sealed(body: Any) -> bytes:
    return _canonical({"body": body, "sha256": hashlib.sha256(_canonical(body)).hexdigest()})


def sign_segment(path: Path, entry: dict[str, Any]) -> None:
    data = path.read_bytes()
    payload = min(entry["payload"], len(data))
    blocks = [hashlib.sha256(data[i : min(i + 4096, payload)]).digest() for i in range(0, payload, 4096)]
    digests = b"".join(blocks)
    path.write_bytes(data[:payload] + digests)
    entry.update(bytes=payload + len(digests), payload=payload, root=hashlib.sha256(digests).hexdigest())


def ask(root: Path) -> Any:
    """Everything a reader asks, and what a writer does with an update that was interrupted."""
    from ergnn.folder import LearnerFolder

    folder = LearnerFolder(root)
    answers = [[ids, names, p.round(4).tolist()] for ids, names, p in folder.predict(SHOWN)]
    found = folder.inspect()
    found.pop("log")
    found["folder"] = ""
    if (root / "progress").is_dir():
        folder.resume()
        answers += [[ids, names, p.round(4).tolist()] for ids, names, p in folder.predict(SHOWN)]
    return json.loads(json.dumps([answers, found]))


def main(base: Path, place: Path, seed: int, count: int) -> None:
    import torch

    from ergnn.errors import ErgnnError
    from ergnn.experiments.run import peak_memory_mb

    torch.set_num_threads(1)
    right = {kind: ask(shutil.copytree(base / kind, place / f"right-{kind}")) for kind in ("whole", "begun")}
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmSize"):
            limit = int(line.split()[1]) * 1024 + (1 << 30)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    result: dict[str, Any] = {"refused": 0, "read": 0, "wrong": []}
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        kind = "begun" if number % 4 == 0 else "whole"
        root = shutil.copytree(base / kind, place / "case" / "d")
        files = sorted(p for p in root.rglob("*") if p.is_file() and p.name not in ("lock", "log.jsonl"))
        files = [p for p in files if "progress" in p.parts] if kind == "begun" else files
        path = files[int(rng.integers(len(files)))]
        signed = bool(rng.integers(2))
        data = path.read_bytes()
        if not signed and rng.random() < 0.1:
            replace(path, rng)
        elif path.suffix == ".safetensors" and rng.random() < 0.4:
            path.write_bytes(mutate_header(data, rng))
        else:
            path.write_bytes(mutate(data, rng, path.suffix != ".safetensors"))
        if signed and path.name != "CURRENT":
            sign(root)
        signal.alarm(60)
        try:
            answer = ask(root)
            fine = signed or answer == right[kind]
            result["read"] += fine
            if not fine:
                result["wrong"].append([number, path.name, "read wrongly"])
        except ErgnnError:
            result["refused"] += 1
        except BaseException as error:
            result["wrong"].append([number, path.name, f"{type(error).__name__}: {error}"[:300]])
        signal.alarm(0)
        if sorted(p.name for p in (place / "case").iterdir()) != ["d"]:
            result["wrong"].append([number, path.name, "a file outside of the folder"])
        shutil.rmtree(place / "case")
    result["peak_mb"] = peak_memory_mb()
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
