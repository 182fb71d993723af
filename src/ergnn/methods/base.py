"""The contract of a method: what a task is learned from, what its loss is, and what is kept afterwards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.objective import Objective, ParamDict
from ergnn.nn.examples import Examples, cross_entropy
from ergnn.nn.heads import HeadPolicy
from ergnn.replay.buffer import ExperienceBuffer
from ergnn.replay.selectors import SelectionContext
from ergnn.training import StepHook, Training


class LearnerView(Protocol):
    """What methods and callbacks may read of a :class:`ergnn.Learner`, and ask it for."""

    backbone: str | nn.Module
    backbone_options: dict[str, Any]
    method: Method
    heads: HeadPolicy
    training: Training
    seed: int
    device: torch.device
    model: nn.Module | None
    num_features: int | None
    history: list[dict[str, Any]]

    @property
    def graph(self) -> Graph | None: ...

    @property
    def num_tasks(self) -> int: ...

    def examples(self, graph: Graph, nodes: Tensor, task: int) -> Examples: ...

    def logits(self, graph: Graph, nodes: Tensor, task: int) -> Tensor: ...

    def selection_context(
        self, task: Task, trained_on: Examples, per_class: int, allow_test: bool
    ) -> SelectionContext: ...

    def evaluate(
        self, task: Task, split: str = "test", metric: str = "accuracy", task_known: bool | None = None
    ) -> float: ...


class Method(ABC):
    """A way of learning one task after another.

    Only :meth:`examples` must be written. The options of a method are the arguments of its constructor; their types,
    defaults and help texts are read from its signature and from ``Args:`` in its docstring.

    Attributes:
        from_scratch: whether every task starts from new parameters.
        leaky: whether test labels are used.
        trains: whether parameters are learned at all; if not, the method gives the :meth:`scores`.
        backbone: the name of the network that is used where none is named.
        buffer: what is remembered, for methods that remember nodes.
    """

    from_scratch: bool = False
    leaky: bool = False
    trains: bool = True
    backbone: str = "gat"
    buffer: ExperienceBuffer | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that are kept of earlier tasks, less parameters; by default those of the buffer."""
        return 0 if self.buffer is None else self.buffer.nbytes

    def check(self, task: Task) -> None:
        """Refuse a task that cannot be learned, before any training; by default none is."""
        return None

    def restarts(self, learner: LearnerView, task: Task) -> bool:
        """Whether a task starts from new parameters; by default what :attr:`from_scratch` says."""
        return self.from_scratch

    @abstractmethod
    def examples(self, learner: LearnerView, task: Task) -> Examples:
        """What to minimize: weighted examples, the task's own training nodes first.

        The model already has outputs for the task's classes, but no step has been made: its parameters are those
        after the task before.
        """

    def loss(self, logits: Tensor, targets: Tensor, extras: Mapping[str, Tensor]) -> Tensor:
        """The loss ``[n]`` of each example; training minimizes their weighted sum. By default cross-entropy.

        Gauss-Newton and Hessian products, influence, Fisher information and projected gradients take the same
        function, so that it must be differentiable in the logits.

        Args:
            logits: ``[n, outputs]``, of the heads that score each example; the value of an output that a head does not
                have is :data:`~ergnn.engine.losses.MASKED`.
            targets: ``[n]``, the right output.
            extras: what :meth:`examples` put beside the examples (see :class:`~ergnn.nn.examples.Examples`); empty for
                nodes that it did not give, e.g. validation nodes.
        """
        return cross_entropy(logits, targets, extras)

    def penalty(self, params: ParamDict) -> Tensor | None:
        """A term that is added to the loss, a function of the model's parameters by name; by default none."""
        return None

    def step_hook(self, learner: LearnerView, task: Task, objective: Objective) -> StepHook | None:
        """What to do around each step of training on ``objective`` (made of :meth:`examples`); by default nothing."""
        return None

    def rounds(self, learner: LearnerView, task: Task, examples: Examples) -> list[Examples]:
        """What the epochs of a task go through in turn; by default all examples in each."""
        return [examples]

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        """What to do once the task has been learned; returns what is worth recording."""
        return {}

    def scores(self, graph: Graph, nodes: Tensor, classes: Tensor) -> Tensor | None:
        """Scores ``[n, classes]`` to predict with in place of the model's; by default None, the model's own."""
        return None

    def remap_nodes(self, mapping: Callable[[Tensor], Tensor]) -> None:
        """Give the nodes that the method keeps other ids; by default those in its buffer."""
        if self.buffer is not None:
            self.buffer.remap(mapping)

    def forget_nodes(self, nodes: Tensor) -> int:
        """Drop nodes from what the method keeps; returns how many there were. By default those in its buffer."""
        return 0 if self.buffer is None else self.buffer.remove(nodes)

    def state_dict(self) -> dict[str, Any]:
        return {} if self.buffer is None else {"buffer": self.buffer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` gave."""
        if self.buffer is not None:
            self.buffer.load_state_dict(state["buffer"])


def overrides(method: Method, name: str) -> bool:
    """Whether a method has its own version of one of the hooks of :class:`Method`."""
    return getattr(type(method), name) is not getattr(Method, name) or name in vars(method)
