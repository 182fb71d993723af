"""Run cases, build the table, save and load results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from benchmarks.cases import CASES
from benchmarks.measure import Measurement, as_json
from ergnn.config.errors import InputError, UnknownNameError
from ergnn.pages.table import Table


def bench(
    names: Iterable[str],
    threads: Iterable[int],
    quick: bool = False,
    on_case: Callable[[list[Measurement]], None] | None = None,
) -> list[Measurement]:
    """Run the named cases (by default all), once per number of threads.

    Args:
        on_case: called with all measurements so far, after each case.
    """
    chosen = list(names) or list(CASES)
    for name in chosen:
        if name not in CASES:
            raise UnknownNameError("benchmark", name, CASES)
    out: list[Measurement] = []
    before = torch.get_num_threads()
    try:
        for count in threads:
            torch.set_num_threads(count)
            for name in chosen:
                out += CASES[name](count, quick)
                if on_case is not None:
                    on_case(out)
    finally:
        torch.set_num_threads(before)
    return out


def bench_table(measurements: list[Measurement], last: dict[str, Any] | None = None) -> Table:
    """Build a table of our values, the reference's, and their ratio, with the ratio of an earlier run if given."""
    before = {(m["name"], m["threads"]): m["ratio"] for m in (last or {}).get("measurements", [])}
    rows = []
    for m in measurements:
        peer = "–" if m.peer is None else f"{m.peer:,.2f} {m.unit}"
        row = [m.name, str(m.threads), f"{m.ours:,.2f} {m.unit}", peer, _times(m.ratio)]
        if last is not None:
            row.append(_times(before.get((m.name, m.threads))))
        rows.append(row)
    header = ["measured", "threads", "ours", "reference", "reference / ours"] + (
        ["earlier"] if last is not None else []
    )
    return Table(header, rows, align="l" + "r" * (len(header) - 1))


def _times(ratio: float | None) -> str:
    if ratio is None:
        return "–"
    return f"{ratio:.2f} ×" if ratio < 10 else f"{ratio:.1f} ×"


def case_list() -> str:
    """List every case and what it measures, one per line."""
    return "\n".join(f"{name:<10} {(function.__doc__ or '').splitlines()[0]}" for name, function in CASES.items())


def save(measurements: list[Measurement], path: Path, quick: bool = False) -> None:
    path.write_text(json.dumps(as_json(measurements, quick), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def load(path: Path, quick: bool | None = None) -> dict[str, Any]:
    """Load the results of an earlier run; with ``quick``, raise an error for those of the other kind of run."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: cannot be read as benchmark results ({error})") from None
    if not isinstance(found, dict) or "measurements" not in found:
        raise InputError(f"{path}: has no 'measurements'; it was not written by `python -m benchmarks --json`")
    kind = bool(found.get("quick", False))
    if quick is not None and kind != quick:
        theirs, ours = ("quick", "full") if kind else ("full", "quick")
        raise InputError(
            f"{path}: has the results of a {theirs} run, but this is a {ours} run with other sizes and repeats; "
            f"{'add' if kind else 'remove'} --quick"
        )
    return found


def measurements_of(found: dict[str, Any]) -> list[Measurement]:
    """Return the measurements of a loaded file."""
    names = {field.name for field in fields(Measurement)}
    return [Measurement(**{key: row[key] for key in names & row.keys()}) for row in found["measurements"]]
