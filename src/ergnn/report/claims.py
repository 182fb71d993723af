"""What holds of the paper, computed from paired differences between stored runs.

Two rows are compared over the seeds and class orders that both have. A claim *holds* where the whole 95 % interval
of the mean difference lies on its side, *fails* where it lies on the other, and is *open* where it covers zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ergnn.metrics import Summary
from ergnn.report.rows import PAPER_SELECTORS, Row, Setting

NEAR = 0.03
"""How far a plain network's PM may be from the paper's and still agree."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, what was found, and whether that bears it out (``holds``, ``fails``, ``open``)."""

    dataset: str
    text: str
    found: str
    verdict: str


def claims_of(setting: Setting) -> list[Claim]:
    """Every claim that the rows of a setting can speak to, by data set."""
    found = []
    for dataset in setting.datasets:
        rows = setting.of(dataset)
        for check in (
            _baselines,
            _replay_helps,
            _choice_helps,
            _influence_best,
            _costs_nothing,
            _more_is_better,
            _ours,
        ):
            found += [Claim(dataset, *made) for made in [check(rows)] if made]
        found += [Claim(dataset, *made) for made in _images(rows)]
    return found


Made = tuple[str, str, str]


def _baselines(rows: Sequence[Row]) -> Made | None:
    plain = [(row, row.paper["pm"]) for row in rows if row.runs[0].method == "finetune" and row.paper]
    known = [(row, pm) for row, pm in plain if pm is not None]
    if not known:
        return None
    far = [row.name for row, pm in known if abs(row.pm.mean - pm) > NEAR]
    text = f"{len(known) - len(far)} of {len(known)} plain networks have the paper's PM to within 3 points"
    return "Plain networks", text + (f"; not {', '.join(far)}" if far else ""), "fails" if far else "holds"


def _replay_helps(rows: Sequence[Row]) -> Made | None:
    plain, replay = _find(rows, "gat", "finetune"), _find(rows, "gat", "replay", "random")
    return _compare("Replay forgets less than no replay", replay, plain, "fm", lower=True)


def _choice_helps(rows: Sequence[Row]) -> Made | None:
    chance = _find(rows, "gat", "replay", "random")
    chosen = [_find(rows, "gat", "replay", name) for name in PAPER_SELECTORS[1:]]
    pairs = [(row, row.paired(chance)) for row in chosen if row and chance]
    pairs = [(row, gap) for row, gap in pairs if gap]
    if not pairs:
        return None
    below = [row.remembers for row, gap in pairs if gap and _side(gap) < 0]
    above = [row.remembers for row, gap in pairs if gap and _side(gap) > 0]
    text = f"{len(below)} of {len(pairs)} of the paper's selectors forget clearly less than Random"
    text += f" ({', '.join(below)})" if below else ""
    text += f"; clearly more: {', '.join(above)}" if above else ""
    return "Choosing beats chance", text, "holds" if len(below) == len(pairs) else "fails" if above else "open"


def _influence_best(rows: Sequence[Row]) -> Made | None:
    chosen = [row for name in PAPER_SELECTORS if (row := _find(rows, "gat", "replay", name))]
    others = [row for row in chosen if row.selector != "im"]
    influence = _find(rows, "gat", "replay", "im")
    if not others or not influence:
        return None
    best = min(others, key=lambda row: row.fm.mean)
    return _compare(f"IM forgets least (the best of the others is {best.remembers})", influence, best, "fm", lower=True)


def _costs_nothing(rows: Sequence[Row]) -> Made | None:
    plain = _find(rows, "gat", "finetune")
    chosen = [row for name in PAPER_SELECTORS if (row := _find(rows, "gat", "replay", name))]
    if not plain or not chosen:
        return None
    best = max(chosen, key=lambda row: row.pm.mean)
    gap = best.paired(plain, "pm")
    if gap is None:
        return None
    verdict = "fails" if _side(gap) < 0 else "holds" if gap.ci95 is not None and gap.mean > -0.01 else "open"
    return "Replay costs no performance", f"best PM: {best.name}, {_points(gap)} points to no replay", verdict


def _more_is_better(rows: Sequence[Row]) -> Made | None:
    by_selector: dict[str, list[Row]] = {}
    for row in rows:
        if row.runs[0].method == "replay" and row.runs[0].backbone == "gat" and not row.config.get("selector_options"):
            by_selector.setdefault(row.selector or "", []).append(row)
    swept = max(by_selector.values(), key=len, default=[])
    if len(swept) < 2:
        return None
    few, many = min(swept, key=_per_class), max(swept, key=_per_class)
    text = f"The more is remembered, the less is forgotten (e = {_per_class(few)} to {_per_class(many)})"
    return _compare(text, many, few, "fm", lower=True)


def _ours(rows: Sequence[Row]) -> Made | None:
    star = _find(rows, "gat", "replay", "mf*")
    ours = [row for name in ("la-ridge", "s2-ridge", "rim") if (row := _find(rows, "gat", "replay", name))]
    if not ours:
        return None
    return _compare("Our best selector forgets less than MF*", min(ours, key=lambda r: r.fm.mean), star, "fm", True)


def _images(rows: Sequence[Row]) -> list[Made]:
    """Table 4's order: IM before GEM before EWC before plain fine-tuning."""
    order = [_find(rows, "mlp", "replay", "im"), *(_find(rows, "mlp", name) for name in ("gem", "ewc", "finetune"))]
    made = [
        _compare(f"{better.remembers} forgets less than {worse.remembers}", better, worse, "fm", lower=True)
        for better, worse in zip(order[:-1], order[1:], strict=True)
        if better and worse
    ]
    return [one for one in made if one]


def _compare(text: str, row: Row | None, other: Row | None, measure: str, lower: bool) -> Made | None:
    gap = row.paired(other, measure) if row and other else None
    if not gap or not row or not other:
        return None
    side = _side(gap) * (-1 if lower else 1)
    found = f"{row.name}: {_points(gap)} points of {measure.upper()} to {other.name}"
    return text, found, {1: "holds", -1: "fails", 0: "open"}[side]


def _side(gap: Summary) -> int:
    """Sign of a difference whose interval leaves zero out, or 0."""
    if gap.ci95 is None or abs(gap.mean) <= gap.ci95:
        return 0
    return 1 if gap.mean > 0 else -1


def _points(gap: Summary) -> str:
    half = "" if gap.ci95 is None else f" ± {100 * gap.ci95:.1f}"
    return f"{100 * gap.mean:+.1f}{half}".replace("-", "−")


def _find(rows: Sequence[Row], backbone: str, method: str, selector: str | None = None) -> Row | None:
    """The row at e = 1 without options of its own."""
    fits: Callable[[Row], bool] = lambda row: (  # noqa: E731
        (row.runs[0].backbone, row.runs[0].method) == (backbone, method)
        and (selector is None or row.selector == selector)
        and row.runs[0].per_class in (None, 1)
        and not row.config.get("selector_options")
    )
    return next(filter(fits, rows), None)


def _per_class(row: Row) -> int:
    return row.runs[0].per_class or 0
