"""The page: one HTML file made from the run store, with every table and figure of the paper that it can fill.

The file needs nothing else: style, script and figures are inside. It reads the store and never a live model; the
maps of chosen nodes also read the data set, where it is at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.resources import files
from pathlib import Path
from typing import Any

from ergnn import __version__
from ergnn.errors import InputError
from ergnn.experiments.grid import PAPER_TABLE_1
from ergnn.experiments.store import RunStore, StoredRun
from ergnn.report.claims import claims_of
from ergnn.report.page_figures import DatasetFigures, choices, forgetting, growth, heat_maps, sweep
from ergnn.report.page_tables import PageTable, cost_table, result_table, tests_of
from ergnn.report.rows import Row, dataset_order, gather
from ergnn.report.settings import Setting, settings_of

TITLE = "ER-GNN, reproduced"
MOST_SETTINGS = 3
"""Settings of graphs that get figures of their own; all of them have tables."""


def write_page(store_path: str | Path, out_html: str | Path, title: str = TITLE, command: str = "") -> Path:
    """Make the page of a run store.

    Args:
        store_path: the SQLite file, or the URL of a server; it must be there and hold at least one finished run.
        out_html: the file to write.
        title: of the page.
        command: how the results were made, shown at the top.
    """
    with RunStore(store_path, create=False) as store:
        runs, name = store.runs(), store.path
    if not runs:
        raise InputError(f"{name}: no finished run to report; `ergnn reproduce` and `ergnn run` make some")
    out = Path(out_html)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page_of(runs, title=title, command=command), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error})") from None
    return out


def page_of(runs: Sequence[StoredRun], title: str = TITLE, command: str = "") -> str:
    """The page of some stored runs, as HTML."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    settings = settings_of(gather(runs))
    drawn = [s for s in settings if not s.is_image][:MOST_SETTINGS] + [s for s in settings if s.is_image][:1]
    environment = Environment(
        loader=PackageLoader("ergnn.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["svg"] = Markup
    folder = files("ergnn.report") / "templates"
    return environment.get_template("page.html").render(
        title=title,
        command=command,
        version=__version__,
        style=Markup((folder / "style.css").read_text(encoding="utf-8")),
        script=Markup((folder / "script.js").read_text(encoding="utf-8")),
        facts=_facts(runs, settings),
        warnings=_warnings(settings),
        claims=[(setting, claims) for setting in drawn if (claims := claims_of(setting))],
        data=_data_sets(runs),
        tables=_tables(settings),
        figures={
            "growth": _figures(drawn, growth),
            "sweep": _figures(drawn, sweep),
            "matrices": _figures(drawn, heat_maps),
            "forgetting": _figures(drawn, forgetting),
            "choices": _figures(drawn[:2], choices),
        },
        left_out=[setting.label for setting in settings if setting not in drawn],
        costs=[(setting, cost_table(f"cost-{setting.id}", setting.rows)) for setting in settings],
        notes=_notes(runs),
        made=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )


def _tables(settings: Sequence[Setting]) -> dict[int, list[tuple[Setting, list[PageTable]]]]:
    """Number of the paper's table to its tables, by setting and data set."""
    found: dict[int, list[tuple[Setting, list[PageTable]]]] = {2: [], 3: [], 4: []}
    for setting in settings:
        tests = tests_of(setting.rows)
        made: dict[int, list[PageTable]] = {2: [], 3: [], 4: []}
        for dataset in setting.datasets:
            for kind in found:
                rows = [row for row in setting.of(dataset) if _table_of(row) == kind]
                if rows:
                    id = f"table{kind}-{dataset}-{setting.id}"
                    own = tests.get(dataset, {}) if kind != 3 else {}
                    made[kind].append(result_table(id, dataset, rows, own, 1 if kind == 4 else 100))
        for kind, tables in made.items():
            if tables:
                found[kind].append((setting, tables))
    return found


def _table_of(row: Row) -> int:
    """Where the paper would print a row; e > 1 is figure 3's."""
    if row.is_image:
        return 4
    if row.per_class > 1:
        return 0
    return 3 if row.method == "replay" and row.backbone != "gat" else 2


def _figures(settings: Sequence[Setting], draw: Any) -> list[tuple[Setting, list[DatasetFigures]]]:
    made = [
        (setting, [figures for dataset in setting.datasets if (figures := draw(dataset, setting.of(dataset)))])
        for setting in settings
    ]
    return [(setting, figures) for setting, figures in made if figures]


def _facts(runs: Sequence[StoredRun], settings: Sequence[Setting]) -> list[tuple[str, str]]:
    machines = sorted({_machine(run.machine) for run in runs})
    days = sorted({run.finished_at[:10] for run in runs})
    return [
        ("runs", f"{len(runs):,}"),
        ("rows", f"{sum(len(setting.rows) for setting in settings):,}"),
        ("seeds", f"{len({run.seed for run in runs}):,}"),
        ("class orders", f"{len({(run.config.get('class_order'), run.order) for run in runs}):,}"),
        ("data sets", ", ".join(sorted({run.dataset for run in runs}, key=dataset_order))),
        ("computing", _duration(sum(run.seconds for run in runs))),
        ("machine", "; ".join(machines)),
        ("code", ", ".join(sorted({run.code_version for run in runs}))),
        ("finished", days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"),
    ]


def _machine(facts: dict[str, Any]) -> str:
    device = "" if facts.get("device") in (None, "cpu") else f", {facts['device']}"
    return f"{facts.get('cores', '?')} cores, {facts.get('cpu', '')}{device}, torch {facts.get('torch', '?')}"


def _duration(seconds: float) -> str:
    """
    >>> _duration(4.26), _duration(754), _duration(7_800)
    ('4.3 s', '13 min', '2.2 h')
    """
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _warnings(settings: Sequence[Setting]) -> list[tuple[str, str]]:
    """Each badge on the page, what it means, and how many rows have it."""
    counts: dict[tuple[str, str], int] = {}
    for setting in settings:
        for row in setting.rows:
            for badge in row.badges:
                counts[badge] = counts.get(badge, 0) + 1
    return [(badge, f"{text} ({number} row{'s' * (number > 1)})") for (badge, text), number in sorted(counts.items())]


def _data_sets(runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    """Table 1: each data set as its files describe it, the paper's counts where they differ, and the tasks learnt."""
    from ergnn.data import describe_datasets

    known = {info.name: info for info in describe_datasets()}
    rows = []
    for dataset in sorted({run.dataset for run in runs}, key=dataset_order):
        own = [run for run in runs if run.dataset == dataset]
        info, first = known.get(dataset), own[0]
        ours = (info.nodes, info.features, info.classes) if info else (None, None, None)
        ours = (*ours, len(first.classes), len(first.classes[0]))
        same = all(run.classes == first.classes for run in own)
        rows.append(
            {
                "name": dataset,
                "counts": list(zip(ours, PAPER_TABLE_1.get(dataset, ours), strict=True)),
                "edges": info.edges if info else None,
                "metric": first.metric,
                "splits": ", ".join(sorted({run.split for run in own})),
                "order": _order(first) if same else "differ between class orders",
            }
        )
    return rows


def _order(run: StoredRun) -> str:
    """The tasks' classes in words."""
    if all(group == run.classes[0] for group in run.classes[1:]):
        return "the same classes in every task"
    names = run.class_names or [str(c) for c in range(1 + max(map(max, run.classes)))]
    return " → ".join(", ".join(names[c].replace("_", " ") for c in group) for group in run.classes)


def _notes(runs: Sequence[StoredRun]) -> list[tuple[str, str]]:
    """What to know before quoting: the notes of the runs, each once, with the data sets they belong to."""
    found: dict[str, set[str]] = {}
    for run in runs:
        for note in [f"{run.split} split", *run.notes]:
            found.setdefault(note, set()).add(run.dataset)
    return [(note, ", ".join(sorted(names))) for note, names in sorted(found.items())]
