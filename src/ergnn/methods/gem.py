"""Gradient episodic memory (GEM): no step may increase the loss of an earlier task's memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ergnn.data.hashing import stream_key
from ergnn.data.stream import Task
from ergnn.engine.losses import Objective, ParamDict
from ergnn.engine.sampled import SampledObjective
from ergnn.methods import METHODS
from ergnn.methods.base import LearnerView, Method
from ergnn.methods.memory import check_at_least
from ergnn.nn.examples import Examples
from ergnn.registry import check_choice
from ergnn.replay.buffer import ExperienceBuffer, ReplayMode
from ergnn.replay.selectors import check_per_class
from ergnn.step_hooks import StepHook

Choose = Literal["random", "last"]


def nonnegative_minimum(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Minimize ``½ vᵀPv + qᵀv`` over v ≥ 0 exactly, for a positive semi-definite P with q in its range.

    Uses the active-set method of Lawson and Hanson on the normal equations (Bro and De Jong, 1997), which solves a
    finite number of small linear systems. At the minimum, ``Pv + q ≥ 0``, and ``= 0`` where v > 0.
    """
    v, free = np.zeros_like(q), np.zeros(len(q), dtype=bool)
    scale = np.abs(q).max(initial=0.0)
    for _ in range(10 * len(q) + 10):
        slope = np.where(free, np.inf, p @ v + q)
        if not len(q) or slope.min() >= -1e-10 * scale:
            return v
        free[slope.argmin()] = True
        while True:
            trial = np.zeros_like(v)
            trial[free] = np.linalg.lstsq(p[np.ix_(free, free)], -q[free], rcond=None)[0]
            blocked = free & (trial <= 0)
            if not blocked.any():
                break
            step = (v[blocked] / (v[blocked] - trial[blocked] + 1e-300)).min()
            v = v + step * (trial - v)
            free &= v > 1e-14 * np.abs(v).max(initial=0.0)
            v[~free] = 0.0
            if not free.any():
                break
        v = np.where(free, trial, 0.0)
    return v


def project(gradient: Tensor, memories: Tensor, margin: float = 0.0) -> Tensor:
    """Return the vector closest to ``gradient`` with nonnegative products with all rows of ``memories``.

    With g the gradient and G the memories, the dual of ``min ½‖z − g‖² s.t. Gz ≥ 0`` has one variable per task:

        min_{v ≥ γ} ½ vᵀGGᵀv + gᵀGᵀv,    z = Gᵀv + g .

    γ is the margin, a lower bound of v as in the authors' code: it adds descent on the memories, and ``Gz ≥ 0`` still
    holds. A gradient that violates no constraint is not changed.
    """
    products = memories @ gradient
    if bool((products >= 0).all()):
        return gradient
    gram = (memories @ memories.T).double().cpu().numpy()
    v = margin + nonnegative_minimum(gram, products.double().cpu().numpy() + margin * gram.sum(1))
    return gradient + torch.from_numpy(v).to(gradient) @ memories


def flat_gradient(params: ParamDict) -> Tensor:
    """Concatenate the gradients of all parameters into one vector."""
    return torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in params.values()])


def set_gradient(params: ParamDict, vector: Tensor) -> None:
    parts = vector.split([value.numel() for value in params.values()])
    for value, part in zip(params.values(), parts, strict=True):
        value.grad = part.view_as(value)


def mean_gradient(objective: Objective, params: ParamDict, out: Tensor | None = None) -> Tensor:
    """Compute the gradient of the mean loss in evaluation mode as one vector (written to ``out`` if given)."""
    grads = torch.autograd.grad(objective.losses(params).mean(), list(params.values()), allow_unused=True)
    pairs = zip(grads, params.values(), strict=True)
    parts = [(torch.zeros_like(value) if grad is None else grad).flatten() for grad, value in pairs]
    return torch.cat(parts) if out is None else torch.cat(parts, out=out)


