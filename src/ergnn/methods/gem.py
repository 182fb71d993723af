"""Gradient episodic memory (GEM): no step may raise the loss of an earlier task's memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ergnn.data.stream import Task
from ergnn.engine.losses import Objective, ParamDict
from ergnn.errors import InputError, UnknownNameError
from ergnn.methods import METHODS
from ergnn.methods.base import Method
from ergnn.nn.examples import Examples
from ergnn.replay.buffer import ExperienceBuffer
from ergnn.replay.selectors import check_per_class
from ergnn.training import Guide

if TYPE_CHECKING:
    from ergnn.learner import Learner

CHOICES = ("random", "last")


def nonnegative_minimum(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The v ≥ 0 that minimises ``½ vᵀPv + qᵀv``, exactly, for a positive semi-definite P with q in its range.

    The active-set method of Lawson and Hanson on the normal equations (Bro and De Jong, 1997): a finite number of
    small linear systems. At the minimum ``Pv + q ≥ 0``, and ``= 0`` where v > 0.
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
    """The vector nearest to ``gradient`` that has no negative product with any row of ``memories``.

    With g the gradient and G the memories, the dual of ``min ½‖z − g‖² s.t. Gz ≥ 0`` has one variable a task:

        min_{v ≥ γ} ½ vᵀGGᵀv + gᵀGᵀv,    z = Gᵀv + g .

    γ is the margin, a lower bound of v as in the authors' program: it pulls towards the memories' own descent, and
    ``Gz ≥ 0`` holds as before. A gradient that breaks no constraint is left as it is.
    """
    products = memories @ gradient
    if bool((products >= 0).all()):
        return gradient
    gram = (memories @ memories.T).double().cpu().numpy()
    v = margin + nonnegative_minimum(gram, products.double().cpu().numpy() + margin * gram.sum(1))
    return gradient + torch.from_numpy(v).to(gradient) @ memories


def flat_gradient(params: ParamDict) -> Tensor:
    """The gradients of all parameters, as one vector."""
    return torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in params.values()])


def set_gradient(params: ParamDict, vector: Tensor) -> None:
    parts = vector.split([value.numel() for value in params.values()])
    for value, part in zip(params.values(), parts, strict=True):
        value.grad = part.view_as(value)


def mean_gradient(objective: Objective, params: ParamDict, out: Tensor | None = None) -> Tensor:
    """Of the mean loss of an objective's examples, in evaluation, as one vector (written to ``out`` where given)."""
    grads = torch.autograd.grad(objective.losses(params).mean(), list(params.values()), allow_unused=True)
    pairs = zip(grads, params.values(), strict=True)
    parts = [(torch.zeros_like(value) if grad is None else grad).flatten() for grad, value in pairs]
    return torch.cat(parts) if out is None else torch.cat(parts, out=out)


class EpisodicMemory(Method):
    """A method that learns the task alone, and keeps some of its training nodes to compare gradients with.

    Remembered nodes are among the examples with weight 0: nothing is learnt from them, but the parameters of all
    heads that score them are there to be stepped on.

    Args:
        per_class: e; the memory of a task is e times its classes, as large as replay's.
        choose: ``random``, e training nodes of each class drawn by seed, as replay's selector of that name; or the
            ``last`` training nodes of the task, whatever their classes, as in GEM's paper.
        replay, hops: see :class:`ExperienceBuffer`.
    """

    guided = True

    def __init__(self, per_class: int = 1, choose: str = "random", replay: str = "live", hops: int = 2) -> None:
        if per_class < 1:
            raise InputError(f"per_class (e) is {per_class}; at least 1 node a class must be remembered")
        if choose not in CHOICES:
            raise UnknownNameError("choose", choose, CHOICES)
        self.per_class, self.choose = per_class, choose
        self.buffer: ExperienceBuffer = ExperienceBuffer(replay, hops)

    def check(self, task: Task) -> None:
        check_per_class(task, self.per_class)
        self.buffer.check(task)

    def examples(self, learner: Learner, task: Task, number: int) -> Examples:
        graph, remembered = self.buffer.attach(task.graph)
        own = learner.examples(graph, task.train, number)
        parts = [own.weighted(1.0 / len(own))]
        for experience, nodes in zip(self.buffer.experiences, remembered, strict=True):
            parts.append(learner.examples(graph, nodes, experience.task).weighted(0.0))
        return Examples.join(parts)

    def guide(self, learner: Learner, task: Task, objective: Objective) -> Guide | None:
        if not self.buffer.experiences:
            return None
        places = torch.arange(task.train.numel(), objective.targets.numel(), device=objective.targets.device)
        return self.constraint(objective, places.split([len(part) for part in self.buffer.experiences]), learner, task)

    @abstractmethod
    def constraint(self, objective: Objective, memories: Sequence[Tensor], learner: Learner, task: Task) -> Guide:
        """What changes gradients; ``memories`` are the places of each earlier task's nodes among the examples."""

    def after_task(self, learner: Learner, task: Task, number: int, trained_on: Examples) -> dict[str, Any]:
        count = self.per_class * task.num_classes
        generator = torch.Generator().manual_seed((learner.seed * 1_000_003 + number * 7919 + 37) % 2**63)
        places = torch.arange(task.train.numel())[-count:]
        if self.choose == "random":
            shuffled = torch.randperm(task.train.numel(), generator=generator)
            labels = task.graph.y[task.train].cpu()[shuffled]
            places = torch.cat([shuffled[labels == c][: self.per_class] for c in task.classes])
        nodes = task.train[places.to(task.train.device)]
        self.buffer.add(task.graph, number, nodes, torch.zeros(count, device=nodes.device))
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"buffer": self.buffer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.buffer.load_state_dict(state["buffer"])


class Projection(Guide):
    """GEM's step: the gradient is projected where it would raise the loss of a memory.

    Args:
        memories: one objective an earlier task.
        margin: γ.
    """

    def __init__(self, memories: list[Objective], margin: float) -> None:
        self.memories, self.margin = memories, margin
        self._rows: Tensor | None = None

    def before_step(self, params: ParamDict) -> None:
        gradient = flat_gradient(params)
        if self._rows is None:  # filled anew at each step, never made anew
            self._rows = gradient.new_empty(len(self.memories), gradient.numel())
        for row, memory in zip(self._rows, self.memories, strict=True):
            mean_gradient(memory, params, out=row)
        projected = project(gradient, self._rows, self.margin)
        if projected is not gradient:
            set_gradient(params, projected)


@METHODS.register("gem", help="no step may raise the loss of an earlier task's memory (gradient episodic memory)")
class GEM(EpisodicMemory):
    """Gradient episodic memory (Lopez-Paz and Ranzato, 2017), its quadratic programme solved exactly.

    Each step costs one gradient an earlier task, and a programme with as many variables.

    Args:
        margin: γ, 0 or more; the paper's experiments use 0.5.
        per_class, choose, replay, hops: see :class:`EpisodicMemory`.
    """

    def __init__(
        self, per_class: int = 1, margin: float = 0.0, choose: str = "random", replay: str = "live", hops: int = 2
    ) -> None:
        if not margin >= 0:
            raise InputError(f"margin is {margin}; it must be 0 or more")
        super().__init__(per_class, choose, replay, hops)
        self.margin = float(margin)

    def constraint(self, objective: Objective, memories: Sequence[Tensor], learner: Learner, task: Task) -> Guide:
        return Projection([objective.batch(places) for places in memories], self.margin)
