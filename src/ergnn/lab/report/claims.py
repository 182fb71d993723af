"""Tests of the paper's claims by paired differences between stored runs.

Two rows are compared over the seeds and class orders that both have. A claim *holds* if the 95 % interval of the mean
difference supports it, *fails* if the interval supports the opposite, and is *open* if the interval contains zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ergnn.lab.report.rows import SELECTORS, Row
from ergnn.lab.report.settings import Setting
from ergnn.learning.metrics import Summary

NEAR = 0.03
"""Largest difference between a plain network's PM and the paper's that still counts as agreement."""
MAX_PM_LOSS = 0.01
"""A loss of PM whose interval is below this value counts as zero."""


@dataclass(frozen=True)
class Finding:
    """The finding on one data set, and its verdict on a claim (``holds``, ``fails``, ``open``)."""

    text: str
    verdict: str


def claims_of(setting: Setting) -> dict[str, dict[str, Finding]]:
    """Return every claim that the rows of a setting can test, and the finding on each data set."""
    found: dict[str, dict[str, Finding]] = {}
    checks = (_baselines, _replay_helps, _choice_helps, _influence_best, _costs_nothing, _more_is_better, _ours)
    for dataset in setting.datasets:
        rows = setting.of(dataset)
        made = [one for check in checks if (one := check(rows))] + _images(rows)
        for claim, text, verdict in made:
            found.setdefault(claim, {})[dataset] = Finding(text, verdict)
    return found


Made = tuple[str, str, str]
"""Claim, finding, verdict."""


def _baselines(rows: Sequence[Row]) -> Made | None:
    plain = [(row, row.paper.get("pm")) for row in rows if row.method == "finetune" and row.paper]
    known = [(row, pm) for row, pm in plain if pm is not None]
    if not known:
        return None
    far = [row.name for row, pm in known if abs(row.pm.mean - pm) > NEAR]
    text = f"PM within 3 points of the paper's for {len(known) - len(far)} of {len(known)}"
    return (
        "Networks without replay score as in the paper",
        text + (f"; not {', '.join(far)}" if far else ""),
        "fails" if far else "holds",
    )


def _replay_helps(rows: Sequence[Row]) -> Made | None:
    plain, replay = _find(rows, "gat", "finetune"), _find(rows, "gat", "replay", "random")
    return _compare("Replay forgets less than no replay", replay, plain, "fm", lower=True)


def _choice_helps(rows: Sequence[Row]) -> Made | None:
    chance = _find(rows, "gat", "replay", "random")
    chosen = [_find(rows, "gat", "replay", name) for name in SELECTORS[1:]]
    pairs = [(row, row.paired(chance)) for row in chosen if row and chance]
    pairs = [(row, gap) for row, gap in pairs if gap]
    if not pairs:
        return None
    below = [row.short_name for row, gap in pairs if gap and _side(gap) < 0]
    above = [row.short_name for row, gap in pairs if gap and _side(gap) > 0]
    text = f"{len(below)} of {len(pairs)} selectors forget clearly less than Random"
    text += f" ({', '.join(below)})" if below else ""
    text += f"; clearly more: {', '.join(above)}" if above else ""
    return "Selection beats random choice", text, "holds" if len(below) == len(pairs) else "fails" if above else "open"


def _influence_best(rows: Sequence[Row]) -> Made | None:
    chosen = [row for name in SELECTORS if (row := _find(rows, "gat", "replay", name))]
    others = [row for row in chosen if row.selector != "im"]
    influence = _find(rows, "gat", "replay", "im")
    if not others or not influence:
        return None
    best = min(others, key=lambda row: row.fm.mean)
    return _compare("IM forgets least of the paper's selectors", influence, best, "fm", lower=True)


def _costs_nothing(rows: Sequence[Row]) -> Made | None:
    plain = _find(rows, "gat", "finetune")
    chosen = [row for name in SELECTORS if (row := _find(rows, "gat", "replay", name))]
    if not plain or not chosen:
        return None
    best = max(chosen, key=lambda row: row.pm.mean)
    gap = best.paired(plain, "pm")
    if gap is None:
        return None
    sure = gap.ci95 is not None and gap.mean - gap.ci95 > -MAX_PM_LOSS
    verdict = "holds" if sure else "fails" if _side(gap) < 0 else "open"
    return (
        "Replay costs no performance",
        f"best PM: {best.name}, {_points(gap)} points compared with no replay",
        verdict,
    )


def _more_is_better(rows: Sequence[Row]) -> Made | None:
    by_selector: dict[str, list[Row]] = {}
    for row in rows:
        if row.method == "replay" and row.backbone == "gat" and not row.special:
            by_selector.setdefault(row.selector or "", []).append(row)
    swept = max(by_selector.values(), key=len, default=[])
    if len(swept) < 2:
        return None
    few, many = min(swept, key=_per_class), max(swept, key=_per_class)
    return _compare("More memory means less forgetting", many, few, "fm", lower=True)


def _ours(rows: Sequence[Row]) -> Made | None:
    star = _find(rows, "gat", "replay", "mf*")
    ours = [row for name in ("la-ridge", "s2-ridge", "rim") if (row := _find(rows, "gat", "replay", name))]
    if not ours:
        return None
    return _compare("Our best selector forgets less than MF*", min(ours, key=lambda r: r.fm.mean), star, "fm", True)


def _images(rows: Sequence[Row]) -> list[Made]:
    """Test the order of table 4: IM, GEM, EWC, fine-tuning."""
    order = [_find(rows, "mlp", "replay", "im"), *(_find(rows, "mlp", name) for name in ("gem", "ewc", "finetune"))]
    made = [
        _compare(f"{better.short_name} forgets less than {worse.short_name}", better, worse, "fm", lower=True)
        for better, worse in pairwise(order)
        if better and worse
    ]
    return [one for one in made if one]


def _compare(text: str, row: Row | None, other: Row | None, measure: str, lower: bool) -> Made | None:
    gap = row.paired(other, measure) if row and other else None
    if not gap or not row or not other:
        return None
    side = _side(gap) * (-1 if lower else 1)
    found = f"{row.name}: {_points(gap)} points of {measure.upper()} compared with {other.name}"
    return text, found, {1: "holds", -1: "fails", 0: "open"}[side]


def _side(gap: Summary) -> int:
    """Return the sign of a difference whose interval excludes zero, or 0."""
    if gap.ci95 is None or abs(gap.mean) <= gap.ci95:
        return 0
    return 1 if gap.mean > 0 else -1


def _points(gap: Summary) -> str:
    half = "" if gap.ci95 is None else f" ± {100 * gap.ci95:.1f}"
    return f"{100 * gap.mean:+.1f}{half}".replace("-", "−")


def _find(rows: Sequence[Row], backbone: str, method: str, selector: str | None = None) -> Row | None:
    """Find the row with e = 1 and no special options."""
    fits: Callable[[Row], bool] = lambda row: (  # noqa: E731
        (row.backbone, row.method) == (backbone, method)
        and (selector is None or row.selector == selector)
        and row.per_class == 1
        and not row.special
    )
    return next(filter(fits, rows), None)


def _per_class(row: Row) -> int:
    return row.per_class
