"""A scikit-learn compatible learner."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import fields, replace
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score, recall_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.config.learner_config import TASK_UNKNOWN, LearnerConfig
from ergnn.data.graph import UNLABELED, Graph, check_homogeneous, csr_tensor, read_pyg
from ergnn.data.splits import as_tensor, node_ids
from ergnn.data.stream import Task
from ergnn.learning.callbacks import Callback
from ergnn.learning.evaluation import misleading
from ergnn.learning.learner import Learner
from ergnn.methods import METHODS

OF_THE_CONFIG = tuple(f.name for f in fields(LearnerConfig) if f.name not in ("seed", "method_options"))
"""Parameters that are fields of :class:`LearnerConfig`."""
OF_THE_METHOD = ("selector", "per_class", "selector_options")
"""Parameters that are options of the method; None stands for the method's default."""

EXPECTED_FAILED_CHECKS: dict[str, str] = {
    "check_methods_subset_invariance": (
        "networks compute in float32, where the probabilities of a row depend, up to rounding, on the number of rows "
        "computed with it; the tolerance of the check, 1e-7, is less than one rounding of a float32"
    ),
}
"""Estimator checks of scikit-learn that are expected to fail, with reasons: for ``expected_failed_checks``."""


class ContinualNodeClassifier(ClassifierMixin, BaseEstimator):
    """Node classifier that learns more nodes with every call of :meth:`partial_fit`.

    By default, a ridge head on propagated features is solved in closed form from all labels so far. With
    ``method="replay"``, a graph neural network is trained that replays some earlier nodes.

    ``X`` may be

    - an :class:`ergnn.Graph` or a PyG ``Data`` with labels in ``y`` (-1: unlabeled). The second argument of ``fit``,
      ``partial_fit`` and ``score`` is then the *nodes*: ``partial_fit(graph, nodes)``. To use other labels, pass them
      with the nodes: ``partial_fit(graph, nodes=..., y=...)``, one label per node;
    - a tuple ``(X, edge_index)`` or ``(X, edge_index, edge_weight)`` without labels:
      ``partial_fit((X, edge_index), y)`` for all nodes, or ``partial_fit((X, edge_index), nodes=..., y=...)`` for some;
    - a matrix (an array, a scipy sparse matrix, a data frame): every row is a node without edges,
      ``partial_fit(X, y)``;
    - with ``graph`` in the constructor, the ids of some of its nodes, or a mask: ``fit(nodes, y)``, ``predict(nodes)``.
      ``cross_val_score``, ``GridSearchCV`` and ``train_test_split`` then split the nodes of one graph.

    The graph may grow between calls, as long as its nodes keep their ids: earlier nodes are looked up in the new graph.
    The rows of a matrix are new nodes in each call, so their features are stored.

    Args:
        method: ``analytic`` (see :class:`ergnn.methods.analytic.Analytic`), ``replay``, or the name of another method.
        backbone, backbone_options, epochs, lr, weight_decay, optimizer: see :class:`ergnn.LearnerConfig`, which has the
            same defaults. Only methods that train a network use them.
        batch_size, fanout, with_replacement, best_epoch, network, device: as above.
        head: ``growing``, where all classes compete; with ``per-task`` or ``shared``, predictions need ``task``.
        selector, per_class, selector_options: options of the method, see :class:`ergnn.methods.replay.Replay`; None for
            the method's default. Options that the method does not have are an error.
        method_options: other options of the method. The option ``replay`` defaults to ``isolated`` for matrices.
        callbacks: callbacks of each call, see :mod:`ergnn.learning.callbacks`.
        random_state: seed of all random choices: a number, a numpy ``RandomState``, or None for a random seed.
        graph: a graph in any of the forms above, of which every ``X`` is some nodes. Copies of the classifier share an
            :class:`ergnn.Graph`.

    Attributes:
        classes_: sorted labels seen or announced so far.
        n_features_in_: number of features.
        feature_names_in_: names of the features, if X was a data frame with column names.
        learner_: the underlying :class:`ergnn.Learner`.
    """

    learner_: Learner
    classes_: np.ndarray
    n_features_in_: int
    _known: list[Any]  # labels by class id

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
        best_epoch: bool | None = LearnerConfig.best_epoch,
        network: str | None = LearnerConfig.network,
        device: Any = LearnerConfig.device,
        backbone_options: dict[str, Any] | None = None,
        selector: Any = None,
        per_class: int | None = None,
        selector_options: dict[str, Any] | None = None,
        method_options: dict[str, Any] | None = None,
        callbacks: Sequence[Callback] | None = None,
        random_state: Any = 0,
        graph: Any = None,
    ) -> None:
        parameters = dict(locals())
        del parameters["self"]
        self.__dict__.update(parameters)  # scikit-learn reads each from the attribute of its name

    def fit(self, X: Any, y: Any = None, nodes: Any = None) -> ContinualNodeClassifier:
        """Learn some nodes from scratch, as the first task; arguments as in :meth:`partial_fit`."""
        return self._learn(X, y, nodes, None, "fit", first=True)

    def partial_fit(self, X: Any, y: Any = None, nodes: Any = None, classes: Any = None) -> ContinualNodeClassifier:
        """Learn some nodes as one more task; their classes may be new, old, or both.

        Args:
            X: a graph, a pair, or a matrix.
            y: one label per node; for a graph with labels and no ``nodes``, the nodes (see above).
            nodes: node ids or a mask; by default all nodes, or all labeled nodes of a graph with labels.
            classes: all labels expected so far and later. Other labels in this call are an error; labels that have not
                been learned yet have probability 0.
        """
        return self._learn(X, y, nodes, classes, "partial_fit", first=not hasattr(self, "learner_"))

    def predict_proba(self, X: Any, nodes: Any = None, task: int | None = None) -> np.ndarray:
        """Predict probabilities ``[n, len(classes_)]``.

        Args:
            X: a graph, a pair, or a matrix; nodes, with ``graph`` in the constructor.
            nodes: node ids or a mask; by default all nodes.
            task: number of a call, from 0: only its classes compete, and others have probability 0.
        """
        check_is_fitted(self, "learner_")
        graph, nodes, _ = self._read(X, nodes, "predict", reset=False)
        return self._probabilities(graph, node_ids(nodes, graph.num_nodes, "predict"), task)

    def predict(self, X: Any, nodes: Any = None, task: int | None = None) -> np.ndarray:
        """Predict the most probable label of each node; arguments as in :meth:`predict_proba`."""
        probability = self.predict_proba(X, nodes, task)
        return self.classes_[probability.argmax(1)]

    def score(
        self, X: Any, y: Any = None, nodes: Any = None, sample_weight: Any = None, task: int | None = None
    ) -> float:
        """Return the accuracy on some nodes; arguments as in :meth:`partial_fit` and :meth:`predict_proba`.

        Warns, with the balanced accuracy, if always predicting the largest class would be better, or if a class is
        never predicted.
        """
        check_is_fitted(self, "learner_")
        graph, chosen, labels = self._read_labeled(X, y, nodes, "score", reset=False)
        predicted = self.classes_[self._probabilities(graph, chosen, task).argmax(1)]
        names, numbers = np.unique(np.concatenate([labels, predicted]), return_inverse=True)
        truth, chosen_class = np.split(numbers, 2)
        lines = misleading(truth, chosen_class, [str(name) for name in names]) if len(np.unique(truth)) > 1 else []
        if lines:
            balanced = recall_score(truth, chosen_class, average="macro", labels=np.unique(truth))
            warnings.warn(f"score: {lines[0]} (balanced accuracy: {100 * balanced:.2f} %)", UserWarning, stacklevel=2)
        return float(accuracy_score(labels, predicted, sample_weight=sample_weight))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without graphs of earlier calls, and without what can be computed again."""
        state = super().__getstate__()
        learner = state.get("learner_")
        return state if learner is None else {**state, "learner_": (learner.config, learner.state_dict())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "learner_" in state:
            config, of_learner = state["learner_"]
            learner = Learner(config)
            learner.load_state_dict(of_learner)
            state = {**state, "learner_": learner}
        super().__setstate__(state)

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
        known, added = [] if first else self._known, np.unique(allowed)
        earlier = np.array(known)
        if known and (added.dtype.kind in "biuf") != (earlier.dtype.kind in "biuf"):
            raise InputError(
                f"labels are {added.dtype} such as {added.tolist()[0]!r}, but earlier ones were {earlier.dtype} "
                f"such as {known[0]!r}; use one type"
            )
        known = list(dict.fromkeys([*known, *added.tolist()]))  # by class id, in the order of first occurrence
        matrix = self.graph is None and not (hasattr(X, "edge_index") or isinstance(X, tuple))  # new nodes in each call
        learner = self._new_learner(matrix) if first else self.learner_
        task = self._task(learner, graph, chosen, known, given, matrix)
        learner.observe(task, callbacks=self.callbacks or ())
        learner.set_graph(None)  # every call has its own graph
        self.learner_, self._known, self.classes_ = learner, known, np.unique(np.array(known))
        return self

    def _probabilities(self, graph: Graph, nodes: Tensor, task: int | None) -> np.ndarray:
        probability = self.learner_.predict_proba(nodes, task, graph)
        out = np.zeros((nodes.numel(), len(self.classes_)))
        labels = [self._known[number] for number in self.learner_.classes(task).tolist()]
        out[:, np.searchsorted(self.classes_, np.array(labels))] = probability.cpu().numpy()
        return out

    def _read(self, X: Any, nodes: Any, what: str, reset: bool, y: Any = "no_validation") -> tuple[Graph, Any, Any]:
        """Return X as a graph, where nodes are unlabeled if X has no labels, the nodes, and the checked y of rows."""
        if self.graph is not None:
            if nodes is not None:
                raise InputError(f"{what}: graph is a parameter, so that X is the nodes; nodes cannot be given as well")
            nodes = X if isinstance(X, Tensor) else np.asarray(X)
            X, nodes = self.graph, nodes[:, 0] if nodes.ndim == 2 and nodes.shape[1] == 1 else nodes
        check_homogeneous(X, "X")
        if not hasattr(X, "edge_index"):
            x, edges, weight = _split_tuple(X)
            kinds = {"accept_sparse": "csr", "dtype": np.float32}
            checked = validate_data(self, x.numpy(force=True) if isinstance(x, Tensor) else x, y, reset=reset, **kinds)
            x, y = (checked, y) if isinstance(y, str) else checked
            x = csr_tensor(x) if hasattr(x, "tocsr") else torch.from_numpy(x if x.flags.writeable else x.copy())
            data = SimpleNamespace(x=x, edge_index=edges, y=None, edge_weight=weight)
            return read_pyg(data, "X", warn=False), nodes, y
        graph = X.validate() if isinstance(X, Graph) else read_pyg(X, "X", warn=reset)
        if reset:
            self.n_features_in_ = graph.num_features
        elif graph.num_features != self.n_features_in_:
            expected = f"{type(self).__name__} is expecting {self.n_features_in_}"
            raise InputError(f"the graph has {graph.num_features} features, but {expected}")
        return graph, nodes, y

    def _read_labeled(self, X: Any, y: Any, nodes: Any, what: str, reset: bool) -> tuple[Graph, Tensor, np.ndarray]:
        """Return the graph, the given nodes, and their labels."""
        of_rows = self.graph is None and nodes is None and not hasattr(X, "edge_index")  # one label per row
        graph, nodes, checked = self._read(X, nodes, what, reset, y if of_rows else "no_validation")
        labels = graph.y.cpu().numpy()
        has_labels = bool((labels != UNLABELED).any())
        if has_labels and nodes is None:
            nodes, y = labels != UNLABELED if y is None else y, None
        chosen = node_ids(nodes, graph.num_nodes, what)
        unique, count = chosen.unique(return_counts=True)
        if not chosen.numel():
            raise InputError(f"{what}: nodes is empty")
        if len(unique) < len(chosen):
            twice = int(unique[count > 1][0])
            raise InputError(
                f"{what}: nodes contains {twice} more than once; to pass labels, use {what}(graph, nodes=…, y=…)"
            )
        if y is not None:
            labels = checked if of_rows else column_or_1d(y, warn=True)
        elif has_labels:
            labels = labels[chosen.numpy()]
            if (labels == UNLABELED).any():
                raise InputError(f"{what}: node {int(chosen[int((labels == UNLABELED).argmax())])} has no label")
        else:
            raise InputError(f"{what}: X has no labels; pass y, one label per node")
        if len(labels) != chosen.numel():
            raise InputError(f"{what}: {len(labels)} label(s) for {chosen.numel()} node(s); the numbers must be equal")
        return graph, chosen, labels

    def _new_learner(self, matrix: bool) -> Learner:
        seed = self.random_state
        if not isinstance(seed, Integral):
            seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
        given = {name: getattr(self, name) for name in (*OF_THE_CONFIG, *OF_THE_METHOD)}
        given |= {name: value.item() for name, value in given.items() if isinstance(value, np.generic)}  # of searches
        options = {name: value for name in OF_THE_METHOD if (value := given.pop(name)) is not None}
        known = {option.name for option in METHODS.options(self.method)} if isinstance(self.method, str) else set()
        usual = {"replay": "isolated" if matrix else "live", "scarce": "keep"}
        usual = {name: value for name, value in usual.items() if name in known}
        method = deepcopy(self.method)  # a method passed as an object starts from scratch with every fit
        chosen = {**usual, **(self.method_options or {}), **options}
        config = LearnerConfig(**{**given, "method": method, "seed": int(seed), "method_options": chosen})
        return Learner(config)

    @staticmethod
    def _task(learner: Learner, graph: Graph, nodes: Tensor, known: list[Any], given: np.ndarray, matrix: bool) -> Task:
        """Create a task from the nodes, in a graph where only these and the stored nodes are labeled."""
        y = torch.full((graph.num_nodes,), UNLABELED)
        for stored, labels in learner.method.remembered_labels():
            missing = stored[stored >= graph.num_nodes]
            if missing.numel():
                raise InputError(
                    f"node {int(missing[0])} was learned before, but the graph has {graph.num_nodes} nodes; "
                    "a graph may grow, but its nodes must keep their ids"
                )
            y[stored.cpu()] = labels.cpu()
        number = {label: i for i, label in enumerate(known)}
        y[nodes] = torch.tensor([number[label] for label in given.tolist()])
        names = tuple(str(label) for label in known)
        graph = replace(graph, y=y.to(graph.device), public_split=None, class_names=names)
        none = nodes[:0]
        return Task(learner.num_tasks, graph, nodes, none, none, tuple(y[nodes].unique().tolist()), own_graph=matrix)


def _split_tuple(X: Any) -> tuple[Any, Tensor, Tensor | None]:
    """Return the features, directed edges ``[2, m]`` and, if given, edge weights of a tuple or a matrix."""
    if not isinstance(X, tuple):
        return X, torch.empty(2, 0, dtype=torch.long), None
    if len(X) not in (2, 3):
        raise InputError(
            f"X is a tuple of {len(X)}; a graph as a tuple is (X, edge_index) or (X, edge_index, edge_weight)"
        )
    edges, *weight = (as_tensor(values).cpu() for values in X[1:])
    return X[0], edges, weight[0] if weight else None
