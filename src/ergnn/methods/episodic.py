"""Methods that constrain gradients by remembered nodes: GEM and A-GEM."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
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
from ergnn.engine.step_hooks import StepHook
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView
from ergnn.methods.memory import MemoryMethod
from ergnn.nn.examples import Examples
from ergnn.replay.selectors import Selection


class EpisodicMemory(MemoryMethod):
    """Base class of methods that train on the current task only, and constrain gradients by remembered nodes.

    Remembered nodes are examples of weight 0. They do not contribute to the loss, but the objective then includes the
    parameters of all heads that score them. e random training nodes per class are remembered.
    """

    @inherit_options(MemoryMethod, "budget_nodes", "budget_bytes")
    def __init__(self, **memory: Any) -> None:
        super().__init__(**memory)

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        new, *remembered = self.parts(learner, task)
        return Examples.join([new.weighted(1.0 / len(new)), *(examples.weighted(0.0) for examples in remembered)])

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


def set_gradients(params: ParamDict, matrix: Tensor) -> None:
    """Invert :func:`flat_gradients`."""
    for name, gradient in unflatten(matrix, params).items():
        params[name].grad = gradient.contiguous()  # fused optimizers ignore strides


def mean_gradient(objective: Objective, params: ParamDict) -> Tensor:
    """Compute the gradient of the mean loss in evaluation mode as one vector."""
    return flatten(gradients(objective.losses(params).mean(), params))


class GradientConstraint(StepHook, ABC):
    """Step hook that projects the gradient before each step.

    Args:
        objective: objective of the task.
        memories: positions of each set of remembered examples in the objective.
        seed: seed for sampling at each step: examples, and neighbors if the batches of the task sample neighbors.

    Attributes:
        synchronizes: whether :meth:`project_together` or :meth:`sample` waits for a GPU.
    """

    synchronizes = True

    def __init__(self, objective: Objective, memories: Sequence[Tensor], seed: int) -> None:
        self.objective, self.positions, self.seed, self.step = objective, list(memories), seed, 0
        self.samples_neighbors = objective.sampling is not None
        self.memories = [] if self.samples_neighbors else [objective.batch(positions) for positions in memories]

    @classmethod
    def stacked(cls, hooks: Sequence[GradientConstraint]) -> StepHook | None:
        if any(hook.samples_neighbors for hook in hooks) or len({len(hook.memories) for hook in hooks}) > 1:
            return None
        memories = [stack_memories(parts) for parts in zip(*(hook.memories for hook in hooks), strict=True)]
        usable = [memory for memory in memories if memory is not None]
        return StackedConstraint(hooks, usable) if len(usable) == len(memories) else None

    def skip(self, steps: int) -> None:
        for _ in range(steps):
            self.sample()
        self.step += steps

    def before_step(self, params: ParamDict) -> None:
        gradient, chosen, rows = flat_gradients(params)[0], self.sample(), []
        for i, positions in enumerate(self.positions):
            if self.samples_neighbors:
                memory = self.objective.batch(positions if chosen is None else positions[chosen], key=self.key(i))
            else:
                memory = self.memories[i] if chosen is None else self.memories[i].batch(chosen)
            rows.append(mean_gradient(memory, params))
        self.step += 1
        projected = self.project(gradient, torch.stack(rows))
        if projected is not gradient:
            set_gradients(params, projected.unsqueeze(0))

    def key(self, memory: int) -> int:
        """Return the key of the neighbors to sample for a memory in the next step."""
        return stream_key(self.seed, self.step, memory)

    def sample(self) -> Tensor | None:
        """Sample positions in the memory for the next step; None for all."""
        return None

    @abstractmethod
    def project(self, gradient: Tensor, memories: Tensor) -> Tensor:
        """Project a gradient, given those of the memories, ``[memories, parameters]``; itself if it is feasible."""

    @staticmethod
    @abstractmethod
    def project_together(hooks: Sequence[Any], gradients: Tensor, memories: Tensor) -> Tensor:
        """Project the gradients of all models, ``[models, parameters]``; of the memories, ``[models, memories, …]``."""


class StackedMemory:
    """The remembered examples of models that are trained side by side on a GPU, in one objective: few large steps."""

    def __init__(self, memories: Sequence[FieldObjective]) -> None:
        self.sizes = [len(memory.examples[0]) for memory in memories]
        models, examples = [memory.models[0] for memory in memories], [memory.examples[0] for memory in memories]
        self.objective = FieldObjective(models, examples, memories[0].heads)
        sizes = self.objective.targets.new_tensor(self.sizes)
        self._starts = (sizes.cumsum(0) - sizes).tolist()
        self._all = (1.0 / sizes).repeat_interleave(sizes)

    def gradients(self, params: ParamDict, chosen: Sequence[Tensor | None]) -> Tensor:
        """Return the gradient of each model's mean loss ``[models, parameters]``, in evaluation mode.

        Args:
            chosen: for each model, positions of the examples to average over; None for all.
        """
        weights = self._all
        if any(index is not None for index in chosen):
            weights = torch.zeros_like(self._all)
            for start, size, index in zip(self._starts, self.sizes, chosen, strict=True):
                used = torch.arange(size, device=weights.device) if index is None else index
                weights[start + used] = 1.0 / used.numel()
        total = (weights * self.objective.losses(params)).sum()
        return flatten_models(gradients(total, params), len(self.sizes))


def stack_memories(memories: Sequence[Objective]) -> StackedMemory | None:
    """Return the memories of all models as one; None if they are not on a GPU, or cannot be stacked."""
    fields = [memory for memory in memories if isinstance(memory, FieldObjective)]
    on_gpu = all(memory.targets.is_cuda for memory in memories)
    return StackedMemory(fields) if on_gpu and len(fields) == len(memories) else None


class StackedConstraint(StepHook):
    """The constraints of several models; ``memories`` has one entry per memory of a model."""

    def __init__(self, hooks: Sequence[GradientConstraint], memories: Sequence[StackedMemory]) -> None:
        self.hooks, self.memories = hooks, memories
        self.recordable = not any(hook.synchronizes for hook in hooks)

    def before_step(self, params: ParamDict) -> None:
        chosen = [hook.sample() for hook in self.hooks]
        rows = torch.stack([memory.gradients(params, chosen) for memory in self.memories], dim=1)
        gradient = flat_gradients(params, len(self.hooks))
        set_gradients(params, self.hooks[0].project_together(self.hooks, gradient, rows))


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
    v = dual_variables(memories @ memories.T, products, margin)
    return gradient + torch.from_numpy(v).to(gradient) @ memories


def dual_variables(gram: Tensor, products: Tensor, margin: float) -> np.ndarray:
    """Return v of :func:`project`, from ``GGᵀ`` and ``Gg``."""
    p, q = gram.double().cpu().numpy(), products.double().cpu().numpy()
    return margin + nonnegative_minimum(p, q + margin * p.sum(1))


class GEMProjection(GradientConstraint):
    """Applies :func:`project`; ``margin`` is γ."""

    def __init__(self, objective: Objective, memories: Sequence[Tensor], margin: float, seed: int) -> None:
        super().__init__(objective, memories, seed)
        self.margin = margin

    def project(self, gradient: Tensor, memories: Tensor) -> Tensor:
        return project(gradient, memories, self.margin)

    @staticmethod
    def project_together(hooks: Sequence[GEMProjection], gradients: Tensor, memories: Tensor) -> Tensor:
        products, grams = (memories @ gradients.unsqueeze(2)).squeeze(2), (memories @ memories.mT).cpu()
        v = torch.zeros(products.shape, dtype=torch.double)
        for i, (hook, of_model) in enumerate(zip(hooks, products.cpu(), strict=True)):
            if bool((of_model < 0).any()):
                v[i] = torch.from_numpy(dual_variables(grams[i], of_model, hook.margin))
        return gradients + (v.to(memories).unsqueeze(1) @ memories).squeeze(1)


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
        return GEMProjection(objective, memories, self.margin, seed)


def project_on_average(gradient: Tensor, reference: Tensor) -> Tensor:
    """Project g onto the vectors with a nonnegative product with r: ``g − (gᵀr / rᵀr) r`` if ``gᵀr < 0``, else g."""
    product = gradient @ reference
    if float(product) >= 0:
        return gradient
    return gradient - (product / (reference @ reference)) * reference


class AverageConstraint(GradientConstraint):
    """Applies :func:`project_on_average`, with the gradient of at most ``sample`` examples of the memory per step."""

    def __init__(self, objective: Objective, memory: Tensor, sample: int, seed: int) -> None:
        super().__init__(objective, [memory], seed)
        self.size = sample
        self.synchronizes = sample < memory.numel()
        self.generator = torch.Generator().manual_seed(seed % 2**63)

    def key(self, memory: int) -> int:
        return stream_key(self.seed, self.step)

    def sample(self) -> Tensor | None:
        count, device = self.positions[0].numel(), self.positions[0].device
        return torch.randperm(count, generator=self.generator)[: self.size].to(device) if self.size < count else None

    def project(self, gradient: Tensor, memories: Tensor) -> Tensor:
        return project_on_average(gradient, memories[0])

    @staticmethod
    def project_together(hooks: Sequence[AverageConstraint], gradients: Tensor, memories: Tensor) -> Tensor:
        reference = memories.squeeze(1)
        product, norm = (gradients * reference).sum(1, keepdim=True), reference.square().sum(1, keepdim=True)
        return gradients - product.clamp(max=0.0) / norm.clamp(min=1e-30) * reference


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
        return AverageConstraint(objective, torch.cat(list(memories)), self.sample, seed)
