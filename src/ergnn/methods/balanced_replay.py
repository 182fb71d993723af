"""Replay with one way to balance old and new classes, which the method is named after."""

from __future__ import annotations

from typing import Any, ClassVar

from ergnn.config.registry import inherit_options
from ergnn.methods import METHODS
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


@METHODS.register(
    "er-ace", help="replay with asymmetric cross-entropy: new nodes compete among new classes only (ER-ACE)"
)
class ERACE(BalancedReplay):
    """Experience replay with asymmetric cross-entropy (Caccia et al., 2022).

    The loss of the task's nodes includes only outputs of the task's classes, that of remembered nodes all outputs; see
    :func:`~ergnn.methods.balance.separate_classes`. This is ``replay`` with ``class_balance=ace``.
    """

    fixed = "ace"


@METHODS.register("logit-adjusted", help="replay with logits adjusted by class shares (DeLoMe's debiasing)")
class LogitAdjusted(BalancedReplay):
    """Experience replay with logit adjustment (Menon et al., 2021), the debiasing of DeLoMe (Niu et al., 2024).

    The loss is the cross-entropy of ``z + log π`` with the class shares π of task and buffer; see
    :func:`~ergnn.methods.balance.adjust_logits`. This is ``replay`` with ``class_balance=logit-adjustment``.
    """

    fixed = "logit-adjustment"
