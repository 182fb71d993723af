"""Draw the results of against_joint.py, and those of replay from table.py, as dots with 95 % intervals.

    python examples/class_incremental/figure.py examples/class_incremental/joint.jsonl \\
        [--table table.jsonl] --out docs/figures/class_incremental.svg

Graphs that are missing in a file are omitted. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib
from differences import GRAPHS, percent, read

from ergnn.learning.metrics import summarize

REPLAY = "ER-GCN MF*, e = 5"
LOOKS = {
    "gcn": ("joint GCN", "#9467bd", "s"),
    "gat": ("joint GAT", "#8c8c8c", "^"),
    "analytic": ("analytic", "#1f9e89", "o"),
    "replay": ("replay, e = 5", "#e6821e", "D"),
}
INK = "#808080"
"""Color of text and axes, readable on light and dark pages."""


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

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "class_incremental", "font.family": "sans-serif"}
    plt.rcParams |= dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color"), INK)
    figure, axis = plt.subplots(figsize=(7, 0.42 * len(records) + 1.1))
    for place, record in enumerate(records):
        rows = {name: percent(record, name) for name in ("gcn", "gat", "analytic") if name in record["rows"]}
        rows |= {"replay": replay[record["dataset"]]} if record["dataset"] in replay else {}
        for offset, (name, values) in enumerate(rows.items()):
            label, color, marker = LOOKS[name]
            summary = summarize(values)
            y = place + 0.16 * (offset - (len(rows) - 1) / 2)
            drawn = axis.get_legend_handles_labels()[1]
            axis.errorbar(
                summary.mean,
                y,
                xerr=summary.ci95 or 0,
                fmt=marker,
                color=color,
                markersize=4.5,
                elinewidth=1.2,
                label=None if label in drawn else label,
            )
    axis.set_yticks(range(len(records)), [GRAPHS[record["dataset"]] for record in records], color=INK)
    axis.invert_yaxis()
    axis.set_xlabel("accuracy over all test nodes, %, all classes compete")
    axis.grid(axis="x", color=INK, alpha=0.25, linewidth=0.6)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.tick_params(length=0)
    figure.legend(loc="upper center", ncols=4, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0, 1, 0.94))
    figure.savefig(args.out, transparent=True, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
