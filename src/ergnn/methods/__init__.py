"""How a learner resists forgetting: one file a method."""

from __future__ import annotations

from ergnn.methods.base import Method
from ergnn.registry import Registry

METHODS: Registry[type[Method]] = Registry("method", "ergnn.methods")

__all__ = ["METHODS", "Method"]
