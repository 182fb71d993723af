"""GNN backbones built from PyG layers, with the settings of their original papers; one file per type of layer.

Each file contains the backbone and the form of its layer (:mod:`ergnn.nn.layers`).
"""

from ergnn.nn.backbones.base import BACKBONES, Backbone

__all__ = ["BACKBONES", "Backbone"]
