"""A learner with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import fields, replace
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from ergnn.callbacks import Callback
from ergnn.config import TASK_UNKNOWN, LearnerConfig
from ergnn.data.graph import UNLABELED, Graph, pyg_edge_weight
from ergnn.data.stream import Task
from ergnn.errors import InputError
from ergnn.estimator.inputs import as_graph, check_once, is_graph, is_matrix, labels_of, nodes_of, parts_of, to_torch
from ergnn.estimator.labels import Labels
from ergnn.learner import Learner
from ergnn.methods import METHODS
from ergnn.methods.analytic import Analytic

OF_THE_CONFIG = tuple(f.name for f in fields(LearnerConfig) if f.name not in ("seed", "method_options"))
"""Parameters that are fields of :class:`LearnerConfig`."""
OF_THE_METHOD = ("selector", "per_class", "selector_options", "replay", "replay_batch", "budget_nodes", "budget_bytes")
"""Parameters that are options of the method; None is the method's own default."""


class ContinualNodeClassifier(ClassifierMixin, BaseEstimator):
    """Learns a few more nodes with every :meth:`partial_fit`, without forgetting earlier ones.

    By default a ridge head on propagated features is solved in closed form from all labels so far; with
    ``method="replay"`` a graph neural network is trained, which replays some earlier nodes.

    Where scikit-learn has a matrix ``X`` there may be

    - an :class:`ergnn.Graph` or a PyG ``Data``, with its labels in ``y`` (-1: none). The second argument of ``fit``,
      ``partial_fit`` and ``score`` is then the *nodes*: ``partial_fit(graph, nodes)``. Labels of another kind go with
      them: ``partial_fit(graph, nodes=..., y=...)``, one label per node;
    - a tuple ``(X, edge_index)`` or ``(X, edge_index, edge_weight)``, which has no labels:
      ``partial_fit((X, edge_index), y)`` for all nodes or ``partial_fit((X, edge_index), nodes=..., y=...)`` for some;
    - a plain matrix (an array, a scipy sparse matrix, a data frame): every row is a node without edges,
      ``partial_fit(X, y)``.

    The graph may grow from call to call, as long as its nodes keep their numbers: earlier nodes are looked up in the
    new graph. Rows of a plain matrix are new ones in each call, so their features are stored.

    Args:
        method: ``analytic`` (see :class:`ergnn.methods.analytic.Analytic`), ``replay``, or another method's name.
        backbone, epochs, lr, weight_decay, optimizer, batch_size, fanout, with_replacement, device,
            backbone_options: see :class:`ergnn.LearnerConfig`, which has the same defaults. Only
            methods that train a network use them.
        head: ``growing``, where all classes compete; with ``per-task`` or ``shared`` predictions need ``task``.
        selector, per_class, selector_options, replay, replay_batch, budget_nodes, budget_bytes: options of the method,
            see :class:`ergnn.methods.replay.Replay`; None is the method's default, except that ``replay`` is
            ``isolated`` for plain matrices. A method that does not have an option refuses it.
        method_options: other options of the method.
        callbacks: callbacks of each call, see :mod:`ergnn.callbacks`.
        random_state: seed of every random choice: a number, a numpy ``RandomState``, or None for another one each time.

    Attributes:
        classes_: the labels seen or announced so far, sorted.
        n_features_in_: number of features.
        feature_names_in_: their names, where X was a data frame that has them.
        learner_: the :class:`ergnn.Learner` inside.
    """

    learner_: Learner
    classes_: np.ndarray
    n_features_in_: int
    _labels: Labels

    def __init__(
        self,
        backbone: Any = LearnerConfig.backbone,
        method: Any = TASK_UNKNOWN["method"],
        head: str = TASK_UNKNOWN["head"],
        epochs: int = LearnerConfig.epochs,
        lr: float | None = LearnerConfig.lr,
        weight_decay: float | None = LearnerConfig.weight_decay,
        optimizer: str = LearnerConfig.optimizer,
        batch_size: int | None = LearnerConfig.batch_size,
        fanout: tuple[int, ...] | None = LearnerConfig.fanout,
        with_replacement: bool = LearnerConfig.with_replacement,
        device: Any = LearnerConfig.device,
        backbone_options: dict[str, Any] | None = None,
        selector: Any = None,
        per_class: int | None = None,
        selector_options: dict[str, Any] | None = None,
        replay: str | None = None,
        replay_batch: int | None = None,
        budget_nodes: int | None = None,
        budget_bytes: int | None = None,
        method_options: dict[str, Any] | None = None,
        callbacks: Sequence[Callback] | None = None,
        random_state: Any = 0,
    ) -> None:
        self.backbone = backbone
        self.method = method
        self.head = head
        self.epochs = epochs
        self.lr = lr
        self.weight_decay = weight_decay
        self.optimizer = optimizer
        self.batch_size = batch_size
        self.fanout = fanout
        self.with_replacement = with_replacement
        self.device = device
        self.backbone_options = backbone_options
        self.selector = selector
        self.per_class = per_class
        self.selector_options = selector_options
        self.replay = replay
        self.replay_batch = replay_batch
        self.budget_nodes = budget_nodes
        self.budget_bytes = budget_bytes
        self.method_options = method_options
        self.callbacks = callbacks
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, nodes: Any = None) -> ContinualNodeClassifier:
        """Forget everything, and learn some nodes as the first task; arguments as in :meth:`partial_fit`."""
        return self._learn(X, y, nodes, None, "fit", first=True)

    def partial_fit(self, X: Any, y: Any = None, nodes: Any = None, classes: Any = None) -> ContinualNodeClassifier:
        """Learn some nodes as one more task; their classes may be new ones, old ones, or both.

        Args:
            X: a graph, a pair, or a matrix.
            y: one label per node; for a graph with labels and no ``nodes``, the nodes (see above).
            nodes: node numbers or a mask; by default all nodes, of a graph with labels all that have one.
            classes: labels that may come later, where they are known. Other labels are refused in this call; those
                that have not been learned yet have probability 0.
        """
        return self._learn(X, y, nodes, classes, "partial_fit", first=not hasattr(self, "learner_"))

    def predict_proba(self, X: Any, nodes: Any = None, task: int | None = None) -> np.ndarray:
        """Probabilities ``[n, len(classes_)]``.

        Args:
            X: a graph, a pair, or a matrix.
            nodes: node numbers or a mask; by default all nodes.
            task: number of the call, from 0, whose classes alone compete; the others have probability 0.
        """
        check_is_fitted(self, "learner_")
        graph, _ = self._read(X, reset=False)
        chosen = torch.arange(graph.num_nodes) if nodes is None else nodes_of(nodes, graph.num_nodes, "predict")
        probability = self.learner_.predict_proba(chosen, task, graph)
        out = np.zeros((chosen.numel(), len(self.classes_)))
        out[:, self._labels.columns(self.learner_.classes(task))] = probability.cpu().numpy()
        return out

    def predict(self, X: Any, nodes: Any = None, task: int | None = None) -> np.ndarray:
        """The most probable label of each node; arguments as in :meth:`predict_proba`."""
        probability = self.predict_proba(X, nodes, task)
        return self.classes_[probability.argmax(1)]

    def score(
        self, X: Any, y: Any = None, nodes: Any = None, sample_weight: Any = None, task: int | None = None
    ) -> float:
        """Accuracy on some nodes; arguments as in :meth:`partial_fit` and :meth:`predict_proba`."""
        check_is_fitted(self, "learner_")
        _, chosen, labels = self._read_labeled(X, y, nodes, "score", reset=False)
        return float(accuracy_score(labels, self.predict(X, chosen, task), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _learn(self, X: Any, y: Any, nodes: Any, classes: Any, what: str, first: bool) -> ContinualNodeClassifier:
        graph, chosen, given = self._read_labeled(X, y, nodes, what, reset=first)
        check_classification_targets(given)
        allowed = given if classes is None else column_or_1d(classes)
        if not np.isin(given, allowed).all():
            wrong = given[~np.isin(given, allowed)].tolist()[0]
            raise InputError(f"{what}: label {wrong!r} is not one of classes: {', '.join(map(str, allowed))}")
        labels = (Labels() if first else self._labels).with_more(allowed)
        learner = self._new_learner(is_matrix(X)) if first else self.learner_
        task = self._task(learner, graph, chosen, labels, given, is_matrix(X))
        learner.observe(task, callbacks=self.callbacks or ())
        learner.set_graph(None)  # every call brings its own
        self.learner_, self._labels, self.classes_ = learner, labels, labels.classes
        return self

    def _read(self, X: Any, reset: bool, y: Any = "no_validation") -> tuple[Graph, Any]:
        """The graph, without labels where X is none, and y as checked along with it."""
        if not is_graph(X):
            x, edges, weight = parts_of(X)
            kinds = {"accept_sparse": "csr", "dtype": np.float32}
            checked = validate_data(self, x.numpy(force=True) if isinstance(x, Tensor) else x, y, reset=reset, **kinds)
            x, y = (checked, y) if isinstance(y, str) else checked
            return as_graph(to_torch(x), edges, weight), y
        if X.x is None:
            raise InputError("the graph has no features x")
        if reset:
            self.n_features_in_ = int(X.x.size(1))
        elif X.x.size(1) != self.n_features_in_:
            raise InputError(
                f"the graph has {X.x.size(1)} features, but {type(self).__name__} is expecting {self.n_features_in_}"
            )
        return X.validate() if isinstance(X, Graph) else as_graph(X.x, X.edge_index, pyg_edge_weight(X)), y

    def _read_labeled(self, X: Any, y: Any, nodes: Any, what: str, reset: bool) -> tuple[Graph, Tensor, np.ndarray]:
        """The graph, the nodes in question, and a label for each."""
        own = labels_of(X)
        if own is not None and nodes is None:
            nodes, y = y, None
        together = own is None and nodes is None  # one label per row, as in scikit-learn
        graph, checked = self._read(X, reset, y if together else "no_validation")
        if nodes is not None:
            chosen = nodes_of(nodes, graph.num_nodes, what)
        else:
            chosen = torch.arange(graph.num_nodes)
            chosen = chosen if own is None else chosen[torch.from_numpy(own != UNLABELED)]
        check_once(chosen, what)
        if y is None:
            if own is None:
                raise InputError(f"{what}: X has no labels; give y, one label per node")
            labels = own[chosen.numpy()]
            if (labels == UNLABELED).any():
                raise InputError(f"{what}: node {int(chosen[torch.from_numpy(labels == UNLABELED)][0])} has no label")
        else:
            labels = checked if together else column_or_1d(y, warn=True)
        if len(labels) != chosen.numel():
            raise InputError(f"{what}: {len(labels)} label(s) are given for {chosen.numel()} node(s)")
        return graph, chosen, labels

    def _new_learner(self, matrix: bool) -> Learner:
        seed = self.random_state
        if not isinstance(seed, Integral):
            seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
        own = {name: _plain(getattr(self, name)) for name in OF_THE_CONFIG}
        options = {name: _plain(getattr(self, name)) for name in OF_THE_METHOD if getattr(self, name) is not None}
        known = {option.name for option in METHODS.options(self.method)} if isinstance(self.method, str) else set()
        usual = {"replay": "isolated" if matrix else "live", "scarce": "keep"}
        usual = {name: value for name, value in usual.items() if name in known}
        method = deepcopy(self.method)  # one that was given as an object starts anew with every fit
        chosen = {**usual, **(self.method_options or {}), **options}
        return Learner(LearnerConfig(**{**own, "method": method, "seed": int(seed), "method_options": chosen}))

    @staticmethod
    def _task(learner: Learner, graph: Graph, nodes: Tensor, labels: Labels, given: np.ndarray, matrix: bool) -> Task:
        """The nodes as a task of the learner, in a graph where they and remembered ones are labeled, and no others."""
        method, remembered = learner.method, []
        if isinstance(method, Analytic):
            remembered = [(method.state.nodes, method.state.labels)]
        elif method.buffer is not None and method.buffer.replay == "live":
            remembered = [(part.nodes, part.labels) for part in method.buffer.experiences]
        y = torch.full((graph.num_nodes,), UNLABELED)
        for known, old in remembered:
            missing = known[known >= graph.num_nodes]
            if missing.numel():
                raise InputError(
                    f"node {int(missing[0])} is remembered, but the graph has {graph.num_nodes} nodes; a graph may "
                    "grow, but its nodes must keep their numbers"
                )
            y[known.cpu()] = old.cpu()
        y[nodes] = labels.numbers(given)
        names = tuple(str(label) for label in labels.known)
        graph = replace(graph, y=y.to(graph.device), public_split=None, class_names=names)
        none = nodes[:0]
        return Task(learner.num_tasks, graph, nodes, none, none, tuple(y[nodes].unique().tolist()), own_graph=matrix)


def _plain(value: Any) -> Any:
    """A numpy number as Python's own, as grid searches give them."""
    return value.item() if isinstance(value, np.generic) else value
