"""Feature maps by name."""

from __future__ import annotations

from ergnn.analytic.maps.base import FeatureMap
from ergnn.config.registry import Registry

FEATURE_MAPS: Registry[type[FeatureMap]] = Registry("feature map", "ergnn.analytic.maps")

__all__ = ["FEATURE_MAPS", "FeatureMap"]
