"""Closed-form classification on propagated features.

``maps``
    feature maps, one file each: polynomials of the normalized adjacency matrix.
``inputs``
    the features of a graph, scaled and, if there are many columns, sketched.
``features``
    φ of the nodes of a graph under a feature map, in column blocks.
``ridge``
    weighted ridge regression with exact leave-one-out errors.
``kernels``
    kernels between rows of φ.
``state``
    training nodes and labels, and their rows of φ.
``statistics``
    mean and scatter of φ per class, and the head solved from them.
``head``
    the head of a stream: labels so far, feature maps of graphs, and the solution.
``explain``
    what each label does to the scores of a head.
"""

from ergnn.analytic.features import Features
from ergnn.analytic.head import AnalyticHead
from ergnn.analytic.inputs import Inputs, Sketch
from ergnn.analytic.kernels import Kernel
from ergnn.analytic.maps import FEATURE_MAPS, FeatureMap
from ergnn.analytic.ridge import RidgeSolution, fit_ridge
from ergnn.analytic.state import AnalyticState
from ergnn.engine.propagation import NormalizedAdjacency

__all__ = [
    "FEATURE_MAPS",
    "AnalyticHead",
    "AnalyticState",
    "FeatureMap",
    "Features",
    "Inputs",
    "Kernel",
    "NormalizedAdjacency",
    "RidgeSolution",
    "Sketch",
    "fit_ridge",
]
