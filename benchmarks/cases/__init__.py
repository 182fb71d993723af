"""Benchmark cases: each returns measurements."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.cases import large, selection, training
from benchmarks.measure import Measurement

Case = Callable[[int, bool], list[Measurement]]

CASES: dict[str, Case] = {
    function.__name__: function
    for function in (
        training.step,
        training.stream,
        training.seeds,
        large.corafull,
        large.size,
        large.tasks,
        selection.influence,
        selection.coverage,
    )
}
"""Name → ``case(threads, quick)``, in the order they run."""
