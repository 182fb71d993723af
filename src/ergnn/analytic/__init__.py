"""Closed-form classification on propagated features: nothing is trained by steps, and nothing is forgotten.

``maps``
    feature maps, one file each: which powers of the normalized adjacency are applied to the features.
``inputs``
    a graph's features, scaled and, where they are wide, sketched.
``features``
    φ of a graph's nodes under a feature map, in column blocks.
``ridge``
    weighted ridge regression with exact leave-one-out errors.
``state``
    training nodes and labels, and the rows of φ that belong to them.
``centroids``
    k-means, where rows are not to be kept.
"""

from ergnn.analytic.features import Features
from ergnn.analytic.inputs import Inputs, Sketch
from ergnn.analytic.maps import FEATURE_MAPS, FeatureMap
from ergnn.analytic.ridge import RidgeSolution, fit_ridge
from ergnn.analytic.state import AnalyticState
from ergnn.engine.propagation import NormalizedAdjacency

__all__ = [
    "FEATURE_MAPS",
    "AnalyticState",
    "FeatureMap",
    "Features",
    "Inputs",
    "NormalizedAdjacency",
    "RidgeSolution",
    "Sketch",
    "fit_ridge",
]