class EpisodicMemory(Method):
    """Base class of methods that train on the current task only, and constrain gradients by remembered nodes.

    Remembered nodes are examples of weight 0. They do not contribute to the loss, but the objective then includes the
    parameters of all heads that score them.

    Args:
        per_class: e, number of nodes to remember per class.
        choose: nodes to remember: e random training nodes per class (``random``), or the ``last`` training nodes of the
            task, regardless of class, as in the GEM paper.
        replay: edges of a replayed node: those in the current graph (``live``), none (``isolated``), or those of the
            neighborhood stored with it (``ego``).
        hops: radius of a stored neighborhood, in hops.
    """

    def __init__(
        self, per_class: int = 1, choose: Choose = "random", replay: ReplayMode = "live", hops: int = 2
    ) -> None:
        check_at_least(1, per_class=per_class)
        check_choice("choose", choose, Choose)
        self.per_class, self.choose = per_class, choose
        self.buffer: ExperienceBuffer = ExperienceBuffer(replay, hops)

    def check(self, task: Task) -> None:
        check_per_class(task, self.per_class)
        self.buffer.check(task)

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        graph, remembered = self.buffer.attach(task.graph)
        own = learner.examples(graph, task.train, task.id)
        parts = [own.weighted(1.0 / len(own))]
        for experience, nodes in zip(self.buffer.experiences, remembered, strict=True):
            parts.append(learner.examples(graph, nodes, experience.task).weighted(0.0))
        return Examples.join(parts)

    def step_hook(self, learner: LearnerView, task: Task, objective: Objective) -> StepHook | None:
        if not self.buffer.experiences:
            return None
        positions = torch.arange(task.train.numel(), objective.targets.numel(), device=objective.targets.device)
        memories = positions.split([len(part) for part in self.buffer.experiences])
        return self.constraint(objective, memories, learner.seed * 1_000_003 + task.id * 7919 + 47)

    @abstractmethod
    def constraint(self, objective: Objective, memories: Sequence[Tensor], seed: int) -> StepHook:
        """Return the hook that projects gradients; ``memories`` has the positions of each earlier task's examples."""

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        count = self.per_class * task.num_classes
        generator = torch.Generator().manual_seed((learner.seed * 1_000_003 + task.id * 7919 + 37) % 2**63)
        positions = torch.arange(task.train.numel())[-count:]
        if self.choose == "random":
            shuffled = torch.randperm(task.train.numel(), generator=generator)
            labels = task.graph.y[task.train].cpu()[shuffled]
            positions = torch.cat([shuffled[labels == c][: self.per_class] for c in task.classes])
        nodes = task.train[positions.to(task.train.device)]
        self.buffer.add(task.graph, task.id, nodes, torch.zeros(count, device=nodes.device))
        return {}


class GEMProjection(StepHook):
    """Step hook that projects the gradient if the step would increase the loss of a memory.

    Args:
        objective: objective of the task.
        memories: positions of each earlier task's examples in the objective.
        margin: γ.
        seed: seed for sampling neighbors at each step, if the batches of the task sample neighbors.
    """

    def __init__(self, objective: Objective, memories: Sequence[Tensor], margin: float, seed: int) -> None:
        self.objective, self.positions, self.margin, self.seed = objective, list(memories), margin, seed
        self.sampled = isinstance(objective, SampledObjective)
        self.memories = [] if self.sampled else [objective.batch(positions) for positions in memories]
        self._step = 0
        self._rows: Tensor | None = None

    def skip(self, steps: int) -> None:
        self._step += steps

    def before_step(self, params: ParamDict) -> None:
        gradient = flat_gradient(params)
        if self._rows is None:  # one tensor for all steps
            self._rows = gradient.new_empty(len(self.positions), gradient.numel())
        for i, row in enumerate(self._rows):
            memory = self._sample_memory(i) if self.sampled else self.memories[i]
            mean_gradient(memory, params, out=row)
        self._step += 1
        projected = project(gradient, self._rows, self.margin)
        if projected is not gradient:
            set_gradient(params, projected)

    def _sample_memory(self, i: int) -> Objective:
        """Return the memory of earlier task ``i`` with sampled neighbors."""
        return self.objective.batch(self.positions[i], key=stream_key(self.seed, self._step, i))


@METHODS.register("gem", help="no step may increase the loss of an earlier task's memory (gradient episodic memory)")
class GEM(EpisodicMemory):
    """Gradient episodic memory (Lopez-Paz and Ranzato, 2017), its quadratic program solved exactly.

    Each step computes one gradient per earlier task, and solves a quadratic program with one variable per earlier task.

    Args:
        margin: γ, lower bound of the dual variables, 0 or more; the paper's experiments use 0.5.
    """

    def __init__(
        self,
        per_class: int = 1,
        margin: float = 0.0,
        choose: Choose = "random",
        replay: ReplayMode = "live",
        hops: int = 2,
    ) -> None:
        check_at_least(0, margin=margin)
        super().__init__(per_class, choose, replay, hops)
        self.margin = float(margin)

    def constraint(self, objective: Objective, memories: Sequence[Tensor], seed: int) -> StepHook:
        return GEMProjection(objective, memories, self.margin, seed)
