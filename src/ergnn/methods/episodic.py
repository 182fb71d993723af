"""Methods that constrain gradients by remembered nodes: GEM and A-GEM."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ergnn.config.errors import check_at_least
from ergnn.config.registry import inherit_options
from ergnn.data.hashing import stream_key
from ergnn.data.stream import Task
from ergnn.engine.curvature import flatten, flatten_models, unflatten
from ergnn.engine.losses import Objective, ParamDict, gradients
from ergnn.engine.objective import FieldObjective
from ergnn.engine.step_hooks import StepHook, split_models
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView
from ergnn.methods.memory import MemoryMethod
from ergnn.nn.examples import Examples
from ergnn.replay.selectors import Selection

JOINED_ON = ("cuda",)
"""Devices on which the memories of models that are trained side by side are one objective, in which the order of sums
differs from that of a single model."""


class EpisodicMemory(MemoryMethod):
    """Base class of methods that train on the current task only, and constrain gradients by remembered nodes.

    Remembered nodes are examples of weight 0. They do not contribute to the loss, but the objective then includes the
    parameters of all heads that score them. e random training nodes per class are remembered.
    """

    @inherit_options(MemoryMethod, "budget_nodes", "budget_bytes")
    def __init__(self, **memory: Any) -> None:
        super().__init__(**memory)

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        return Examples.join(self.parts(learner, task, 0.0))

    def step_hook(self, learner: LearnerView, task: Task, objective: Objective) -> StepHook | None:
        if not self.buffer.experiences:
            return None
        positions = torch.arange(task.train.numel(), objective.targets.numel(), device=objective.targets.device)
        memories = positions.split([len(experience) for experience in self.buffer.experiences])
        return self.constraint(objective, memories, learner.seed * 1_000_003 + task.id * 7919 + 47)

    @abstractmethod
    def constraint(self, objective: Objective, memories: Sequence[Tensor], seed: int) -> StepHook:
        """Return the hook that projects gradients; ``memories`` has the positions of each earlier task's examples."""

    def select(self, learner: LearnerView, task: Task, trained_on: Examples) -> Selection:
        shuffled = torch.randperm(task.train.numel(), generator=task.generator(learner.seed, 37))
        labels = task.graph.y[task.train].cpu()[shuffled]
        positions = torch.cat([shuffled[labels == c][: self.per_class] for c in task.classes])
        nodes = task.train[positions.to(task.train.device)]
        return Selection(nodes, torch.zeros(nodes.numel(), device=nodes.device))


def flat_gradients(params: ParamDict, models: int = 1) -> Tensor:
    """Return the gradients of (stacked) parameters, ``[models, parameters]``."""
    grads = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in params.items()}
    return flatten_models(grads, models)


class GradientConstraint(StepHook):
    """Step hook that projects the gradient of each model before each step.

    For models that are trained side by side on a GPU, the remembered examples are in one objective: few large steps.

    Args:
        objective: objective of the task.
        memories: positions of each set of remembered examples in the objective.
        seed: seed for sampling at each step: examples, and neighbors if the batches of the task sample neighbors.
        project: function of a gradient and those of the memories, ``[memories, parameters]``.
        sample: number of examples of a single memory to sample per step; by default all examples of all memories.

    Attributes:
        synchronizes: whether ``project`` or sampling waits for a GPU; ``project`` of a single memory does not.
    """

    def __init__(
        self,
        objective: Objective,
        memories: Sequence[Tensor],
        seed: int,
        project: Callable[[Tensor, Tensor], Tensor],
        sample: int | None = None,
    ) -> None:
        self.objective, self.positions, self.seed, self.step = objective, list(memories), seed, 0
        self.samples_neighbors = objective.sampling is not None
        self.memories: Sequence[Any] = ()
        self.joined: Sequence[Objective] = ()
        if not self.samples_neighbors:
            self.memories = [objective.batch(positions) for positions in memories]
        self.project, self.size = project, sample
        self.synchronizes = sample is None or sample < memories[0].numel()
        self.generator = torch.Generator().manual_seed(seed % 2**63)

    @property
    def stacks_with(self) -> Hashable | None:
        return None if self.samples_neighbors else len(self.positions)

    @classmethod
    def stacked(cls, hooks: Sequence[GradientConstraint]) -> StepHook:
        together = copy(hooks[0])
        together.hooks = hooks
        if together.objective.targets.device.type in JOINED_ON:
            together.joined = [
                FieldObjective([one.models[0] for one in group], [one.examples[0] for one in group], group[0].heads)
                for group in zip(*(hook.memories for hook in hooks), strict=True)
            ]
            together.recordable = not any(hook.synchronizes for hook in hooks)
        return together

    def skip(self, steps: int) -> None:
        for _ in range(steps):
            self.sample()
        self.step += steps

    def before_step(self, params: ParamDict) -> None:
        hooks = self.hooks or (self,)
        chosen, models = [hook.sample() for hook in hooks], len(hooks)
        if self.joined:
            losses = [_chosen_mean(memory, params, chosen) for memory in self.joined]
            of_losses = [flatten_models(gradients(loss, params), models) for loss in losses]
            rows = list(torch.stack(of_losses, dim=1))
        else:
            of_models = zip(hooks, split_models(params, models), chosen, strict=True)
            rows = [hook.memory_gradients(of_model, index) for hook, of_model, index in of_models]
        self.step += 1
        pairs = zip(hooks, flat_gradients(params, models), rows, strict=True)
        # tensors of their own are aligned in memory, on which the rounding of a CPU's products depends
        projected = [hook.project(gradient.clone(), memories) for hook, gradient, memories in pairs]
        for name, gradient in unflatten(torch.stack(projected), params).items():
            if params[name].grad is not None or bool(gradient.any()):
                params[name].grad = gradient.contiguous()  # fused optimizers ignore strides

    def sample(self) -> Tensor | None:
        """Sample positions in the memory for the next step; None for all."""
        count, device = self.positions[0].numel(), self.positions[0].device
        if self.size is None or self.size >= count:
            return None
        return torch.randperm(count, generator=self.generator)[: self.size].to(device)

    def memory_gradients(self, params: ParamDict, chosen: Tensor | None) -> Tensor:
        """Compute the gradient of the mean loss of each memory, or of its chosen examples, in evaluation mode."""
        rows = []
        for i, positions in enumerate(self.positions):
            if self.samples_neighbors:
                key = stream_key(self.seed, self.step, *([i] if self.size is None else []))
                memory = self.objective.batch(positions if chosen is None else positions[chosen], key=key)
            else:
                memory = self.memories[i] if chosen is None else self.memories[i].batch(chosen)
            rows.append(flatten(gradients(memory.losses(params).mean(), params)))
        return torch.stack(rows)


