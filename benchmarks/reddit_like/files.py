"""The files of a Reddit-like graph: written block by block and atomically, read by memory mapping."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.reddit_like.edges import Ends, ascending, link_blocks
from benchmarks.reddit_like.spec import BLOCK, RedditLike
from ergnn.config.errors import InputError
from ergnn.data.csr import mapped

FORMAT = 1
"""Incremented with every change of the bits that a seed gives."""
MANIFEST = "manifest.json"
FILES = {"rowptr": np.int64, "col": np.int32, "x": np.float32, "y": np.int64, "split": np.int8}
LINKS = 1 << 20
"""Links drawn, and directed edges sorted, per block: bounds the memory."""
ENTRIES = 1 << 22
"""Feature values generated per block."""


@dataclass(frozen=True, eq=False)
class GraphFiles:
    """Tensors over memory-mapped files; only the parts that are used are loaded."""

    rowptr: Tensor
    col: Tensor
    x: Tensor
    y: Tensor
    split: Tensor
    manifest: dict[str, Any]


def write_files(spec: RedditLike, folder: Path, device: torch.device | str = "cpu") -> Path:
    """Generate a graph's files in ``folder``, which appears once they are complete; an existing folder is kept.

    Args:
        device: device to compute on; the bits are the same on every device.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        stage = Path(scratch) / "files"
        stage.mkdir()
        ends = Ends(spec, device)
        runs = _write_runs(spec, ends, Path(scratch))
        directed = sum(run.stat().st_size for run in runs) // 8
        sums = {**_write_adjacency(spec, runs, directed, stage, device), **_write_nodes(spec, ends, stage, device)}
        manifest = {"format": FORMAT, **spec.to_dict(), "edges_written": directed, "sha256": sums}
        (stage / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        try:
            os.rename(stage, folder)
        except OSError:
            if not (folder / MANIFEST).is_file():  # else another process was faster
                raise
    return folder


def read_files(folder: Path) -> GraphFiles:
    """Memory-map a graph's files and check their sizes; :func:`verify_files` checks contents."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in FILES}
        n, m, f = manifest["nodes"], manifest["edges_written"], manifest["features"]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{folder}: not the files of a Reddit-like graph ({error})") from error
    if manifest.get("format") != FORMAT:
        raise InputError(f"{folder}: format is {manifest.get('format')!r}; this version of ergnn reads {FORMAT}")
    shapes = {"rowptr": (n + 1,), "col": (m,), "x": (n, f), "y": (n,), "split": (n,)}
    for name, array in arrays.items():
        if array.shape != shapes[name] or array.dtype != FILES[name]:
            raise InputError(
                f"{folder / name}.npy: has shape {array.shape} and type {array.dtype}; expected {shapes[name]} and "
                f"{np.dtype(FILES[name])}"
            )
    return GraphFiles(**{name: mapped(folder / f"{name}.npy") for name in FILES}, manifest=manifest)


def verify_files(folder: Path) -> None:
    """Read every byte and compare it with the checksums in the manifest."""
    manifest = read_files(folder).manifest
    for name, wanted in manifest["sha256"].items():
        with open(folder / f"{name}.npy", "rb") as file:
            digest = hashlib.sha256()
            while block := file.read(1 << 20):
                digest.update(block)
        if digest.hexdigest() != wanted:
            raise InputError(
                f"{folder / name}.npy: damaged: its SHA-256 is {digest.hexdigest()}, but the manifest has {wanted}"
            )


class NpyWriter:
    """Writes an array sequentially and computes its SHA-256."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        head = io.BytesIO()
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(head, header)
        self.sum = hashlib.sha256(head.getvalue())
        self.file = path.open("wb")
        self.file.write(head.getvalue())

    def __enter__(self) -> NpyWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        self.file.close()

    def write(self, part: Tensor) -> None:
        data = np.ascontiguousarray(part.cpu().numpy().astype(self.dtype, copy=False)).data.cast("B")
        self.file.write(data)
        self.sum.update(data)


def _write_runs(spec: RedditLike, ends: Ends, folder: Path) -> list[Path]:
    """Write both directions of every link as keys ``row · n + col``, one file per range of rows."""
    device = ends.upto.device
    count = -(-2 * spec.links // LINKS)
    upto = ends.begun.cumsum(0)
    marks = torch.arange(1, count, device=device) * spec.links // count
    bounds = (torch.searchsorted(upto, marks, right=True) + 1).unique() * spec.nodes
    paths = [folder / f"run-{i}" for i in range(bounds.numel() + 1)]
    with ExitStack() as stack:
        files = [stack.enter_context(open(path, "wb")) for path in paths]
        for keys in link_blocks(ends, LINKS):
            begin, end = keys // spec.nodes, keys % spec.nodes
            both = ascending(torch.cat([keys, end * spec.nodes + begin]))
            cuts = [0, *torch.searchsorted(both, bounds).tolist(), both.numel()]
            host = both.cpu().numpy()
            for file, a, b in zip(files, cuts[:-1], cuts[1:], strict=True):
                file.write(host[a:b].data)
    return paths


def _write_adjacency(
    spec: RedditLike, runs: list[Path], directed: int, folder: Path, device: torch.device | str
) -> dict[str, str]:
    n = spec.nodes
    degree = torch.zeros(n, dtype=torch.int64)
    with NpyWriter(folder / "col.npy", (directed,), FILES["col"]) as col:
        for run in runs:
            keys = torch.from_numpy(np.fromfile(run, dtype=np.int64)).to(device)
            run.unlink()
            keys = ascending(keys)
            col.write((keys % n).to(torch.int32))
            if keys.numel():
                rows = (keys // n).cpu()
                low = int(rows[0])
                count = torch.bincount(rows - low)
                degree[low : low + count.numel()] += count
    with NpyWriter(folder / "rowptr.npy", (n + 1,), FILES["rowptr"]) as rowptr:
        rowptr.write(torch.cat([degree.new_zeros(1), degree.cumsum(0)]))
    return {"col": col.sum.hexdigest(), "rowptr": rowptr.sum.hexdigest()}


def _write_nodes(spec: RedditLike, ends: Ends, folder: Path, device: torch.device | str) -> dict[str, str]:
    sums = {}
    for name, make in (("y", spec.labels), ("split", spec.splits)):
        with NpyWriter(folder / f"{name}.npy", (spec.nodes,), FILES[name]) as file:
            for a, b in _blocks(spec.nodes, BLOCK):
                file.write(make(a, b, device))
        sums[name] = file.sum.hexdigest()
    with NpyWriter(folder / "x.npy", (spec.nodes, spec.features), FILES["x"]) as x:
        for a, b in _blocks(spec.nodes, max(1, ENTRIES // spec.features)):
            x.write(spec.node_features(a, b, ends.community[a:b]))
    return {**sums, "x": x.sum.hexdigest()}


def _blocks(count: int, size: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + size, count)) for start in range(0, count, size))
