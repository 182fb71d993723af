"""Replay with one way to balance old and new classes, for methods that are named after it."""

from __future__ import annotations

from typing import Any, ClassVar

from ergnn.methods.balance import ClassBalance
from ergnn.methods.base import Comparison
from ergnn.methods.memory import Scarce
from ergnn.methods.replay import Replay
from ergnn.replay.buffer import ReplayMode
from ergnn.replay.selectors import Selector


class BalancedReplay(Replay):
    """``replay`` with a fixed ``class_balance``.

    Attributes:
        fixed: the class balance.
    """

    supported_heads = ("growing",)
    comparison = Comparison(search={"selector": ("mf*", "random", "herding")})
    fixed: ClassVar[ClassBalance]

    def __init__(
        self,
        selector: str | Selector = "mf*",
        per_class: int = 1,
        selector_options: dict[str, Any] | None = None,
        beta: float | None = None,
        replay: ReplayMode = "live",
        hops: int = 2,
        replay_batch: int | None = None,
        budget_nodes: int | None = None,
        budget_bytes: int | None = None,
        scarce: Scarce = "error",
    ) -> None:
        super().__init__(
            selector,
            per_class,
            selector_options,
            beta=beta,
            replay=replay,
            hops=hops,
            replay_batch=replay_batch,
            budget_nodes=budget_nodes,
            budget_bytes=budget_bytes,
            scarce=scarce,
            class_balance=self.fixed,
        )
