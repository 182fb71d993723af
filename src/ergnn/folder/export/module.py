"""A trained model as a plain PyG module: ``module(x, edge_index)`` are logits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ergnn.analytic import FEATURE_MAPS
from ergnn.analytic.features import join_blocks
from ergnn.analytic.inputs import Sketch
from ergnn.config.errors import InputError
from ergnn.data.scale import CLIP
from ergnn.data.tables.encoder import Encoder
from ergnn.data.tables.kinds import encode_values
from ergnn.data.tables.named_graph import features_tensor, to_graph
from ergnn.data.tables.read import read_edges, read_nodes
from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.nn.layers import PlainAdjacency


class NodeClassifier(nn.Module):
    """Logits of nodes, in evaluation mode.

    Attributes:
        classes: the name of each column of the logits.
        metadata: what else is known of the model: backbone and its options or the feature map, feature names, version.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        super().__init__()
        self.metadata = dict(metadata)
        self.classes = class_names(metadata)

    @property
    def num_features(self) -> int:
        return int(self.metadata["num_features"])

    def encode(self, table: Any, edges: Any = None) -> Tensor:
        """Features of a table of nodes (a file, a data frame or an Arrow table), by the columns that were learned.

        The edges matter only if the nodes have no columns: then features follow from them.
        """
        nodes = read_nodes(table)
        if self.metadata.get("structure"):
            table = None if edges is None else read_edges(edges)
            return to_graph(nodes, table, undirected=not self.metadata["directed"]).graph.x.to_dense()
        if not self.metadata.get("encoder"):
            return features_tensor(nodes).to_dense()
        encoder = Encoder.from_json(self.metadata["encoder"])
        features = encoder.features(encode_values(encoder.columns, nodes.columns or {}, "the table"))
        return torch.from_numpy(features.toarray() if encoder.is_sparse else features)

    @abstractmethod
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits ``[nodes, classes]``, whose softmax are the probabilities.

        Args:
            x: features, ``[nodes, num_features]``, dense.
            edge_index: ``[2, edges]``, source and target of each edge; both directions of an undirected one. As in
                a folder, an edge that is given twice counts once.
        """


class NetworkClassifier(NodeClassifier):
    """PyG layers, and the output layers of all tasks side by side."""

    def __init__(self, metadata: Mapping[str, Any], model: Backbone) -> None:
        super().__init__(metadata)
        self.model = model.eval()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index = _distinct(edge_index, x.size(0))
        h = self.model.embed(x, edge_index)
        parts = [last(h) if isinstance(last, nn.Linear) else last(h, edge_index) for last in self.model.heads]
        return torch.cat(parts, 1)


class AnalyticClassifier(NodeClassifier):
    """``τ k(φ, anchors) W`` of the closed form, with φ of :class:`ergnn.analytic.Features`; computed in float64.

    Without anchors, the kernel is the inner product and scores are ``τ φ W``.
    """

    def __init__(self, metadata: Mapping[str, Any], weight: Tensor, anchors: Tensor | None = None) -> None:
        super().__init__(metadata)
        self.feature_map = FEATURE_MAPS.create(metadata["map"], **metadata["map_options"])
        self.register_buffer("weight", weight.double() * metadata["temperature"])
        self.kernel_scale = float(metadata.get("s", 0.0))
        if anchors is not None:
            self.register_buffer("anchors", anchors.double())
        self.encoder = Encoder.from_json(metadata["encoder"]) if metadata.get("encoder") else None
        if self.encoder is not None and self.encoder.only_numbers:
            for name, values in self.encoder.number_scales().items():
                self.register_buffer(name, torch.tensor(values, dtype=torch.float64))
        self.sketch_size: int | None = metadata["sketch"]
        if self.sketch_size is not None:
            sketch = Sketch(self.num_features, self.sketch_size)
            self.register_buffer("sketch_column", sketch.column)
            self.register_buffer("sketch_sign", sketch.sign)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        rows = self._scaled(x.double())
        if self.sketch_size is not None:
            sketched = rows.new_zeros(rows.size(0), self.sketch_size)
            for column, sign in zip(self.get_buffer("sketch_column").T, self.get_buffer("sketch_sign").T, strict=True):
                sketched = sketched.scatter_add(1, column.expand(rows.size(0), -1), rows * sign)
            rows = sketched
        operator = PlainAdjacency(_distinct(edge_index, x.size(0)), x.size(0), rows.dtype)
        phi = join_blocks(self.feature_map.blocks(operator, rows))
        if self.kernel_scale:
            anchors = self.get_buffer("anchors")
            square = phi.square().sum(1, keepdim=True) + anchors.square().sum(1) - 2 * phi @ anchors.T
            phi = torch.exp(-0.5 * self.kernel_scale**2 * square.clamp(min=0))
        return (phi @ self.get_buffer("weight")).float()

    def _scaled(self, x: Tensor) -> Tensor:
        """Rows divided by their sums, numbers standardized, or the features of :meth:`NodeClassifier.encode`."""
        if self.metadata.get("structure"):
            return x
        if self.encoder is None:
            total = x.abs().sum(1, keepdim=True)
            return x / torch.where(total > 0, total, 1.0)
        if not self.encoder.only_numbers:
            return x
        unit = self.get_buffer("unit")
        moved = torch.where(unit > 0, x.sign() * torch.log1p(x.abs() / torch.where(unit > 0, unit, 1.0)), x)
        standardized = ((moved - self.get_buffer("center")) / self.get_buffer("scale")).clamp(-CLIP, CLIP)
        return standardized.float().double()  # as stored features


def _distinct(edge_index: Tensor, num_nodes: int) -> Tensor:
    """The edges sorted by target, each once, as a folder stores them."""
    keys, order = torch.sort(edge_index[1] * num_nodes + edge_index[0])
    every = torch.arange(keys.size(0), device=keys.device)  # a slice would constrain the number of edges
    previous = torch.cat([keys.new_full((1,), -1), keys]).index_select(0, every)
    return edge_index[:, order[keys != previous]]


def class_names(metadata: Mapping[str, Any]) -> list[str]:
    """The class of each column of the logits: output layers side by side, in their order."""
    return [name for _, name in sorted(metadata["outputs"])]


def build_module(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> NodeClassifier:
    """The module of exported weights."""
    if metadata.get("weighted"):
        raise InputError("the model reads weights of edges, which an exported module does not; use `ergnn predict`")
    try:
        if "map" in metadata:
            return AnalyticClassifier(metadata, tensors["weight"], tensors.get("anchors")).eval()
        options = metadata["backbone_options"]
        model = BACKBONES.create(metadata["backbone"], in_channels=metadata["num_features"], **options)
        for width in metadata["heads"]:
            model.add_head(width)
        model.load_state_dict(dict(tensors))
        return NetworkClassifier(metadata, model).eval()
    except (KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"the weights do not fit their description ({type(error).__name__}: {error})") from None
