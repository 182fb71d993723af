"""The list of cases, and what several of them start from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ergnn.bench.measure import Measurement
from ergnn.data import TaskStream, make_stream
from ergnn.learner import Learner

Case = Callable[[int, bool], list[Measurement]]
CASES: dict[str, Case] = {}
"""Name → ``case(threads, quick)``."""


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def cora() -> TaskStream:
    return make_stream("cora", split="seeded").stream


def er_gat_im(seed: int, epochs: int = 200, **options: Any) -> Learner:
    return Learner(
        "gat", "replay", selector="im", head="shared", weight_decay=5e-4, seed=seed, epochs=epochs, **options
    )
