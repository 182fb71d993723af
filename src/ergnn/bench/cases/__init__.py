"""What is measured. Each case returns measurements; ``ergnn bench`` runs them all or some."""

from __future__ import annotations

from collections.abc import Callable

from ergnn.bench.cases import large, selection, training
from ergnn.bench.measure import Measurement

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
"""Name → ``case(threads, quick)``, in the order in which they are run."""
