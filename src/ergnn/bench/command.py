"""``ergnn bench``: run the cases, print the table, keep the figures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from ergnn.bench.cases import CASES
from ergnn.bench.measure import Measurement, as_json
from ergnn.errors import InputError, UnknownNameError
from ergnn.report.tables import Table


def bench(names: Iterable[str], threads: Iterable[int], quick: bool = False) -> list[Measurement]:
    """The named cases (all, if none is named), once for each number of threads."""
    chosen = list(names) or list(CASES)
    for name in chosen:
        if name not in CASES:
            raise UnknownNameError("benchmark", name, CASES)
    out = []
    for count in threads:
        torch.set_num_threads(count)
        for name in chosen:
            out += CASES[name](count, quick)
    return out


def bench_table(measurements: list[Measurement], last: dict[str, Any] | None = None) -> Table:
    """Ours, the peer's and their ratio; with an earlier run's file, its ratio too."""
    before = {(m["name"], m["threads"]): m["ratio"] for m in (last or {}).get("measurements", [])}
    rows = []
    for m in measurements:
        ratio = "–" if m.ratio is None else f"{m.ratio:.1f} ×"
        peer = "–" if m.peer is None else f"{m.peer:,.2f} {m.unit}"
        row = [m.name, str(m.threads), f"{m.ours:,.2f} {m.unit}", peer, ratio]
        if last is not None:
            old = before.get((m.name, m.threads))
            row.append("–" if old is None else f"{old:.1f} ×")
        rows.append(row)
    header = ["measured", "threads", "ours", "peer", "peer / ours"] + (["last time"] if last is not None else [])
    return Table(header, rows, align="l" + "r" * (len(header) - 1))


def save(measurements: list[Measurement], path: Path) -> None:
    path.write_text(json.dumps(as_json(measurements), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def load(path: Path) -> dict[str, Any]:
    """An earlier run's figures."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: cannot be read as benchmark figures ({error})") from None
    if not isinstance(found, dict) or "measurements" not in found:
        raise InputError(f"{path}: has no 'measurements'; it is not a file that `ergnn bench --json` wrote")
    return found
