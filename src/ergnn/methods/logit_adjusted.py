"""Replay with logit adjustment."""

from __future__ import annotations

from typing import Any

from ergnn.methods import METHODS
from ergnn.methods.memory import Scarce
from ergnn.methods.replay import Replay
from ergnn.replay.buffer import ReplayMode
from ergnn.replay.selectors import Selector


@METHODS.register("logit-adjusted", help="replay with logits adjusted by class shares (DeLoMe's debiasing)")
class LogitAdjusted(Replay):
    """Experience replay with logit adjustment (Menon et al., 2021), the debiasing of DeLoMe (Niu et al., 2024).

    The loss is the cross-entropy of ``z + log π`` with the class shares π of task and buffer; see
    :func:`~ergnn.methods.balance.adjust_logits`. This is ``replay`` with ``class_balance=logit-adjustment``.
    """

    supported_heads = ("growing",)
    search = {"selector": ("mf*", "random", "herding")}

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
            class_balance="logit-adjustment",
        )
