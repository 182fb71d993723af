"""Closed-form classification on propagated features: nothing is trained by steps, and nothing is forgotten.

``maps``
    feature maps, one file each: which powers of the normalized adjacency are applied to the features.
``propagation``
    the normalized adjacency as an operator.
``inputs``
    a graph's features, scaled and, where they are wide, sketched.
``features``
    φ of a graph's nodes under a feature map, in column blocks.
``ridge``
    weighted ridge regression with exact leave-one-out errors.
``state``
    training nodes and labels, and the rows of φ that belong to them.
``kept``
    rows of φ, or their k-means centroids, for nodes that are not kept.
"""

from ergnn.analytic.features import Features
from ergnn.analytic.inputs import Inputs, Sketch
from ergnn.analytic.maps import FEATURE_MAPS, FeatureMap
from ergnn.analytic.propagation import NormalizedAdjacency
from ergnn.analytic.ridge import RidgeSolution, fit_ridge
from ergnn.analytic.state import AnalyticState

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
