"""Methods that use some of the weights for each task, by a mask per task: PackNet and Piggyback."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from ergnn.config.errors import InputError, check_between
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.losses import Objective, ParamDict
from ergnn.engine.step_hooks import StepHook, split_models
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView, Method, NetworkScorer, Scorer
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
        with torch.no_grad():
            for name, mask in masks.items():
                weights = masked.get_parameter(name)
                weights.masked_fill_(~mask.to(weights.device), 0.0)
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
    named = learner.model.named_parameters()
    shared = {name: value.detach() for name, value in named if not (own_heads and name.startswith("heads."))}
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
    saved = "frozen"
    per_parameter = ("frozen", "held")

    def __init__(self, objective: Objective, frozen: ParamDict, free: ParamDict, prune_at: int, prune: float) -> None:
        self.frozen, self.free = (
            {name: value.bool() for name, value in objective.from_names(masks).items()} for masks in (frozen, free)
        )
        start = objective.parameters()
        self.held = {name: torch.where(mask, start[name], 0.0) for name, mask in self.frozen.items()}
        self.prune_at, self.prune, self.steps = prune_at, prune, 0

    def skip(self, steps: int) -> None:
        self.steps = steps

    @torch.no_grad()
    def after_step(self, params: ParamDict, optimizer: torch.optim.Optimizer) -> None:
        for name, value in params.items():
            value.copy_(torch.where(self.frozen[name], self.held[name], value))

    @torch.no_grad()
    def between_steps(self, params: ParamDict) -> None:
        if self.hooks:
            for hook, of_model in zip(self.hooks, split_models(params, len(self.hooks)), strict=True):
                hook.between_steps(of_model)
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
        largest = size.topk(math.ceil((1.0 - self.prune) * int(free.sum()))).indices
        return torch.zeros_like(free).flatten().index_fill(0, largest, True).view_as(free) & (value != 0)


@METHODS.register("packnet", help="train, prune, retrain and freeze a part of the weights for each task (PackNet)")
class PackNet(MaskMethod):
    """PackNet (Mallya and Lazebnik, 2018): earlier tasks' outputs never change; the task must be known.

    A task trains the weights that are still free, together with those of earlier tasks, which are frozen. Then the
    fraction ``prune`` of the free weights of each layer, the smallest in magnitude, is set to 0, and the others are
    trained further and frozen. Nodes of task t are predicted with the weights of tasks 1 to t.

    Args:
        prune: fraction of the free weights that a task leaves to later tasks (0.5 to 0.75 in the paper).
        retrain: fraction of a task's epochs that follow pruning (a third in the paper).

    Attributes:
        owner: the task (from 1) that owns each weight; 0 is free.
    """

    stored = ("owner",)
    comparison = Comparison(search={"prune": (0.5, 0.75), "retrain": (0.3, 0.5)})

    def __init__(self, prune: float = 0.75, retrain: float = 0.3) -> None:
        check_between(0, 1, prune=prune, retrain=retrain)
        self.prune, self.retrain = prune, retrain
        self.owner: dict[str, Tensor] = {}

    def mask(self, task: int) -> dict[str, Tensor]:
        return {name: (owner > 0) & (owner <= task + 1) for name, owner in self.owner.items()}

    def step_hook(self, learner: LearnerView, task: Task, objective: Objective) -> StepHook | None:
        weights, biases = shared_parameters(learner)
        free = {name: self._owner_of(name, value) == 0 for name, value in weights.items()}
        frozen = {name: ~mask for name, mask in free.items()}
        frozen |= {name: torch.ones_like(value, dtype=torch.bool) for name, value in biases.items() if task.id}
        size = learner.training.batch_size or task.train.numel()
        steps = learner.training.epochs * -(-task.train.numel() // size)
        return PruneAndFreeze(objective, frozen, free, max(1, steps - int(self.retrain * steps)), self.prune)

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        weights, _ = shared_parameters(learner)
        for name, value in weights.items():
            owner = self._owner_of(name, value)
            self.owner[name] = torch.where((owner == 0) & (value != 0), task.id + 1, owner).to(owner.dtype)
        free = sum(int((owner == 0).sum()) for owner in self.owner.values())
        return {"free": free / sum(value.numel() for value in weights.values())}

    def _owner_of(self, name: str, value: Tensor) -> Tensor:
        return self.owner[name] if name in self.owner else torch.zeros_like(value, dtype=torch.int16)


class MaskTraining(StepHook):
    """Lets the optimizer train real-valued masks m in place of the weights W.

    The loss is computed with ``W 1[m > τ]``. The gradient passes the threshold unchanged (straight-through):
    ``∂ℓ/∂m = W ∂ℓ/∂(W 1[m > τ])``. Masks are not decayed; the gradient cancels a coupled weight decay.

    Args:
        objective: the objective of the task.
        masked, frozen: weights with a mask, and parameters that keep their values, by name.
        init, threshold: initial value of m, and τ.
        l2: coupled weight decay of the optimizer.
    """

    recordable = True
    saved = "real"
    per_parameter = ("fixed", "real")

    def __init__(
        self, objective: Objective, masked: ParamDict, frozen: ParamDict, init: float, threshold: float, l2: float
    ) -> None:
        def of_task(values: ParamDict) -> list[str]:
            ones = objective.from_names({name: torch.ones_like(value) for name, value in values.items()})
            return [name for name, value in ones.items() if bool(value.any())]

        self.objective, self.threshold, self.l2 = objective, threshold, l2
        self.fixed, self.held = objective.parameters(), of_task(frozen)
        self.real = {name: torch.full_like(self.fixed[name], init) for name in of_task(masked)}

    @torch.no_grad()
    def before_step(self, params: ParamDict) -> None:
        for name, real in self.real.items():
            gradient = params[name].grad
            if gradient is not None:
                gradient.mul_(self.fixed[name]).sub_(real, alpha=self.l2)
            params[name].copy_(real)

    @torch.no_grad()
    def after_step(self, params: ParamDict, optimizer: torch.optim.Optimizer) -> None:
        for name in self.real:
            self.real[name].copy_(params[name])
            params[name].copy_(torch.where(self.real[name] > self.threshold, self.fixed[name], 0.0))
        for name in self.held:
            params[name].copy_(self.fixed[name])


@METHODS.register("piggyback", help="learn a binary mask per task over the network of the first task (Piggyback)")
class Piggyback(MaskMethod):
    """Piggyback (Mallya et al., 2018): earlier tasks' outputs never change; the task must be known.

    The first task trains the network, which is then fixed. Every later task t learns which weights it uses,
    ``W 1[m_t > τ]``, by gradients of the real-valued masks m_t (see :class:`MaskTraining`), and its own output layer.

    Args:
        init: initial value of masks. With Adam, only ``init − threshold`` relative to the learning rate matters: the
            paper's 0.01 − 0.005 is 50 steps at its learning rate 1e-4, the default is 50 steps at 0.01.
        threshold: τ.
    """

    stored = ("masks",)

    def __init__(self, init: float = 1.0, threshold: float = 0.5) -> None:
        if not 0.0 <= threshold < init < float("inf"):
            raise InputError(f"threshold is {threshold} and init is {init}; 0 <= threshold < init is required")
        self.init, self.threshold = float(init), float(threshold)
        self.masks: list[dict[str, Tensor]] = []
        self._hook: MaskTraining | None = None

    def mask(self, task: int) -> dict[str, Tensor]:
        return self.masks[task] if task < len(self.masks) else {}

    def step_hook(self, learner: LearnerView, task: Task, objective: Objective) -> StepHook | None:
        arguments = *shared_parameters(learner), self.init, self.threshold, learner.training.l2
        self._hook = MaskTraining(objective, *arguments) if task.id else None
        return self._hook

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        hook, self._hook = self._hook, None
        if hook is None:  # the first task, which uses all weights
            self.masks.append({})
            return {"used": 1.0}
        trained = hook.objective.parameters()
        hook.objective.write_back({name: hook.fixed[name] if name in hook.real else v for name, v in trained.items()})
        used = {name: real > self.threshold for name, real in hook.real.items()}
        by_name = hook.objective.by_name({name: used.get(name, value) for name, value in trained.items()})
        weights, _ = shared_parameters(learner)
        self.masks.append({name: by_name[name].clone() for name in weights})
        return {"used": float(torch.cat([mask.flatten() for mask in used.values()]).float().mean())}
