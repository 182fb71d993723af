"""Time over the size of the graph, and over the number of tasks."""

from __future__ import annotations

import re
from pathlib import Path

from ergnn.bench.measure import Measurement
from ergnn.errors import InputError


def plot(measurements: list[Measurement], path: Path) -> None:
    """Draw the cases ``size`` and ``seeds``, ours beside the peer's (needs matplotlib)."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise InputError("drawing needs matplotlib; install ergnn[plot]") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    groups = {"size": "nodes in the graph", "seeds": "GAT seeds"}
    chosen = {name: [m for m in measurements if m.name.startswith(f"{name}:")] for name in groups}
    chosen["seeds"] = [m for m in chosen["seeds"] if " gat " in m.name]
    shown = [name for name in groups if chosen[name]]
    if not shown:
        raise InputError("there is nothing to draw; run the cases size or seeds")
    figure, axes = plt.subplots(1, len(shown), figsize=(5.2 * len(shown), 3.6), squeeze=False)
    for axis, name in zip(axes[0], shown, strict=True):
        rows = chosen[name]
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
