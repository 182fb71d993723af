"""Replay with one way to balance old and new classes, for methods that are named after it."""

from __future__ import annotations

from typing import Any, ClassVar

from ergnn.config.registry import inherit_options
from ergnn.methods.balance import ClassBalance
from ergnn.methods.base import Comparison
from ergnn.methods.replay import Replay


class BalancedReplay(Replay):
    """``replay`` with a fixed ``class_balance``.

    Attributes:
        fixed: the class balance.
    """

    supported_heads = ("growing",)
    comparison = Comparison(search={"selector": ("mf*", "random", "herding")})
    fixed: ClassVar[ClassBalance]

    @inherit_options(Replay, "loss_scale", "class_balance")
    def __init__(self, **options: Any) -> None:
        super().__init__(class_balance=self.fixed, **options)
