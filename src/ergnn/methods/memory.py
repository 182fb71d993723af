"""Base class of methods that remember nodes in a buffer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor

from ergnn.config.errors import InputError, check_at_least, check_choice
from ergnn.config.registry import inherit_options
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.objective import can_be_stacked
from ergnn.methods.base import FolderUse, LearnerView, Method
from ergnn.nn.examples import Examples
from ergnn.replay.buffer import ExperienceBuffer, ReplayMode
from ergnn.replay.selectors import SELECTORS, Selection, SelectionContext, Selector, select_together

Scarce = Literal["error", "keep"]
STORES_VALUES = FolderUse(refused="its buffer stores more than nodes")
"""For methods that store more than nodes in the buffer."""


class MemoryMethod(Method, ABC):
    """Base class of methods that store e nodes per class of every task in a buffer.

    Args:
        per_class: e, number of nodes to remember per class.
        replay: edges of a replayed node: those in the current graph (``live``), none (``isolated``), or those of the
            neighborhood stored with it (``ego``).
        hops: radius of a stored neighborhood, in hops.
        budget_nodes: maximum number of remembered nodes over all classes; by default no limit.
        budget_bytes: maximum size of the buffer in bytes; by default no limit.
        scarce: action for a class with fewer than e training nodes: raise an error (``error``), or remember all its
            nodes (``keep``).
    """

    def __init__(
        self,
        per_class: int = 1,
        replay: ReplayMode = "live",
        hops: int = 2,
        budget_nodes: int | None = None,
        budget_bytes: int | None = None,
        scarce: Scarce = "error",
    ) -> None:
        check_at_least(1, per_class=per_class, budget_nodes=budget_nodes, budget_bytes=budget_bytes)
        check_choice("scarce", scarce, Scarce)
        self.per_class, self.scarce = per_class, scarce
        self.budget_nodes, self.budget_bytes = budget_nodes, budget_bytes
        self.buffer: ExperienceBuffer = ExperienceBuffer(replay, hops)

    def check(self, task: Task) -> None:
        """Raise an error if a class has fewer than e training nodes, or if the nodes could not be replayed."""
        for c, count in task.train_counts.items():
            if count < (1 if self.scarce == "keep" else self.per_class):
                raise InputError(
                    f"{task.name}: class {c} has {count} training node(s), fewer than per_class (e) = "
                    f"{self.per_class}; scarce='keep' (--scarce keep) remembers all nodes of such a class"
                )
        if task.own_graph and self.buffer.replay == "live":
            raise InputError(
                f"replay is 'live', but {task.name} has its own graph, which is unavailable to later tasks; use "
                "'isolated' or 'ego'"
            )

    def parts(self, learner: LearnerView, task: Task, share: float = 1.0) -> list[Examples]:
        """Return the examples of the task, then those of each experience in the buffer, in one graph.

        The weights are those of the mean loss over the task plus ``share`` times the mean loss over the buffer.
        """
        graph, remembered = self.buffer.attach(task.graph)
        new = learner.examples(graph, task.train, task.id)
        old = [
            learner.examples(graph, nodes, experience.task).weighted(share / len(self.buffer))
            for experience, nodes in zip(self.buffer.experiences, remembered, strict=True)
        ]
        return [new.weighted(1.0 / len(new)), *old]

    @abstractmethod
    def select(self, learner: LearnerView, task: Task, trained_on: Examples) -> Selection:
        """Select the nodes of the task to add to the buffer."""

    def to_store(self, learner: LearnerView, task: Task, nodes: Tensor) -> tuple[Graph, dict[str, Tensor]]:
        """Return the graph to copy selected nodes from, and additional values, ``[n, …]`` each; by default none."""
        return task.graph, {}

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        selection = self.select(learner, task, trained_on)
        graph, values = self.to_store(learner, task, selection.nodes)
        self.buffer.add(graph, task.id, selection.nodes, selection.scores, values)
        evicted = self.buffer.trim(self.budget_nodes, self.budget_bytes)
        return {**selection.info, "evicted": evicted} if evicted else selection.info


class SelectorMethod(MemoryMethod):
    """Base class of methods whose remembered nodes are chosen by a selector.

    Args:
        selector: name of the selector that chooses the nodes to remember, or a :class:`Selector`.
        selector_options: options of the selector, e.g. ``target=test``.

    Attributes:
        chosen: nodes of the current task that were already selected.
    """

    @inherit_options(MemoryMethod)
    def __init__(
        self, *, selector: str | Selector = "mf*", selector_options: dict[str, Any] | None = None, **memory: Any
    ) -> None:
        super().__init__(**memory)
        if isinstance(selector, str):
            self.selector: Selector = SELECTORS.create(selector, **(selector_options or {}))
        elif selector_options:
            raise InputError("selector_options require a selector given by name; this selector is an instance")
        else:
            self.selector = selector
        self.leaky = self.selector.leaky
        self.chosen: Selection | None = None

    def select(self, learner: LearnerView, task: Task, trained_on: Examples) -> Selection:
        selection, self.chosen = self.chosen, None
        return self.selector.select(self.context(learner, task, trained_on)) if selection is None else selection

    def context(self, learner: LearnerView, task: Task, trained_on: Examples) -> SelectionContext:
        """Return the input of the selector."""
        return learner.selection_context(task, trained_on, self.per_class, self.selector.leaky)


def choose_together(learned: Sequence[tuple[LearnerView, Task, Examples]]) -> None:
    """Let learners that were trained side by side on a GPU choose the nodes to remember, in one pass if possible.

    On a CPU, they choose one after another, with the same order of sums as a single learner.
    """
    choosing = [
        (method, method.context(learner, task, trained_on))
        for learner, task, trained_on in learned
        if isinstance(method := learner.method, SelectorMethod)
        and method.chosen is None
        and can_be_stacked([] if learner.model is None else [learner.model])
        and learner.device.type != "cpu"
    ]
    selections = select_together([method.selector for method, _ in choosing], [context for _, context in choosing])
    for (method, _), selection in zip(choosing, selections, strict=True):
        method.chosen = selection
