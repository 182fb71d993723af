"""Selectors, which choose the nodes of a task to store for replay; one file per selector or family of selectors."""

from __future__ import annotations

from ergnn.config.registry import Registry
from ergnn.replay.selectors.base import (
    Selection,
    SelectionContext,
    Selector,
    best_per_class,
    select_together,
)

SELECTORS: Registry[type[Selector]] = Registry("selector", "ergnn.replay.selectors")

__all__ = [
    "SELECTORS",
    "Selection",
    "SelectionContext",
    "Selector",
    "best_per_class",
    "select_together",
]
