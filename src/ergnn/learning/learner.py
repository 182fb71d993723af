"""The learner: observes tasks one after another, and predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ergnn.analytic import AnalyticHead
from ergnn.analytic import explain as effects
from ergnn.config.errors import InputError, check_at_least, check_choice
from ergnn.config.learner_config import LearnerConfig
from ergnn.config.registry import name_of
from ergnn.data.graph import SPLITS, Graph
from ergnn.data.hashing import seeded
from ergnn.data.splits import as_tensor, node_ids
from ergnn.data.stream import Task
from ergnn.engine.cache import Cache
from ergnn.engine.hardware import find_device, use_threads
from ergnn.engine.losses import PlainModel
from ergnn.engine.outputs import CHUNK, logits_of
from ergnn.learning.callbacks import Callback
from ergnn.learning.metrics import accuracy
from ergnn.learning.observing import observe_together
from ergnn.learning.resolve import make_method, make_training, resolve
from ergnn.learning.saving import read_learner, save_learner
from ergnn.methods import Method
from ergnn.methods.base import NetworkScorer
from ergnn.nn.backbones import BACKBONES
from ergnn.nn.examples import Examples
from ergnn.nn.heads import HeadPolicy
from ergnn.replay.selectors import SelectionContext

SCHEMA = 2
NOTHING_YET = "this learner has not observed a task yet; there is nothing to predict with"


class Learner:
    """A graph neural network that learns a sequence of tasks (Algorithm 1, for ``method="replay"``).

    Create it with ``Learner(LearnerConfig(...))``, or with the short form
    ``Learner("gat", "replay", per_class=1, epochs=100)``, which builds the configuration from its arguments.

    Args:
        config: a :class:`LearnerConfig`; in the short form its ``backbone``, a name or a module.
        method: in the short form, the ``method`` of the configuration.
        threads: CPU threads to compute on; by default one if the graph is small, otherwise as many as torch is set to.
            The setting of the process is restored after each call.
        settings: in the short form, other fields of :class:`LearnerConfig`; other names, such as ``selector`` and
            ``per_class``, are options of the method.

    Attributes:
        graph: the default graph for predictions: that of the latest task, or of :meth:`set_graph`.
    """

    def __init__(
        self,
        config: LearnerConfig | str | nn.Module | None = None,
        method: str | Method | None = None,
        threads: int | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(config, LearnerConfig):
            short = {"backbone": config, "method": method}
            config = LearnerConfig().with_settings(settings | {k: v for k, v in short.items() if v is not None})
        elif settings or method is not None:
            given = min({"method", *settings} if method is not None else settings)
            raise InputError(f"{given!r} is given in addition to a LearnerConfig; set it in the configuration")
        self.config = resolve(config)
        self.backbone, self.backbone_options = self.config.backbone, dict(self.config.backbone_options)
        self.method = make_method(self.config)
        self.heads = HeadPolicy(self.config.head)
        self.training = make_training(self.config)
        self.seed = self.config.seed
        self.device = find_device(self.config.device)
        self.threads = threads
        self.model: nn.Module | None = None
        self.graph: Graph | None = None
        self.num_features: int | None = None
        self.history: list[dict[str, Any]] = []

    def observe(
        self, task: Task, *, callbacks: Iterable[Callback] = (), resume: dict[str, Any] | None = None
    ) -> Learner:
        """Learn a task: train on it and on the examples that the method adds, then update the method's memory.

        If anything fails, the learner is restored to its state before the task.

        Args:
            task: the next task of the stream.
            callbacks: see :mod:`ergnn.learning.callbacks`.
            resume: ``state_dict`` of a :class:`~ergnn.engine.training.TaskProgress`, which callbacks receive after
                each epoch; the result is the same bit for bit as without the interruption.
        """
        if not isinstance(task, Task):
            raise InputError(f"observe: a {type(task).__name__}; a task of a TaskStream is required, such as stream[0]")
        with use_threads(self.threads, task.graph):
            observe_together([self], [task], callbacks, resume=resume)
        return self

    def set_graph(self, graph: Graph | None) -> None:
        """Set the default graph for predictions; with None, every prediction requires a graph."""
        if graph is not None and not isinstance(graph, Graph):
            raise InputError(f"a {type(graph).__name__}; a Graph is required, such as Graph.from_pyg(data)")
        if graph is not None and self.num_features not in (None, graph.num_features):
            raise InputError(
                f"the graph has {graph.num_features} features; this learner's tasks had {self.num_features}"
            )
        self.graph = None if graph is None else _on_device(graph, self.device)

    def remap_nodes(self, mapping: Callable[[Tensor], Tensor]) -> None:
        """Apply ``mapping`` to the ids of remembered nodes, for use with another graph."""
        self.method.remap_nodes(mapping)
        self.set_graph(None)

    def forget_nodes(self, nodes: Any) -> int:
        """Remove nodes from the method's memory, and return the number removed; parameters do not change."""
        return self.method.forget_nodes(as_tensor(nodes))

    @property
    def num_tasks(self) -> int:
        """Number of learned tasks."""
        return len(self.history)

    def predict_proba(self, nodes: Any, task: int | None = None, graph: Graph | None = None) -> Tensor:
        """Return probabilities ``[n, classes]``, with columns as in :meth:`classes`.

        Args:
            nodes: node ids or a mask, as a tensor, an array, a list or a range.
            task: number of the task of the nodes; optional with ``head="growing"``.
            graph: graph of the nodes; by default that of the latest task.
        """
        graph = self._ready(graph)
        classes, nodes = self.classes(task), node_ids(nodes, graph.num_nodes, "predict").to(self.device)
        if not nodes.numel():
            return torch.empty(0, classes.numel(), device=self.device)
        scorer = self.method.scorer(self, graph, task)
        chunks = [nodes] if isinstance(scorer, NetworkScorer) else nodes.split(CHUNK)
        with use_threads(self.threads, graph):
            return torch.cat([torch.softmax(scorer(chunk), dim=1) for chunk in chunks])

    def classes(self, task: int | None = None) -> Tensor:
        """Return the class of each column of :meth:`predict_proba`."""
        if not self.heads.classes:
            raise InputError(NOTHING_YET)
        if task is not None and task not in range(len(self.heads.classes)):
            raise InputError(
                f"task number {task!r} has not been learned; {len(self.heads.classes)} task(s) have, numbered from 0"
            )
        return self.heads.columns(task, self.device)[1]

    def predict(self, nodes: Any, task: int | None = None, graph: Graph | None = None) -> Tensor:
        """Return the most probable class of each node; arguments as in :meth:`predict_proba`."""
        return self.classes(task)[self.predict_proba(nodes, task, graph).argmax(1)]

    def evaluate(self, task: Task, split: str = "test", *, task_known: bool | None = None) -> float:
        """Return the accuracy on a learned task, in the graph of the latest task (or its own, see :class:`Task`).

        Args:
            task: the task to score on.
            split: ``train``, ``val`` or ``test``.
            task_known: whether only the classes of the task compete; by default True unless the head is ``growing``.
        """
        if task.id >= self.num_tasks:
            raise InputError(f"{task.name} has not been learned yet; {self.num_tasks} task(s) have")
        check_choice("split", split, SPLITS)
        nodes = getattr(task, split).to(self.device)
        known = self.heads.kind != "growing" if task_known is None else task_known
        predicted = self.predict(nodes, task.id if known else None, task.graph if task.own_graph else None)
        return accuracy(predicted, task.graph.y.to(self.device)[nodes])

    def explain(self, node: int, graph: Graph | None = None) -> effects.Explanation:
        """Return the terms of all labeled nodes in the scores of a node, and what would change its class.

        Only ``method="analytic"`` with ``memory="nodes"`` can be explained; so it is for :meth:`audit` and
        :meth:`suggest`.
        """
        graph, head, known = self._effects(graph)
        nodes = node_ids([node], graph.num_nodes, "explain").to(graph.device)
        return effects.explain(known, head.rows(graph, nodes))[0]

    def audit(self, graph: Graph | None = None) -> effects.Doubts:
        """Return, for each training label, its probability under the head without it, and the class it would get."""
        return effects.doubts(self._effects(graph)[2])

    def suggest(self, count: int, among: Any = None, by: str = "variance", graph: Graph | None = None) -> Tensor:
        """Return nodes whose labels would help most, best first; see :func:`ergnn.analytic.explain.choose`.

        Args:
            among: candidates, ids or a mask; by default all nodes of the graph. Training nodes are left out.
            by: ``variance``, ``margin`` or ``random``.
        """
        graph, head, known = self._effects(graph)
        check_at_least(1, count=count)
        nodes = node_ids(among, graph.num_nodes, "suggest").to(graph.device).unique()
        nodes = nodes[~torch.isin(nodes, known.nodes)]
        if not nodes.numel():
            raise InputError("suggest: all of the nodes have a label; nothing is left to label")
        return nodes[effects.choose(known, head.rows(graph, nodes), count, by)]

    def _effects(self, graph: Graph | None) -> tuple[Graph, AnalyticHead, effects.LabelEffects]:
        """Return the graph for predictions, the solved head, and what its labels do in the graph."""
        graph, head = self._ready(graph), self.method
        if not isinstance(head, AnalyticHead) or head.trains_network:
            raise InputError(
                f"method {type(head).__name__} trains a network, and only the closed form can be explained: use "
                "method='analytic' without a student"
            )
        return graph, head, head.label_effects(graph)

    def examples(self, graph: Graph, nodes: Tensor, task: int) -> Examples:
        """Return nodes of a task (given by number) as examples with the loss of the method."""
        return self.heads.examples(graph, nodes, task, self.method.loss)

    def logits(self, graph: Graph, nodes: Tensor, task: int) -> Tensor:
        """Compute the logits ``[n, outputs]`` of nodes of a task with the current model, without dropout."""
        graph = self._ready(graph)
        if self.model is None:
            raise InputError(f"method {type(self.method).__name__} trains no network, so it has no logits")
        return logits_of(self.model, graph, nodes, self.heads.heads_of(task, nodes.numel(), self.device))

    def selection_context(self, task: Task, trained_on: Examples, per_class: int, allow_test: bool) -> SelectionContext:
        assert self.model is not None
        return SelectionContext(
            task, self.model, self.heads, trained_on, self.training.l2, per_class, self.seed, allow_test
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state, which consists of tensors, numbers and strings only."""
        return {
            "schema": SCHEMA,
            "num_features": self.num_features,
            "head": self.heads.kind,
            "backbone": name_of(self.backbone),
            "method_name": type(self.method).__name__,
            "classes": [list(classes) for classes in self.heads.classes],
            "model": {} if self.model is None else {k: v.clone() for k, v in self.model.state_dict().items()},
            "method": self.method.state_dict(),
            "history": deepcopy(self.history),
            "seed": self.seed,
        }

    def load_state_dict(self, state: dict[str, Any], graph: Graph | None = None) -> None:
        """Restore a state; ``graph`` is the default graph for predictions until the next task.

        If the state does not match, the learner is not changed.
        """
        if state.get("schema") != SCHEMA:
            raise InputError(f"this state has schema {state.get('schema')!r}; this version of ergnn reads {SCHEMA}")
        before, graph_before = self.state_dict(), self.graph
        for name in ("backbone", "method_name", "head"):
            if state.get(name) != before[name]:
                raise InputError(f"the state's {name} is {state.get(name)!r}; this learner's is {before[name]!r}")
        try:
            self.restore(state, graph)
        except BaseException:
            self.restore(before, graph_before)
            raise

    def save(self, path: str | Path, *, graph: bool = False) -> None:
        """Write the learner to a safetensors file for :meth:`load`; ``graph`` includes the graph for predictions."""
        if graph and self.graph is None:
            raise InputError("graph=True, but this learner has no graph; call set_graph first")
        save_learner(path, self.config, self.state_dict(), self.graph if graph else None)

    @classmethod
    def load(cls, path: str | Path, graph: Graph | None = None, **settings: Any) -> Learner:
        """Read a learner that :meth:`save` wrote; it predicts and learns on, bit for bit like the saved one.

        Args:
            path: the file; it contains no code, so that it can come from anyone.
            graph: graph for predictions; by default the one in the file, if any.
            settings: replace those of the file, e.g. ``device="cuda"``. A backbone or method that was an object is not
                in the file and must be passed: ``backbone=MyNetwork(…)``.
        """
        config, state, stored = read_learner(path, settings)
        learner = cls(config)
        learner.load_state_dict(state, stored if graph is None else graph)
        return learner

    def __repr__(self) -> str:
        learned = f"{self.num_tasks} task{'s' * (self.num_tasks != 1)} learned"
        classes = len({c for classes in self.heads.classes for c in classes})
        names = f"{name_of(self.backbone)!r}, {name_of(self.config.method)!r}"
        return f"Learner({names}, head={self.heads.kind!r}, {learned}, {classes} classes)"

    def restore(self, state: dict[str, Any], graph: Graph | None) -> None:
        """Restore a state of this learner without checks; see :meth:`load_state_dict`."""
        self.heads.classes = []
        self.model = None
        self.seed, self.num_features = state["seed"], state["num_features"]
        if self.num_features is not None:
            self.model = self.new_model(self.num_features) if self.method.trains_network else None
            for classes in state["classes"]:
                self.add_head(tuple(classes))
            if self.model is not None:
                self.model.to(self.device).load_state_dict(state["model"])
        copied = tree_map_only(Tensor, lambda value: value.clone().to(self.device), state["method"])
        self.method.load_state_dict(copied)
        self.history = deepcopy(state["history"])
        self.set_graph(graph)

    def _ready(self, graph: Graph | None) -> Graph:
        """Return the graph for predictions, on the learner's device."""
        graph = self.graph if graph is None else graph
        if not self.heads.classes:
            raise InputError(NOTHING_YET)
        if graph is None:
            raise InputError("this learner has no graph; call learner.set_graph(graph), or pass graph=…")
        if not self.method.reads_edge_weights:
            graph.require_unweighted(f"method {type(self.method).__name__}")
        return _on_device(graph, self.device)

    def new_model(self, num_features: int) -> nn.Module:
        """Create a model without heads, with parameters initialized by the seed."""
        if not isinstance(self.backbone, str):
            module = deepcopy(self.backbone)
            if not hasattr(module, "add_head"):
                return PlainModel(module)
            if getattr(module, "head_widths", None):
                raise InputError(f"{type(module).__name__} already has a head; create it without out_channels")
            return module
        with seeded(self.seed):
            return BACKBONES.create(self.backbone, in_channels=num_features, **self.backbone_options)

    def add_head(self, classes: tuple[int, ...]) -> int:
        with seeded(self.seed * 1_000_003 + len(self.heads.classes) + 1):
            return self.heads.add_task(self.model, classes)


_MOVED: Cache[Graph] = Cache(limit=1)
"""The latest copy of a graph on a device, so that repeated predictions move a graph once."""


def _on_device(graph: Graph, device: torch.device) -> Graph:
    return graph if graph.device == device else _MOVED.get([graph], lambda: graph.to(device), device)
