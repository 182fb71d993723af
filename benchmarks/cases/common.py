"""Streams and learners shared by several cases."""

from __future__ import annotations

from typing import Any

from ergnn.data import TaskStream, make_stream
from ergnn.learning.learner import Learner


def cora() -> TaskStream:
    return make_stream("cora", split="seeded").stream


def er_gat_im(seed: int, epochs: int = 200, **options: Any) -> Learner:
    return Learner(
        "gat", "replay", selector="im", head="shared", weight_decay=5e-4, seed=seed, epochs=epochs, **options
    )