def _chosen_mean(memory: Objective, params: ParamDict, chosen: Sequence[Tensor | None]) -> Tensor:
    """Compute the mean loss of the chosen examples of each model (all, if None), summed over models."""
    pairs = zip(memory.losses(params).split(memory.sizes), chosen, strict=True)
    return torch.stack([(loss if index is None else loss[index]).mean() for loss, index in pairs]).sum()


def nonnegative_minimum(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Minimize ``½ vᵀPv + qᵀv`` over v ≥ 0 exactly, for a positive semi-definite P with q in its range.

    Active-set method (Bro and De Jong, 1997); at the minimum, ``Pv + q ≥ 0``, and ``= 0`` where v > 0.
    """
    v, free = np.zeros_like(q), np.zeros(len(q), dtype=bool)
    for _ in range(10 * len(q) + 10):
        slope = np.where(free, np.inf, p @ v + q)
        if not len(q) or slope.min() >= -1e-10 * np.abs(q).max():
            return v
        free[slope.argmin()] = True
        while free.any():
            trial = np.zeros_like(v)
            trial[free] = np.linalg.lstsq(p[np.ix_(free, free)], -q[free], rcond=None)[0]
            blocked = free & (trial <= 0)
            if not blocked.any():
                break
            step = (v[blocked] / (v[blocked] - trial[blocked] + 1e-300)).min()
            v = v + step * (trial - v)
            free &= v > 1e-14 * np.abs(v).max(initial=0.0)
            v[~free] = 0.0
        v = np.where(free, trial, 0.0)
    return v


def project(gradient: Tensor, memories: Tensor, margin: float = 0.0) -> Tensor:
    """Return the vector closest to ``gradient`` with nonnegative products with all rows of ``memories``.

    With g the gradient and G the memories, the dual of ``min ½‖z − g‖² s.t. Gz ≥ 0`` has one variable per task:

        min_{v ≥ γ} ½ vᵀGGᵀv + gᵀGᵀv,    z = Gᵀv + g .

    γ is the margin, a lower bound of v as in the authors' code; ``Gz ≥ 0`` still holds. A feasible g is not changed.
    """
    products = memories @ gradient
    if bool((products >= 0).all()):
        return gradient
    p, q = (memories @ memories.T).double().cpu().numpy(), products.double().cpu().numpy()
    v = margin + nonnegative_minimum(p, q + margin * p.sum(1))
    return gradient + torch.from_numpy(v).to(gradient) @ memories


@METHODS.register("gem", help="no step may increase the loss of an earlier task's memory (gradient episodic memory)")
class GEM(EpisodicMemory):
    """Gradient episodic memory (Lopez-Paz and Ranzato, 2017), its quadratic program solved exactly at each step.

    Args:
        margin: γ, lower bound of the dual variables, 0 or more; the paper's experiments use 0.5.
    """

    comparison = Comparison(search={"margin": (0.0, 0.5)})

    @inherit_options(EpisodicMemory)
    def __init__(self, *, margin: float = 0.0, **memory: Any) -> None:
        check_at_least(0, margin=margin)
        super().__init__(**memory)
        self.margin = float(margin)

    def constraint(self, objective: Objective, memories: Sequence[Tensor], seed: int) -> StepHook:
        return GradientConstraint(objective, memories, seed, partial(project, margin=self.margin))


def project_on_average(gradient: Tensor, memories: Tensor) -> Tensor:
    """Project g onto the vectors with a nonnegative product with r, the only memory: ``g − min(gᵀr, 0) / rᵀr · r``."""
    reference = memories[0]
    product = gradient @ reference
    return torch.where(product < 0, gradient - (product / (reference @ reference)) * reference, gradient)


@METHODS.register("agem", aliases=("a-gem",), help="no step may increase the memory's mean loss (averaged GEM)")
class AGEM(EpisodicMemory):
    """Averaged gradient episodic memory (Chaudhry et al., 2019): one constraint instead of one per task.

    Args:
        sample: number of remembered nodes to sample per step for the constraint (256 in the paper's experiments); all
            nodes of a smaller memory are used.
    """

    @inherit_options(EpisodicMemory)
    def __init__(self, *, sample: int = 256, **memory: Any) -> None:
        check_at_least(1, sample=sample)
        super().__init__(**memory)
        self.sample = sample

    def constraint(self, objective: Objective, memories: Sequence[Tensor], seed: int) -> StepHook:
        return GradientConstraint(objective, [torch.cat(list(memories))], seed, project_on_average, self.sample)
