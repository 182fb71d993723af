"""Print the results of run.py as tables in Markdown.

python examples/growing/table.py results.json ...
"""

import json
import sys
from pathlib import Path

import numpy as np

NAMES = {
    "analytic": "analytic",
    "one": "replay, one node in total",
    "some": "replay, 50 per class and update",
    "all": "replay, every node that was learned",
}


def spread(values: list[float], digits: int = 1) -> str:
    """Format mean ± standard deviation if there is more than one value."""
    text = f"{np.mean(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} ± {np.std(values, ddof=1):.{digits}f}"


def summary(runs: list[dict]) -> str:
    lines = [
        "| | nodes | when learned % | now % | forgetting, points | now, classes of the update known % "
        "| seconds per update |",
        "|---|---|---|---|---|---|---|",
    ]
    for learner, name in NAMES.items():
        mine = [run for run in runs if run["learner"] == learner]
        if not mine:
            continue
        then, now, lost = (spread([100 * run["measures"][key] for run in mine]) for key in ("pm", "aa", "fm"))
        known = spread([float(np.mean(run["known"])) for run in mine])
        seconds = ", ".join(f"{value:.0f}" for value in np.mean([run["seconds"] for run in mine], axis=0))
        lines.append(f"| {name} | {mine[0]['remembered'][-1]:,} | {then} | {now} | {lost} | {known} | {seconds} |")
    return "\n".join(lines)


def over_time(runs: list[dict]) -> str:
    """Build the table of accuracy on every past update over time; for the other learners, only at the end."""
    count = len(runs[0]["scores"])
    lines = [f"| after | {' | '.join(f'update {i + 1}' for i in range(count))} |", "|---" * (count + 1) + "|"]
    first, *others = [learner for learner in NAMES if any(run["learner"] == learner for run in runs)]
    rows = [(first, i, f"update {i + 1}") for i in range(count)]
    rows += [(learner, count - 1, f"update {count}, {NAMES[learner]}") for learner in others]
    for learner, i, name in rows:
        mine = [run["scores"] for run in runs if run["learner"] == learner]
        cells = [f"{np.mean([run[i][j] for run in mine]):.1f}" if j <= i else "" for j in range(count)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(*paths: str) -> None:
    runs = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
    for stream in sorted({run["stream"] for run in runs}):
        mine = [run for run in runs if run["stream"] == stream]
        print(f"\n## {stream}\n\n{summary(mine)}")
        print(f"\n{over_time(mine)}")
        print("\n" + ", ".join(f"{name} {size:,}" for name, size in mine[0]["bytes"].items()))


if __name__ == "__main__":
    main(*sys.argv[1:])
