"""Methods that use some of the weights for each task, by a mask per task; the training steps of PackNet."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy, deepcopy

import torch
from torch import Tensor, nn

from ergnn.config.errors import InputError
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.losses import Objective, ParamDict
from ergnn.engine.step_hooks import StepHook, split_models, stack_models
from ergnn.methods.base import LearnerView, Method, NetworkScorer, Scorer
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples


class MaskMethod(Method, ABC):
    """Predicts with the weights of a task's mask, so that the task of a node must be known.

    Masks apply to the weights (parameters with two or more dimensions) that tasks share: those of the hidden layers,
    and of a shared output layer. Shared biases are learned in the first task only. Output layers per task are not
    masked.
    """

    supported_heads = ("shared", "per-task")

    @abstractmethod
    def mask(self, task: int) -> dict[str, Tensor]:
        """Name → boolean mask of the weights that a learned task uses; weights without a mask are all used."""

    def scorer(self, learner: LearnerView, graph: Graph, task: int | None) -> Scorer:
        assert learner.model is not None
        assert task is not None
        return NetworkScorer(self.masked(learner.model, task), graph, learner.heads, task)

    def masked(self, model: nn.Module, task: int) -> nn.Module:
        """Return the model with the weights of a task's mask; the model itself if the task uses all weights."""
        masks = self.mask(task)
        if not masks:
            return model
        masked = deepcopy(model)
        for name, mask in masks.items():
            value, (layer, _, own) = model.get_parameter(name), name.rpartition(".")
            used = torch.where(mask.to(value.device), value.detach(), 0.0)
            setattr(masked.get_submodule(layer), own, nn.Parameter(used, value.requires_grad))
        return masked

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        if not shared_parameters(learner)[0]:
            raise InputError(
                f"backbone {learner.backbone!r} has no weights that tasks share with head='per-task'; "
                "use head='shared' or a backbone with hidden layers"
            )
        assert learner.model is not None
        if any(name.endswith("running_mean") for name, _ in learner.model.named_buffers()):
            raise InputError(
                f"backbone {learner.backbone!r} has running statistics (norm='batch'), which every task changes; masks "
                "need a backbone without"
            )
        return super().examples(learner, task)


def shared_parameters(learner: LearnerView) -> tuple[ParamDict, ParamDict]:
    """The weights that tasks share, and the biases, by name."""
    assert learner.model is not None
    own_heads = learner.heads.kind == "per-task" and isinstance(learner.model, Backbone)
    shared = {
        name: value.detach()
        for name, value in learner.model.named_parameters()
        if not (own_heads and name.startswith("heads."))
    }
    weights = {name: value for name, value in shared.items() if value.dim() >= 2}
    return weights, {name: value for name, value in shared.items() if name not in weights}


class PruneAndFreeze(StepHook):
    """Keeps frozen parameters, and after some steps prunes the smallest of the free weights.

    Args:
        objective: the objective of the task.
        frozen, free: parameters that keep their values, and weights to be pruned; 0 or 1, by name.
        prune_at: number of the step after which weights are pruned.
        prune: fraction of the free weights of each layer to prune.
    """

    recordable = True

    def __init__(self, objective: Objective, frozen: ParamDict, free: ParamDict, prune_at: int, prune: float) -> None:
        self.frozen, self.free = (
            {name: value.bool() for name, value in objective.from_names(masks).items()} for masks in (frozen, free)
        )
        start = objective.parameters()
        self.held = {name: torch.where(mask, start[name], 0.0) for name, mask in self.frozen.items()}
        self.prune_at, self.prune, self.steps = prune_at, prune, 0
        self._hooks: Sequence[PruneAndFreeze] = ()

    @classmethod
    def stacked(cls, hooks: Sequence[PruneAndFreeze]) -> StepHook:
        together = copy(hooks[0])
        together._hooks = hooks
        together.frozen, together.held = (stack_models([getattr(h, key) for h in hooks]) for key in ("frozen", "held"))
        for hook, own in zip(hooks, split_models(together.frozen, len(hooks)), strict=True):
            hook.frozen = own  # views, which pruning changes
        return together

    def skip(self, steps: int) -> None:
        self.steps = steps

    def state_dict(self) -> ParamDict:
        return self.frozen

    def load_state_dict(self, state: ParamDict) -> None:
        self.frozen = dict(state)

    @torch.no_grad()
    def after_step(self, params: ParamDict, optimizer: torch.optim.Optimizer) -> None:
        for name, value in params.items():
            value.copy_(torch.where(self.frozen[name], self.held[name], value))

    @torch.no_grad()
    def between_steps(self, params: ParamDict) -> None:
        if self._hooks:
            for hook, own in zip(self._hooks, split_models(params, len(self._hooks)), strict=True):
                hook.between_steps(own)
            return
        self.steps += 1
        if self.steps == self.prune_at:
            for name, value in params.items():
                pruned = self.free[name] & ~self._largest(value, self.free[name])
                self.frozen[name].logical_or_(pruned)  # the value held is 0
                value.masked_fill_(pruned, 0.0)

    def _largest(self, value: Tensor, free: Tensor) -> Tensor:
        """The free weights to keep: the largest in magnitude, and never a 0."""
        size = torch.where(free, value.abs(), -1.0).flatten()
        kept = size.topk(math.ceil((1.0 - self.prune) * int(free.sum()))).indices
        return torch.zeros_like(free).flatten().index_fill(0, kept, True).view_as(free) & (value != 0)
