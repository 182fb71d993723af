"""Losses as a function of parameters: the interface that training, curvature and every method use.

It is implemented here for any module, on the whole graph; see :mod:`ergnn.engine.objective` for backbones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from ergnn.config.errors import InputError
from ergnn.data.graph import Graph
from ergnn.data.hashing import seeded
from ergnn.engine.cache import Cache
from ergnn.engine.features import sparse_x
from ergnn.engine.sampling import Sampling
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples, cross_entropy, loss_key

MASKED = -1e9
"""Score of an output that a head does not have (heads of different widths are padded)."""

ParamDict = dict[str, Tensor]
Entry = Callable[[Tensor], Tensor]


class Objective(ABC):
    """The losses of a set of examples as a function of parameters.

    Attributes:
        examples: one set of examples per model.
        targets, weights: targets and weights of the examples, concatenated over models.
        heads: the heads in use.
        dropout_sites: number of dropout keys that a forward pass uses.
        recordable: whether a forward pass never synchronizes with a GPU, so that a CUDA graph can record it.
        sampling: how neighbors are sampled for each batch, if they are.
    """

    examples: list[Examples]
    targets: Tensor
    weights: Tensor
    heads: list[int]
    dropout_sites: int = 1
    recordable: bool = False
    sampling: Sampling | None = None

    @property
    def sizes(self) -> list[int]:
        """Number of examples of each model."""
        return [len(examples) for examples in self.examples]

    @abstractmethod
    def parameters(self) -> ParamDict:
        """Return a copy of the parameters that the scores of the examples depend on."""

    @abstractmethod
    def write_back(self, params: ParamDict) -> None:
        """Copy parameters into the models."""

    @abstractmethod
    def logits(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        """Compute scores ``[n, outputs]`` with dropout keys ``[sites, models]``, or None in evaluation mode."""

    @abstractmethod
    def batch(self, index: Tensor, weights: Tensor | None = None, key: int | None = None) -> Objective:
        """Return an objective of the same parameters on some of the examples of one model.

        Args:
            index: positions of the examples.
            weights: new weights of the examples; by default unchanged.
            key: key for sampling neighbors, if neighbors are sampled.
        """

    @abstractmethod
    def by_name(self, params: ParamDict) -> ParamDict:
        """Convert stacked parameters of one model, or tensors of the same shapes, to the model's names and shapes."""

    @abstractmethod
    def from_names(self, values: ParamDict) -> ParamDict:
        """Invert :meth:`by_name`; missing values are 0."""

    @property
    def linked(self) -> bool:
        """Whether it uses the neighbor lists of a large graph (:mod:`ergnn.engine.blocks`)."""
        return False

    def buffers(self) -> ParamDict:
        """Return the model's buffers, e.g. running means, which training changes in place (not copies)."""
        return {}

    def gradient_sums(self, params: ParamDict, entry: Entry = torch.square) -> ParamDict:
        """Compute ``Σ_i (∇ℓ_i)²``, the sum of squared per-example gradients (evaluation mode, without weights).

        Args:
            entry: function applied to each entry instead of the square, e.g. :func:`torch.abs`; it must be
                multiplicative, ``entry(ab) = entry(a) entry(b)``.
        """
        total = {name: torch.zeros_like(value) for name, value in params.items()}
        leaves = leaves_of(params)
        with torch.enable_grad():
            losses = self.losses(leaves)
        for loss in losses:
            for name, value in gradients(loss, leaves).items():
                total[name] += entry(value)
        return total

    @property
    def has_default_loss(self) -> bool:
        """Whether the loss of every example is cross-entropy."""
        return all(examples.loss is cross_entropy for examples in self.examples)

    @cached_property
    def joint_extras(self) -> dict[str, Tensor] | None:
        """Extras of all examples, if the losses of all models are known to be the same function; otherwise None."""
        extras = [examples.extras for examples in self.examples]
        shapes = [{name: value.shape[1:] for name, value in of_model.items()} for of_model in extras]
        keys = [loss_key(examples.loss) for examples in self.examples]
        if keys[0] is None or any(key != keys[0] for key in keys) or any(shape != shapes[0] for shape in shapes):
            return None
        return {name: torch.cat([of_model[name] for of_model in extras]) for name in extras[0]}

    @property
    def joins_losses(self) -> bool:
        """Whether losses of all models are computed together; not on a CPU, where rounding would depend on others."""
        return self.targets.is_cuda and self.joint_extras is not None

    def loss(self, logits: Tensor) -> Tensor:
        """Compute the loss of each example, ``[n]``, from all scores."""
        if self.has_default_loss:
            return cross_entropy(logits, self.targets, {})
        if self.joins_losses and self.joint_extras is not None:
            return self.examples[0].loss(logits, self.targets, self.joint_extras)
        pairs = zip(self.examples, logits.split(self.sizes), strict=True)
        return torch.cat([examples.losses(scores) for examples, scores in pairs])

    def losses(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        """Compute the loss of each example, ``[n]``, from parameters."""
        return self.loss(self.logits(params, keys))

    @cached_property
    def _owner(self) -> Tensor:
        """The model of each example."""
        sizes = torch.tensor(self.sizes, device=self.targets.device)
        return torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)

    def model_losses(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        """Compute ``Σ weight · loss`` over the examples of each model, ``[models]`` (on a GPU, in any order)."""
        losses, sizes = self.weights * self.losses(params, keys), self.sizes
        if losses.is_cuda and len(sizes) > 1:  # one operation instead of one per model
            return losses.new_zeros(len(sizes)).index_add(0, self._owner, losses)
        return torch.stack([of_model.sum() for of_model in losses.split(sizes)])


def leaves_of(params: ParamDict) -> ParamDict:
    """Return the parameters as leaves that gradients can be computed for."""
    return {name: value.detach().requires_grad_() for name, value in params.items()}


def gradients(value: Tensor, leaves: ParamDict, along: Tensor | None = None, create_graph: bool = False) -> ParamDict:
    """Compute the gradient of a number, or the product of ``along`` and the Jacobian of a tensor; keeps the graph."""
    points, options = list(leaves.values()), {"create_graph": create_graph, "materialize_grads": True}
    return dict(zip(leaves, torch.autograd.grad(value, points, along, True, **options), strict=True))


def head_positions(heads: list[int], used: Tensor) -> Tensor:
    """Return the position of each head in ``heads`` (ascending)."""
    known = used.new_tensor(heads)
    position = torch.searchsorted(known, used.contiguous()).clamp(max=len(heads) - 1)
    wrong = used[known[position] != used]
    if wrong.numel():
        raise InputError(f"examples are scored by head {int(wrong[0])}; the heads in use are {heads}")
    return position


class PlainModel(nn.Module):
    """Any module with ``forward(x, adj)``, whose output columns are divided among the heads in order.

    Heads can have different widths: with tasks of 4, 4 and 3 classes, head 2 has columns 8 to 10.

    Args:
        module: called with dense features and PyG's ``edge_index``.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.head_widths: list[int] = []

    def add_head(self, out_channels: int) -> None:
        self.head_widths.append(out_channels)

    def check_outputs(self, graph: Graph) -> None:
        """Raise an error if the module has fewer outputs than its heads need, by a forward pass in evaluation mode."""
        self.to(graph.device).eval()
        with torch.no_grad():
            self(_dense_x(graph), graph.edge_index)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        out: Tensor = self.module(x, adj)
        needed = sum(self.head_widths)
        if out.size(1) < needed:
            name, heads = type(self.module).__name__, " + ".join(map(str, self.head_widths))
            raise InputError(
                f"{name} has {out.size(1)} outputs, but {needed} are needed, one per class of each head ({heads}); "
                f"build it with {needed} outputs, or use head='shared' if the task of a node is known"
            )
        return out


_DENSE: Cache[Tensor] = Cache()


def _dense_x(graph: Graph) -> Tensor:
    """Return the graph's features as a dense matrix; that of sparse features is cached."""
    return _DENSE.get([graph.x], graph.dense_x) if graph.is_sparse else graph.x


class PlainObjective(Objective):
    """Objective on the whole graph, for any module with ``forward(x, adj)``.

    A :class:`Backbone` is called once per head in use, a :class:`PlainModel` once for all heads.
    """

    def __init__(self, model: nn.Module, examples: Examples) -> None:
        self.model, self.examples = model, [examples]
        self.targets, self.weights = examples.targets, examples.weights
        self.heads = torch.unique(examples.heads).tolist()
        self._x = _dense_x(examples.graph)
        self._sparse = None
        if isinstance(model, Backbone) and model.sparse_input and not self._x.is_cuda:
            self._sparse = sparse_x(examples.graph)

    def parameters(self) -> ParamDict:
        return {name: value.detach().clone() for name, value in self.model.named_parameters()}

    def write_back(self, params: ParamDict) -> None:
        with torch.no_grad():
            for name, value in self.model.named_parameters():
                value.copy_(params[name])

    def by_name(self, params: ParamDict) -> ParamDict:
        return dict(params)

    def from_names(self, values: ParamDict) -> ParamDict:
        return {name: values.get(name, torch.zeros_like(value)) for name, value in self.parameters().items()}

    def buffers(self) -> ParamDict:
        return dict(self.model.named_buffers())

    def batch(self, index: Tensor, weights: Tensor | None = None, key: int | None = None) -> Objective:
        return PlainObjective(self.model, self.examples[0].select(index, weights))

    def logits(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        self.model.train(keys is not None)
        if keys is None:
            scores = self._scores(params, self._x)
        else:
            with seeded(int(keys[0, 0]) & 0x7FFFFFFF, self.targets.device):
                scores = self._scores(params, self._x if self._sparse is None else self._sparse)
        local = head_positions(self.heads, self.examples[0].heads)
        return scores[self.examples[0].nodes.unsqueeze(1), local].flatten(1)

    def _scores(self, params: ParamDict, x: Tensor) -> Tensor:
        """Compute the scores of all nodes, ``[nodes, heads in use, width]``."""
        graph = self.examples[0].graph
        x = x.to(next(iter(params.values())).dtype)
        if isinstance(self.model, Backbone):
            of_heads = [functional_call(self.model, params, (x, graph.edge_index, head)) for head in self.heads]
        else:
            assert isinstance(self.model, PlainModel)
            out = functional_call(self.model, params, (x, graph.edge_index))
            widths = self.model.head_widths
            columns = out[:, : sum(widths)].split(widths, dim=1)
            of_heads = [columns[head] for head in self.heads]
        width = max(out.size(1) for out in of_heads)
        return torch.stack([F.pad(out, (0, width - out.size(1)), value=MASKED) for out in of_heads], dim=1)
