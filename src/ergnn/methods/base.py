"""The interface of methods: training examples, loss, and memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from ergnn.analytic import AnalyticHead
from ergnn.config.errors import InputError
from ergnn.config.learner_config import HEADS
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.objective import Objective, ParamDict
from ergnn.engine.step_hooks import StepHook
from ergnn.engine.training import Training
from ergnn.nn.examples import Examples, cross_entropy
from ergnn.nn.heads import HeadPolicy
from ergnn.replay.buffer import ExperienceBuffer
from ergnn.replay.selectors import SelectionContext

TRAINING_SETTINGS = (
    *("backbone", "backbone_options", "epochs", "lr", "weight_decay", "optimizer"),
    *("batch_size", "fanout", "with_replacement"),
)
"""Fields of :class:`~ergnn.config.learner_config.LearnerConfig` that affect training only."""


class LearnerView(Protocol):
    """The interface of :class:`ergnn.Learner` for methods and callbacks."""

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

    def classes(self, task: int | None = None) -> Tensor: ...

    def predict_proba(self, nodes: Tensor, task: int | None = None, graph: Graph | None = None) -> Tensor: ...

    def selection_context(
        self, task: Task, trained_on: Examples, per_class: int, allow_test: bool
    ) -> SelectionContext: ...

    def evaluate(
        self, task: Task, split: str = "test", metric: str = "accuracy", task_known: bool | None = None
    ) -> float: ...


class Method(ABC):
    """Base class of continual-learning methods.

    Only :meth:`examples` is required. The options of a method are the arguments of its constructor; their types,
    defaults and help texts come from its signature and from ``Args:`` in its docstring.

    Attributes:
        from_scratch: whether every task starts from new parameters.
        leaky: whether test labels are used.
        trains: whether parameters are trained; if not, the method provides :meth:`scores`.
        reads_edge_weights: whether edge weights are used; if not, graphs with edge weights are refused.
        backbone: name of the default backbone.
        supported_heads: the kinds of heads that the method works with.
        can_forget: whether :meth:`forget_nodes` removes everything that is stored of a node except statistics.
        extra_hops: how many hops around a training node are read beyond those that the network reads.
        buffer: the experience buffer of methods that remember nodes.
        search: values of options that ``ergnn compare`` tries, by name; without options that scale the memory.
        variants: forms of the method that ``ergnn compare`` runs beside the default one: name → options; not inherited.
        size_option: the option that scales the memory, if the method has it.
        importance_option: the option that limits the number of training nodes per task from which the importance of
            parameters is estimated, if any.
        loss_options: in a class that defines :meth:`loss`, the attributes (numbers or strings) that it depends on
            besides its arguments, if it computes row by row and never synchronizes with a GPU. Losses of learners that
            are trained side by side are then computed together, and steps are recorded on a GPU. Not inherited by
            another loss.
    """

    from_scratch: bool = False
    leaky: bool = False
    trains: bool = True
    reads_edge_weights: bool = False
    backbone: str = "gat"
    supported_heads: tuple[str, ...] = HEADS
    can_forget: bool = True
    extra_hops: int = 0
    buffer: ExperienceBuffer | None = None
    search: ClassVar[Mapping[str, Sequence[Any]]] = {}
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    size_option: ClassVar[str] = "per_class"
    importance_option: ClassVar[str | None] = None
    loss_options: ClassVar[tuple[str, ...] | None] = None

    @property
    def needs_earlier_graph(self) -> bool:
        """Whether the memory refers to nodes of earlier tasks, whose features and edges it does not contain."""
        return self.buffer is not None and self.buffer.replay == "live"

    @property
    def nbytes(self) -> int:
        """Size of the memory for earlier tasks in bytes, without parameters; by default that of the buffer."""
        return 0 if self.buffer is None else self.buffer.nbytes

    @property
    def unused_settings(self) -> tuple[str, ...]:
        """Settings and options without effect, which the command line rejects.

        By default, those of training if nothing is trained.
        """
        return () if self.trains else TRAINING_SETTINGS

    def check(self, task: Task) -> None:
        """Raise an error before training if a task cannot be learned; by default nothing is checked."""
        return None

    def restarts(self, learner: LearnerView, task: Task) -> bool:
        """Return whether a task starts from new parameters; by default :attr:`from_scratch`."""
        return self.from_scratch

    @abstractmethod
    def examples(self, learner: LearnerView, task: Task) -> Examples:
        """Return the weighted training examples, starting with the task's training nodes.

        The model already has outputs for the task's classes, but no step has been taken: its parameters are those
        after the previous task.
        """

    def loss(self, logits: Tensor, targets: Tensor, extras: Mapping[str, Tensor]) -> Tensor:
        """Return the loss ``[n]`` of each example, by default cross-entropy; training minimizes their weighted sum.

        Gauss-Newton and Hessian products, influence, Fisher information and projected gradients use the same function,
        which must be differentiable in the logits.

        Args:
            logits: ``[n, outputs]``, from the heads that score each example; an output that a head does not have is
                :data:`~ergnn.engine.losses.MASKED`.
            targets: ``[n]``, the correct output.
            extras: additional values per example from :meth:`examples` (see :class:`~ergnn.nn.examples.Examples`);
                empty for other nodes, e.g. validation nodes.
        """
        return cross_entropy(logits, targets, extras)

    def penalty(self, params: ParamDict) -> Tensor | None:
        """Return a term to add to the loss, a function of the model's parameters by name; by default None."""
        return None

    def step_hook(self, learner: LearnerView, task: Task, objective: Objective) -> StepHook | None:
        """Return hooks around each training step on ``objective`` (built from :meth:`examples`); by default None."""
        return None

    def rounds(self, learner: LearnerView, task: Task, examples: Examples) -> list[Examples]:
        """Return the sets of examples that the epochs of a task cycle through; by default one set of all examples."""
        return [examples]

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        """Update the method's memory after a task has been learned, and return values to record."""
        return {}

    def scores(self, graph: Graph, nodes: Tensor, classes: Tensor) -> Tensor | None:
        """Return scores ``[n, classes]`` for predictions; by default None, to use the model's scores."""
        return None

    def logits(self, learner: LearnerView, graph: Graph, nodes: Tensor, task: int | None) -> Tensor:
        """Return the outputs ``[n, outputs]`` for predictions if :meth:`scores` is None; by default the model's.

        ``task`` is the number of the nodes' task, or None if it is unknown (growing heads only).
        """
        return learner.logits(graph, nodes, task or 0)

    def model_for(self, model: nn.Module, task: int) -> nn.Module:
        """Return the model that scores nodes of a known task (given by number); by default the learner's model."""
        return model

    def row_head(self) -> AnalyticHead | None:
        """Return the head that a folder solves from rows of labeled nodes; by default None: it trains a network."""
        return None

    def remap_nodes(self, mapping: Callable[[Tensor], Tensor]) -> None:
        """Replace the ids of remembered nodes; by default those in the buffer."""
        if self.buffer is not None:
            self.buffer.remap(mapping)

    def forget_nodes(self, nodes: Tensor) -> int:
        """Remove nodes from the method's memory (by default the buffer), and return the number removed."""
        return 0 if self.buffer is None else self.buffer.remove(nodes)

    def state_dict(self) -> dict[str, Any]:
        return {} if self.buffer is None else {"buffer": self.buffer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state returned by :meth:`state_dict`."""
        if self.buffer is not None:
            self.buffer.load_state_dict(state["buffer"])


def task_examples(learner: LearnerView, task: Task) -> Examples:
    """Return the training nodes of a task, weighted so that the loss is their mean."""
    own = learner.examples(task.graph, task.train, task.id)
    return own.weighted(1.0 / len(own))


def check_at_least(least: float, **options: float | None) -> None:
    """Raise an error if an option is below ``least``; None is always allowed."""
    for name, value in options.items():
        if value is not None and not least <= value < float("inf"):
            raise InputError(f"{name} is {value}; it must be {least:g} or more")


def overrides(method: Method, name: str) -> bool:
    """Return whether a method overrides one of the hooks of :class:`Method`."""
    return getattr(type(method), name) is not getattr(Method, name) or name in vars(method)
