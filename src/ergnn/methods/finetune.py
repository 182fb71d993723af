"""Finetune: continue training on each task without any memory, a lower bound."""

from __future__ import annotations

from ergnn.methods import METHODS
from ergnn.methods.base import Method


@METHODS.register("finetune", help="continue training on each task, without memory: the lower bound")
class Finetune(Method):
    """Minimize only the mean loss of the task's training nodes."""
