"""The interface of methods: training examples, loss, memory and predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ergnn.analytic import AnalyticHead
from ergnn.config.learner_config import HEADS, LearnerConfig
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.objective import Objective
from ergnn.engine.outputs import logits_of
from ergnn.engine.step_hooks import Penalty, StepHook
from ergnn.engine.training import Training
from ergnn.nn.examples import Examples, LossFunction, cross_entropy
from ergnn.nn.heads import HeadPolicy
from ergnn.replay.buffer import ExperienceBuffer
from ergnn.replay.selectors import SelectionContext

TRAINING_SETTINGS = ("backbone", "backbone_options", *(setting.name for setting in fields(Training)), "network")
"""Fields of :class:`~ergnn.config.learner_config.LearnerConfig` that affect training only."""
Scorer = Callable[[Tensor], Tensor]
"""``nodes [n] -> scores [n, classes]``, with columns as in ``learner.classes(task)``; their softmax is predicted."""


class LearnerView(Protocol):
    """The interface of :class:`ergnn.Learner` for methods and callbacks.

    ``model`` is None before the first task, and always for a method that trains no network.
    """

    config: LearnerConfig
    backbone: str | nn.Module
    method: Method
    heads: HeadPolicy
    training: Training
    seed: int
    device: torch.device
    model: nn.Module | None
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

    def evaluate(self, task: Task, split: str = "test", *, task_known: bool | None = None) -> float: ...


@dataclass(frozen=True)
class Comparison:
    """What ``ergnn compare`` needs to know about a method.

    Args:
        search: values of options to try, by name; without options that scale the memory.
        variants: forms of the method that run beside the default one: name → options.
        size_option: the option that scales the memory, if the method has it.
    """

    search: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    size_option: str = "per_class"


@dataclass(frozen=True)
class FolderUse:
    """What a folder, which stores a growing graph and reads parts of it, needs to know about a method.

    Args:
        refused: why the method does not work in a folder, e.g. "its buffer stores more than nodes"; None if it does.
        extra_hops: how many hops around a training node are read beyond those that the network reads.
    """

    refused: str | None = None
    extra_hops: int = 0


@dataclass(frozen=True, eq=False)
class NetworkScorer:
    """Scores of nodes by the outputs of a network.

    Args:
        model: the network.
        graph: graph of the nodes.
        heads: which outputs score which classes.
        task: number of the nodes' task; None if it is unknown (growing heads only).
    """

    model: nn.Module
    graph: Graph
    heads: HeadPolicy
    task: int | None

    def __call__(self, nodes: Tensor) -> Tensor:
        heads = self.heads.heads_of(self.task or 0, nodes.numel(), nodes.device)
        return logits_of(self.model, self.graph, nodes, heads)[:, self.heads.columns(self.task, nodes.device)[0]]


class Method:
    """Base class of continual-learning methods; by default, training continues on each task, without a memory.

    The options of a method are the arguments of its constructor; their types, defaults and help texts come from its
    signature and from ``Args:`` in its docstring.

    Attributes:
        leaky: whether test labels are used.
        trains_network: whether the learner's network is trained; if not, none is created, and :meth:`scorer` predicts.
        reads_edge_weights: whether edge weights are used; if not, graphs with edge weights are refused.
        backbone: name of the default backbone.
        supported_heads: the kinds of heads that the method works with.
        buffer: the experience buffer of methods that remember nodes.
        stored: names of the attributes that are the memory besides the buffer: tensors, numbers, and lists and
            dictionaries of these.
        comparison: for ``ergnn compare``.
        folder: for folders.
        loss: ``loss(logits, targets, extras)`` returns the loss ``[n]`` of each example, by default cross-entropy;
            training minimizes their weighted sum. Gauss-Newton products, influence, Fisher information and
            projected gradients use the same function, which must be differentiable in the logits. See
            :func:`~ergnn.nn.examples.pure_loss` for losses that are recorded on a GPU.

            - logits: ``[n, outputs]``, from the heads that score each example; an output that a head does not have is
              :data:`~ergnn.engine.losses.MASKED`;
            - targets: ``[n]``, the correct output;
            - extras: additional values per example from :meth:`examples` (see :class:`~ergnn.nn.examples.Examples`);
              empty for other nodes, e.g. validation nodes.
        penalty: ``penalty(params)`` returns a term to add to the loss in each step, a function of the model's
            parameters by name, or None; by default there is none.
        step_hook: ``step_hook(learner, task, objective)`` returns hooks around each training step on the objective of
            :meth:`examples`, or None; by default there are none. Learners with hooks are trained side by side with
            those of the same method.
    """

    leaky: bool = False
    trains_network: bool = True
    reads_edge_weights: bool = False
    backbone: str = "gat"
    supported_heads: tuple[str, ...] = HEADS
    buffer: ExperienceBuffer | None = None
    stored: ClassVar[tuple[str, ...]] = ()
    comparison: ClassVar[Comparison] = Comparison()
    folder: ClassVar[FolderUse] = FolderUse()
    loss: LossFunction = staticmethod(cross_entropy)
    penalty: Penalty | None = None
    step_hook: Callable[[LearnerView, Task, Objective], StepHook | None] | None = None

    @property
    def nbytes(self) -> int:
        """Size of the memory for earlier tasks in bytes, without parameters; by default of all tensors stored."""
        values = tree_leaves([getattr(self, name) for name in self.stored])
        size = sum(value.nbytes for value in values if isinstance(value, Tensor))
        return size if self.buffer is None else size + self.buffer.nbytes

    @property
    def needs_earlier_graph(self) -> bool:
        """Whether the memory refers to nodes of earlier tasks, whose features and edges it does not contain."""
        return self.buffer is not None and self.buffer.replay == "live"

    @property
    def unused_settings(self) -> tuple[str, ...]:
        """Settings and options without effect, which the command line rejects.

        By default, those of training if no network is trained.
        """
        return () if self.trains_network else TRAINING_SETTINGS

    def check(self, task: Task) -> None:
        """Raise an error before training if a task cannot be learned; by default nothing is checked."""
        return None

    def validation(self, learner: LearnerView, task: Task) -> Examples:
        """Return the nodes whose accuracy decides which epoch is kept (``best_epoch``): the task's validation nodes."""
        return learner.examples(task.graph, task.val, task.id)

    def restarts(self, learner: LearnerView, task: Task) -> bool:
        """Return whether a task starts from new parameters; by default it does not."""
        return False

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        """Return the weighted training examples, the task's training nodes first; by default these and their mean loss.

        The model already has outputs for the task's classes, but no step has been taken: its parameters are those
        after the previous task.
        """
        examples = learner.examples(task.graph, task.train, task.id)
        return examples.weighted(1.0 / len(examples))

    def rounds(self, learner: LearnerView, task: Task, examples: Examples) -> list[Examples]:
        """Return the sets of examples that the epochs of a task cycle through; by default one set of all examples."""
        return [examples]

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        """Update the method's memory after a task has been learned, and return values to record."""
        return {}

    def scorer(self, learner: LearnerView, graph: Graph, task: int | None) -> Scorer:
        """Return the function that scores nodes of a graph for predictions; by default the learner's network.

        A function other than :class:`NetworkScorer` is called with some thousands of nodes at a time.

        Args:
            learner: the learner, which has learned at least one task.
            graph: graph of the nodes.
            task: number of the nodes' task; None if it is unknown (growing heads only).
        """
        assert learner.model is not None
        return NetworkScorer(learner.model, graph, learner.heads, task)

    def remembered_labels(self) -> list[tuple[Tensor, Tensor]]:
        """Return ids and labels of the remembered nodes that the next task's graph must contain."""
        live = self.buffer is not None and self.buffer.replay == "live"
        return [(one.nodes, one.labels) for one in self.buffer.experiences] if self.buffer and live else []

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
        state = {name: copy(getattr(self, name)) for name in self.stored}
        return state if self.buffer is None else {**state, "buffer": self.buffer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state returned by :meth:`state_dict`."""
        for name in self.stored:
            setattr(self, name, copy(state[name]))
        if self.buffer is not None:
            self.buffer.load_state_dict(state["buffer"])
