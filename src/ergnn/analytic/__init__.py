"""Closed-form classification on propagated features."""

from ergnn.analytic.features import Features
from ergnn.analytic.head import AnalyticHead
from ergnn.analytic.inputs import Inputs
from ergnn.analytic.maps import FEATURE_MAPS, FeatureMap
from ergnn.analytic.ridge import RidgeSolution
from ergnn.engine.propagation import NormalizedAdjacency

__all__ = [
    "FEATURE_MAPS",
    "AnalyticHead",
    "FeatureMap",
    "Features",
    "Inputs",
    "NormalizedAdjacency",
    "RidgeSolution",
]
