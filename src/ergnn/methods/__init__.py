"""Methods against forgetting; one file per method."""

from __future__ import annotations

from ergnn.config.registry import Registry
from ergnn.methods.base import LearnerView, Method

METHODS: Registry[type[Method]] = Registry("method", "ergnn.methods")

__all__ = ["METHODS", "LearnerView", "Method"]
