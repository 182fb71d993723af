"""Replay with logit adjustment."""

from __future__ import annotations

from ergnn.methods import METHODS
from ergnn.methods.balanced_replay import BalancedReplay


@METHODS.register("logit-adjusted", help="replay with logits adjusted by class shares (DeLoMe's debiasing)")
class LogitAdjusted(BalancedReplay):
    """Experience replay with logit adjustment (Menon et al., 2021), the debiasing of DeLoMe (Niu et al., 2024).

    The loss is the cross-entropy of ``z + log π`` with the class shares π of task and buffer; see
    :func:`~ergnn.methods.balance.adjust_logits`. This is ``replay`` with ``class_balance=logit-adjustment``.
    """

    fixed = "logit-adjustment"
