"""Print the results of against_joint.py as Markdown: paired differences, and the chosen settings.

    python examples/class_incremental/differences.py examples/class_incremental/joint.jsonl

All in percent, mean ± 95 % interval over the seeds. If a data set is in the file twice, the later line is used.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ergnn.learning.metrics import Summary, summarize

GRAPHS = {
    "cora": "Cora",
    "citeseer": "Citeseer",
    "pubmed": "PubMed",
    "amazon-photo": "Photo",
    "amazon-computers": "Computers",
    "coauthor-cs": "Coauthor CS",
    "cora-ml": "Cora-ML",
    "dblp": "DBLP",
    "citeseer-full": "Citeseer (full)",
}
"""The graphs in order, and their display names."""
MICRO, AVERAGE = 0, 1
"""Positions of the two accuracies of a seed."""


def read(path: str | Path) -> list[dict[str, Any]]:
    """Read the records of each graph in the file, in order."""
    lines = (json.loads(line) for line in Path(path).read_text().splitlines())
    found = {record["dataset"]: record for record in lines}
    return [found[name] for name in GRAPHS if name in found]


def percent(record: dict[str, Any], row: str, measure: int = MICRO) -> list[float]:
    """Return an accuracy of a row in percent, per seed; empty if the row was not run."""
    return [100 * scores[measure] for scores in record["rows"].get(row, [])]


def cell(summary: Summary, sign: str = "") -> str:
    """Format ``mean ± 95 % interval``; a mean of zero has no sign."""
    mean = f"{summary.mean:{sign}.1f}"
    return f"{mean.lstrip('+-') if float(mean) == 0 else mean.replace('-', '−')} ± {summary.ci95 or 0:.1f}"


def difference(record: dict[str, Any], other: str, measure: int) -> str:
    """Return the paired differences of the analytic row minus another row."""
    if other not in record["rows"]:
        return "–"
    pairs = zip(percent(record, "analytic", measure), percent(record, other, measure), strict=True)
    return cell(summarize([ours - theirs for ours, theirs in pairs]), "+")


def differences(records: list[dict[str, Any]]) -> str:
    lines = [
        "| | joint GCN | joint GAT | analytic | − GCN | − GAT | − GCN, AA | − GAT, AA |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for record in records:
        values = [percent(record, row) for row in ("gcn", "gat", "analytic")]
        cells = [cell(summarize(own)) if own else "–" for own in values]
        cells += [difference(record, row, measure) for measure in (MICRO, AVERAGE) for row in ("gcn", "gat")]
        lines.append(f"| {GRAPHS[record['dataset']]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def settings(records: list[dict[str, Any]]) -> str:
    lines = ["| | GCN | GAT |", "|---|---|---|"]
    for record in records:
        chosen = [
            "–"
            if best is None
            else f"hidden {best['hidden']}, dropout {best['dropout']}, L2 {best['weight_decay']:g}, "
            f"{'rows' if best['normalize'] else 'raw'}"
            for best in (record["chosen"].get(name) for name in ("gcn", "gat"))
        ]
        lines.append(f"| {GRAPHS[record['dataset']]} | {' | '.join(chosen)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    found = read(sys.argv[1])
    print(f"{differences(found)}\n\n{settings(found)}")
