"""GNN backbones built from PyG layers, and the forms of these layers (:mod:`ergnn.nn.layers`)."""

from ergnn.nn.backbones.base import BACKBONES, Backbone

__all__ = ["BACKBONES", "Backbone"]
