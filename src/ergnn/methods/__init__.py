"""Methods against forgetting; one file per method."""

from __future__ import annotations

from ergnn.methods.base import LearnerView, Method
from ergnn.registry import Registry

METHODS: Registry[type[Method]] = Registry("method", "ergnn.methods")

__all__ = ["METHODS", "LearnerView", "Method"]
