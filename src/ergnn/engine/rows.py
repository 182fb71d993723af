"""Losses of models that do not use neighbors: one row of scores per row of features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ergnn.engine.dropout_stream import DropoutStream
from ergnn.engine.losses import Entry, Objective, ParamDict
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples


def is_rowwise(model: Backbone) -> bool:
    """Return whether all layers are linear layers, which process each row separately."""
    return all(type(layer) is nn.Linear for layer in [*model.convs, *model.heads])


class RowObjective(Objective):
    """Objective of a multilayer perceptron with one head in use, on rows of a feature matrix.

    A batch selects rows of that matrix. The gradient of a layer for one example is the outer product of the layer's
    input and the gradient of its output. The parameters are those of ``whole``, the objective on fields.
    """

    def __init__(self, whole: Objective, model: Backbone, examples: Examples) -> None:
        x = examples.graph.rows(examples.nodes).to(model.dtype)
        self._set(whole, model, x, examples)

    def _set(self, whole: Objective, model: Backbone, x: Tensor, examples: Examples) -> None:
        self.whole, self.model, self.x = whole, model, x
        self.examples, self.targets, self.weights = [examples], examples.targets, examples.weights
        self.heads, self.dropout_sites = whole.heads, whole.dropout_sites

    def batch(self, index: Tensor, weights: Tensor | None = None, key: int | None = None) -> Objective:
        part = RowObjective.__new__(RowObjective)
        examples = self.examples[0][index]
        part._set(self.whole, self.model, self.x[index], examples if weights is None else examples.weighted(weights))
        return part

    def parameters(self) -> ParamDict:
        return self.whole.parameters()

    def write_back(self, params: ParamDict) -> None:
        self.whole.write_back(params)

    def by_name(self, params: ParamDict) -> ParamDict:
        return self.whole.by_name(params)

    def from_names(self, values: ParamDict) -> ParamDict:
        return self.whole.from_names(values)

    def logits(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        return self._forward(params, keys)[0]

    def _forward(
        self, params: ParamDict, keys: Tensor | None = None, offsets: list[Tensor] | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the scores and the input of each layer; ``offsets`` are added to the output of each layer."""
        drop, p = DropoutStream(keys), self.model.dropout
        rows = torch.arange(self.x.size(0), dtype=torch.int32, device=self.x.device) if p and keys is not None else None
        names = [*(f"convs.{i}" for i in range(len(self.model.convs))), "head"]
        h, inputs = self.x, []
        for i, name in enumerate(names):
            h = self.model.activation(h) if i else h
            h = h if rows is None else drop(h, p, rows, torch.zeros_like(rows))
            inputs.append(h)
            h = torch.addmm(params[f"{name}.bias"], h, params[f"{name}.weight"].squeeze(0))
            h = h if offsets is None else h + offsets[i]
        return h, inputs

    def gradient_sums(self, params: ParamDict, entry: Entry = torch.square) -> ParamDict:
        """Compute ``Σ_i (∇ℓ_i)²``: the gradient of ``W`` for one example is ``a δᵀ``, and its square ``a² (δ²)ᵀ``."""
        names = [*(f"convs.{i}" for i in range(len(self.model.convs))), "head"]
        fixed = {name: value.detach() for name, value in params.items()}
        offsets = [fixed[f"{name}.bias"].new_zeros(self.x.size(0), fixed[f"{name}.bias"].size(1)) for name in names]
        offsets = [value.requires_grad_() for value in offsets]
        logits, inputs = self._forward(fixed, None, offsets)
        loss = self.loss(logits).sum()
        total = {}
        for name, a, delta in zip(names, inputs, torch.autograd.grad(loss, offsets), strict=True):
            total[f"{name}.weight"] = (entry(a.detach()).T @ entry(delta)).unsqueeze(0)
            total[f"{name}.bias"] = entry(delta).sum(0, keepdim=True)
        return {name: total[name] for name in params}
