"""Print the lines of table.py as Markdown: one table per kind of edges, graphs in columns.

    python examples/class_incremental/summary.py table.jsonl [micro|aa|fm|seconds]

Accuracies in percent, mean ± 95 % interval over the seeds; rows and graphs that are missing in the file are omitted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from differences import GRAPHS, cell

from ergnn.learning.metrics import summarize


def main(path: str, measure: str = "micro") -> None:
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    scale = 1 if measure in ("seconds", "bytes") else 100
    names = [name for name in GRAPHS if any(line["dataset"] == name for line in lines)]
    for edges in ("all", "seen"):
        rows: dict[str, dict[str, list[float]]] = {}
        for line in lines:
            if line["edges"] == edges:
                rows.setdefault(line["row"], {}).setdefault(line["dataset"], []).append(scale * line[measure])
        if not rows:
            continue
        print(f"\n| edges `{edges}`, {measure} | {' | '.join(GRAPHS[name] for name in names)} |")
        print("|---" * (len(names) + 1) + "|")
        for row, found in rows.items():
            cells = [cell(summarize(found[name])) if name in found else "–" for name in names]
            print(f"| {row.replace('*', chr(92) + '*')} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
