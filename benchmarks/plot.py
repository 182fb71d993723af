"""Plots of time against graph size, number of seeds and number of tasks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks.measure import Measurement
from ergnn.config.errors import InputError


def plot(measurements: list[Measurement], path: Path) -> None:
    """Plot the cases ``size``, ``tasks`` and ``seeds`` with their references, for the smallest number of threads."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise InputError("--plot needs matplotlib; install it with: pip install 'ergnn[plot]'") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fewest = min((m.threads for m in measurements), default=1)
    measurements = [m for m in measurements if m.threads == fewest]
    groups = {"size": "nodes in the graph", "seeds": "GAT seeds", "tasks": "task (median of ten from here)"}
    chosen = {name: [m for m in measurements if m.name.startswith(f"{name}:")] for name in groups}
    chosen["seeds"] = [m for m in chosen["seeds"] if " gat " in m.name]
    chosen["tasks"] = [m for m in chosen["tasks"] if " from " in m.name]
    shown = [name for name in groups if chosen[name]]
    if not shown:
        raise InputError("there is nothing to plot; run the cases size, seeds or tasks")
    figure, axes = plt.subplots(1, len(shown), figsize=(5.2 * len(shown), 3.6), squeeze=False)
    for axis, name in zip(axes[0], shown, strict=True):
        rows = chosen[name]
        if name == "tasks":
            _over_tasks(axis, rows)
            continue
        x = [int(re.sub(r"\D", "", re.findall(r"[\d,]+", m.name)[0])) for m in rows]
        axis.plot(x, [m.ours for m in rows], "o-", color="#0072B2", label="ergnn")
        peers = [(a, m.peer) for a, m in zip(x, rows, strict=True) if m.peer is not None]
        label = "plain PyG" if name == "size" else "one after another"
        axis.plot([a for a, _ in peers], [b for _, b in peers], "s--", color="#D55E00", label=label)
        axis.set(xlabel=groups[name], ylabel=f"{'step' if name == 'size' else 'task'} ({rows[0].unit})")
        if name == "size":
            axis.set(xscale="log", yscale="log")
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def _over_tasks(axis: Any, rows: list[Measurement]) -> None:
    """Plot time per task along a stream, one line per replay mode."""
    for label, style, color in (("whole buffer", "s--", "#D55E00"), ("default", "o-", "#0072B2")):
        part = [m for m in rows if m.name.endswith(label)]
        x = [int(m.name.split()[2]) for m in part]
        axis.plot(x, [m.ours for m in part], style, color=color, label=label)
    axis.set(xlabel="task (median of ten from here)", ylabel="task (s)", ylim=(0, None))
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
