"""Draw the results of against_joint.py, and those of replay from table.py, as dots with 95 % intervals.

    python examples/class_incremental/figure.py examples/class_incremental/joint.jsonl \\
        [--table table.jsonl] --out docs/figures/class_incremental.svg

Graphs that are missing in a file are omitted.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from differences import GRAPHS, percent, read

from ergnn.learning.metrics import summarize
from ergnn.pages.figures import Point, Series, dot_plot, ticks

REPLAY = "ER-GCN MF*, e = 5"
LOOKS = {
    "gcn": ("joint GCN", "c-none"),
    "gat": ("joint GAT", "c-none alt"),
    "analytic": ("analytic", "c-s2"),
    "replay": ("replay, e = 5", "c-cm"),
}


def replay_scores(path: Path | None) -> dict[str, list[float]]:
    """Read the micro accuracy of replay per graph, in percent, from the output of table.py."""
    found: dict[str, list[float]] = {}
    for line in path.read_text().splitlines() if path else ():
        record = json.loads(line)
        if (record["row"], record["edges"]) == (REPLAY, "all"):
            found.setdefault(record["dataset"], []).append(100 * record["micro"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("joint", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    records, replay = read(args.joint), replay_scores(args.table)

    rows, used = [], {}
    for record in records:
        scores = {name: percent(record, name) for name in ("gcn", "gat", "analytic") if name in record["rows"]}
        scores |= {"replay": replay[record["dataset"]]} if record["dataset"] in replay else {}
        points = []
        for name, values in scores.items():
            label, look = LOOKS[name]
            summary, used[label] = summarize(values), look
            tip = f"{GRAPHS[record['dataset']]}, {label}: {summary.mean:.1f}"
            points.append(Point(0, summary.mean, summary.ci95, tip, look))
        rows.append(Series(GRAPHS[record["dataset"]], "c-all", points))
    means = [point.y for row in rows for point in row.points]
    drawing = dot_plot(
        rows,
        label="Accuracy over all test nodes with the task unknown, per graph and method",
        x_name="accuracy over all test nodes, %, all classes compete",
        x_ticks=ticks(min(means) - 1, max(means) + 1),
        legend=used,
        width=640,
    )
    drawing.save(args.out)


if __name__ == "__main__":
    main()
