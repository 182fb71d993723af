"""ER-ACE: replay in which the task's nodes compete among its own classes only."""

from __future__ import annotations

from ergnn.methods import METHODS
from ergnn.methods.balanced_replay import BalancedReplay


@METHODS.register(
    "er-ace", help="replay with asymmetric cross-entropy: new nodes compete among new classes only (ER-ACE)"
)
class ERACE(BalancedReplay):
    """Experience replay with asymmetric cross-entropy (Caccia et al., 2022).

    The loss of the task's nodes includes only outputs of the task's classes, that of remembered nodes all outputs; see
    :func:`~ergnn.methods.balance.separate_classes`. This is ``replay`` with ``class_balance=ace``.
    """

    fixed = "ace"
