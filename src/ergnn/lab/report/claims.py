"""Tests of the paper's claims by paired differences between stored runs.

Two rows are compared over the seeds and class orders that both have. A claim *holds* if the 95 % interval of the mean
difference supports it, *fails* if the interval supports the opposite, and is *open* if the interval contains zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ergnn.lab.report.rows import SELECTORS, ResultRow, Setting
from ergnn.lab.report.tables import signed
from ergnn.learning.metrics import Summary
from ergnn.pages.table import with_interval

NEAR = 0.03
"""Largest difference between a plain network's PM and the paper's that still counts as agreement."""
MAX_PM_LOSS = 0.01
"""A loss of PM whose interval is below this value counts as zero."""
OUR_SELECTORS = ("la-ridge", "s2-ridge", "rim")


@dataclass(frozen=True)
class Finding:
    """A claim, the finding on one data set, and its verdict on the claim (``holds``, ``fails``, ``open``)."""

    claim: str
    text: str
    verdict: str


def claims_of(setting: Setting) -> dict[str, dict[str, Finding]]:
    """Return every claim that the rows of a setting can test, and the finding on each data set."""
    claims: dict[str, dict[str, Finding]] = {}
    for dataset in setting.datasets:
        for finding in _findings(setting.of(dataset)):
            claims.setdefault(finding.claim, {})[dataset] = finding
    return claims


def _findings(rows: Sequence[ResultRow]) -> Iterator[Finding]:
    plain = _find(rows, "gat", "finetune")
    replay = {name: row for name in SELECTORS if (row := _find(rows, "gat", "replay", name))}
    ours = [row for name in OUR_SELECTORS if (row := _find(rows, "gat", "replay", name))]
    others = [row for name, row in replay.items() if name != "im"]
    yield from _baselines(rows)
    yield from _forgets_less("Replay forgets less than no replay", replay.get("random"), plain)
    yield from _choice_helps(replay)
    yield from _forgets_less("IM forgets least of the paper's selectors", replay.get("im"), _least_forgetting(others))
    yield from _costs_nothing(list(replay.values()), plain)
    few, many = _smallest_and_largest_memory(rows)
    yield from _forgets_less("More memory means less forgetting", many, few)
    yield from _forgets_less("Our best selector forgets less than MF*", _least_forgetting(ours), replay.get("mf*"))
    images = [_find(rows, "mlp", "replay", "im"), *(_find(rows, "mlp", name) for name in ("gem", "ewc", "finetune"))]
    for better, worse in pairwise(images):  # the order of table 4
        if better and worse:
            yield from _forgets_less(f"{better.short_name} forgets less than {worse.short_name}", better, worse)


def _baselines(rows: Sequence[ResultRow]) -> Iterator[Finding]:
    plain = [(row, row.paper.get("pm")) for row in rows if row.method == "finetune" and row.paper]
    known = [(row, pm) for row, pm in plain if pm is not None]
    if known:
        far = [row.name for row, pm in known if abs(row.pm.mean - pm) > NEAR]
        text = f"PM within 3 points of the paper's for {len(known) - len(far)} of {len(known)}"
        text += f"; not {', '.join(far)}" if far else ""
        yield Finding("Networks without replay score as in the paper", text, "fails" if far else "holds")


def _choice_helps(replay: dict[str, ResultRow]) -> Iterator[Finding]:
    chance = replay.get("random")
    gaps = {row.short_name: row.paired(chance) for row in replay.values() if chance and row is not chance}
    sides = {name: _side(gap) for name, gap in gaps.items() if gap}
    if sides:
        below, above = ([name for name, side in sides.items() if side == wanted] for wanted in (-1, 1))
        text = f"{len(below)} of {len(sides)} selectors forget clearly less than Random"
        text += f" ({', '.join(below)})" if below else ""
        text += f"; clearly more: {', '.join(above)}" if above else ""
        verdict = "holds" if len(below) == len(sides) else "fails" if above else "open"
        yield Finding("Selection beats random choice", text, verdict)


def _costs_nothing(replay: Sequence[ResultRow], plain: ResultRow | None) -> Iterator[Finding]:
    best = max(replay, key=lambda row: row.pm.mean, default=None)
    gap = best.paired(plain, "pm") if best and plain else None
    if best and gap:
        sure = gap.ci95 is not None and gap.mean - gap.ci95 > -MAX_PM_LOSS
        verdict = "holds" if sure else "fails" if _side(gap) < 0 else "open"
        text = f"best PM: {best.name}, {signed(with_interval(gap))} points compared with no replay"
        yield Finding("Replay costs no performance", text, verdict)


def _forgets_less(claim: str, row: ResultRow | None, other: ResultRow | None) -> Iterator[Finding]:
    gap = row.paired(other, "fm") if row and other else None
    if row and other and gap:
        text = f"{row.name}: {signed(with_interval(gap))} points of FM compared with {other.name}"
        yield Finding(claim, text, {-1: "holds", 1: "fails", 0: "open"}[_side(gap)])


def _least_forgetting(rows: Sequence[ResultRow]) -> ResultRow | None:
    return min(rows, key=lambda row: row.fm.mean, default=None)


def _smallest_and_largest_memory(rows: Sequence[ResultRow]) -> tuple[ResultRow | None, ResultRow | None]:
    """Of the selector with the most values of e."""
    by_selector: dict[str | None, list[ResultRow]] = {}
    for row in rows:
        if row.method == "replay" and row.backbone == "gat" and not row.special:
            by_selector.setdefault(row.selector, []).append(row)
    most = max(by_selector.values(), key=lambda group: len(group), default=[])
    swept = sorted(most, key=lambda row: row.per_class)
    return (swept[0], swept[-1]) if len(swept) > 1 else (None, None)


def _side(gap: Summary) -> int:
    """Return the sign of a difference whose interval excludes zero, or 0."""
    if gap.ci95 is None or abs(gap.mean) <= gap.ci95:
        return 0
    return 1 if gap.mean > 0 else -1


def _find(rows: Sequence[ResultRow], backbone: str, method: str, selector: str | None = None) -> ResultRow | None:
    """Find the row with e = 1 and no special options."""
    for row in rows:
        same = (row.backbone, row.method) == (backbone, method) and selector in (None, row.selector)
        if same and row.per_class == 1 and not row.special:
            return row
    return None
