"""GNN backbones on PyG's layers, with the settings of their original papers: one file per kind of layer.

Each file has the backbone and the form of its layer (:mod:`ergnn.nn.layers`).
"""

from ergnn.nn.backbones.base import BACKBONES, Backbone

__all__ = ["BACKBONES", "Backbone"]
