"""ER-ACE: replay in which the task's nodes compete among its own classes only."""

from __future__ import annotations

from typing import Any

from ergnn.methods import METHODS
from ergnn.methods.memory import Scarce
from ergnn.methods.replay import Replay
from ergnn.replay.buffer import ReplayMode
from ergnn.replay.selectors import Selector


@METHODS.register(
    "er-ace", help="replay with asymmetric cross-entropy: new nodes compete among new classes only (ER-ACE)"
)
class ERACE(Replay):
    """Experience replay with asymmetric cross-entropy (Caccia et al., 2022).

    The loss of the task's nodes includes only outputs of the task's classes, that of remembered nodes all outputs; see
    :func:`~ergnn.methods.balance.separate_classes`. This is ``replay`` with ``class_balance=ace``.
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
            class_balance="ace",
        )
