"""Evaluation of learners: scores on streams, and on nodes that were held out of updates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ergnn.config.errors import InputError, check_choice, listed, truncate
from ergnn.data.stream import Task, TaskStream
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.hardware import use_threads
from ergnn.engine.losses import PlainModel
from ergnn.engine.objective import FieldObjective, can_be_stacked
from ergnn.engine.outputs import CHUNK, logits_together, prefers_layers
from ergnn.learning.callbacks import Callback
from ergnn.learning.learner import SPLITS, Learner
from ergnn.learning.metrics import AccuracyMatrix, accuracy, roc_auc
from ergnn.learning.observing import observe_together
from ergnn.methods.base import NetworkScorer
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.heads import HeadPolicy

MAX_NAMES = 5
"""Classes that a warning names at most."""
GPU_FIELD_EDGES = 1 << 24
"""Approximate number of edges of joined fields."""
Score = list[int]
"""``[update, right, of]``: how many held-out nodes of an update were predicted right."""
Record = dict[str, Any]
"""The record of an update: name, counts, classes, task, drift, ``scores`` of all updates so far, and ``overall``
(see :meth:`HeldOut.overall`), which records of earlier versions do not have."""


def evaluate_stream(
    learner: Learner, stream: TaskStream, *, split: str = "test", callbacks: Iterable[Callback] = ()
) -> AccuracyMatrix:
    """Let a new learner observe every task of a stream, and score it on all tasks so far after each task.

    Args:
        learner: a learner that has not observed a task yet.
        stream: the tasks and their metric.
        split: the nodes to score on: ``train``, ``val`` or ``test``.
        callbacks: see :mod:`ergnn.learning.callbacks`.
    """
    return evaluate_streams([learner], [stream], split=split, callbacks=callbacks)[0]


def evaluate_streams(
    learners: Sequence[Learner],
    streams: Sequence[TaskStream],
    *,
    split: str = "test",
    callbacks: Iterable[Callback] = (),
) -> list[AccuracyMatrix]:
    """Apply :func:`evaluate_stream` to several learners at once, each on its own stream of the same length."""
    for learner in learners:
        if learner.num_tasks:
            raise InputError(f"the learner has already observed {learner.num_tasks} task(s); use a new learner")
    for learner, stream in zip(learners, streams, strict=True):
        check_stream(learner, stream)
    callbacks = list(callbacks)
    rows: list[list[list[float]]] = [[] for _ in learners]
    for i in range(len(streams[0])):
        tasks = [stream[i] for stream in streams]
        with use_threads(learners[0].threads, *(task.graph for task in tasks)):
            observe_together(list(learners), tasks, callbacks)
            for matrix, row in zip(rows, scores_together(learners, streams, split), strict=True):
                matrix.append(row)
    return [AccuracyMatrix(matrix, stream.metric) for matrix, stream in zip(rows, streams, strict=True)]


def check_stream(learner: Learner, stream: TaskStream) -> None:
    """Raise an error if a new learner cannot learn every task of a stream.

    The method checks each task, heads must fit the classes of all tasks, and a custom module must have an output for
    each of them.
    """
    own_module = not isinstance(learner.backbone, str)
    model = learner.new_model(stream.num_features) if own_module else None
    plain = model if isinstance(model, PlainModel) else None
    heads = HeadPolicy(learner.heads.kind)
    for task in stream:
        learner.method.check(task)
        try:
            heads.add_task(plain, task.classes)
        except InputError as error:
            raise InputError(f"{task.name}: {error}") from None
    if plain is not None:
        plain.check_outputs(plain.num_outputs(stream[0].graph))


def scores_so_far(learner: Learner, stream: TaskStream, split: str = "test") -> list[float]:
    """Return the latest row of the accuracy matrix: scores on the observed tasks, NaN for the others."""
    return scores_together([learner], [stream], split)[0]


def scores_together(
    learners: Sequence[Learner], streams: Sequence[TaskStream], split: str = "test"
) -> list[list[float]]:
    """Apply :func:`scores_so_far` to learners that have observed the same number of tasks, each of its own stream.

    Learners that score the same nodes share their receptive field and, on a GPU, a forward pass. Otherwise, on a GPU, a
    forward pass scores all tasks of as many learners as possible.
    """
    check_choice("split", split, SPLITS)
    done = learners[0].num_tasks
    rows = _scores_in_one_pass(learners, streams, split) or [[] for _ in learners]
    for j in range(len(rows[0]), done):
        shared = _shared_scores(learners, streams, j, split)
        for i, (row, learner, stream) in enumerate(zip(rows, learners, streams, strict=True)):
            row.append(shared[i] if i in shared else learner.evaluate(stream[j], split, stream.metric))
    return [row + [float("nan")] * (len(stream) - done) for row, stream in zip(rows, streams, strict=True)]


def _scores_in_one_pass(learners: Sequence[Learner], streams: Sequence[TaskStream], split: str) -> list[list[float]]:
    """Return the scores on all observed tasks, on a GPU; an empty list if that is impossible, or slower.

    The nodes of each task depend on most of a large graph, so that tasks share most of the work. On small graphs,
    fields of several learners are joined, which is slower if these score the same nodes.
    """
    if not all(_can_share_a_pass(*pair, split) for pair in zip(learners, streams, strict=True)):
        return []
    models = [learner.model for learner in learners if isinstance(learner.model, Backbone)]
    graphs = [learner.graph for learner in learners if learner.graph is not None]
    large = adjacency_of(graphs[0]).is_large
    distinct = len({id(stream[0]) for stream in streams}) == len(streams)
    shapes = [(learner.backbone, learner.backbone_options, learner.heads.kind) for learner in learners]
    alike = all(shape == shapes[0] for shape in shapes) and can_be_stacked(models)
    if not large and not (distinct and alike):
        return []
    largest = max(graph.num_edges + graph.num_nodes for graph in graphs)
    scored = [_models_and_nodes(*pair, split) for pair in zip(learners, streams, strict=True)]
    if not all(scored) or (large and any(len(pairs) > 1 for pairs in scored)):
        return []
    edges = max(map(len, scored)) * models[0].num_hops * largest
    at_once = 1 if large else max(1, GPU_FIELD_EDGES // (edges + 1))
    rows = []
    for start in range(0, len(learners), at_once):
        batch = scored[start : start + at_once]
        stacked = [model for pairs in batch for model, _ in pairs]
        examples = [nodes for pairs in batch for _, nodes in pairs]
        if not can_be_stacked(stacked):
            return []
        objective = FieldObjective(stacked, examples, torch.cat([part.heads for part in examples]).unique().tolist())
        with torch.no_grad():
            logits = objective.logits(objective.parameters())
        sizes = [sum(len(nodes) for _, nodes in pairs) for pairs in batch]
        for i, outputs in enumerate(logits.split(sizes), start):
            tasks = streams[i][: learners[i].num_tasks]
            parts = outputs.split([getattr(task, split).numel() for task in tasks])
            rows.append([_score(learners[i], task, split, part) for task, part in zip(tasks, parts, strict=True)])
    return rows


def _models_and_nodes(learner: Learner, stream: TaskStream, split: str) -> list[tuple[Backbone, Examples]]:
    """Return the model of each observed task and its nodes; joined if one model scores all tasks.

    The list is empty if the scores are not outputs of networks on the learner's graph.
    """
    tasks = stream[: learner.num_tasks]
    models = [None if (network := _network(learner, task)) is None else network.model for task in tasks]
    nodes = [getattr(task, split).to(learner.device) for task in tasks]
    heads = [learner.heads.heads_of(i, ids.numel(), learner.device) for i, ids in enumerate(nodes)]
    if all(model is models[0] for model in models):
        models, nodes, heads = models[:1], [torch.cat(nodes)], [torch.cat(heads)]
    pairs = []
    for model, ids, scored_by in zip(models, nodes, heads, strict=True):
        if not isinstance(model, Backbone) or learner.graph is None:
            return []
        unused = torch.zeros_like(ids)
        pairs.append((model, Examples(learner.graph, ids, scored_by, unused, unused.float())))
    return pairs


def _can_share_a_pass(learner: Learner, stream: TaskStream, split: str) -> bool:
    graph, model, tasks = learner.graph, learner.model, stream[: learner.num_tasks]
    return (
        graph is not None
        and graph.x.is_cuda
        and isinstance(model, Backbone)
        and model.runs_on_fields
        and all(getattr(task, split).numel() and not task.own_graph for task in tasks)
    )


def _score(learner: Learner, task: Task, split: str, logits: Tensor) -> float:
    """Return the score on a task; ``logits`` are those of its nodes."""
    columns, classes = learner.heads.columns(task.id if learner.heads.kind != "growing" else None, learner.device)
    predicted = classes[torch.softmax(logits[:, columns], dim=1).argmax(1)]
    nodes = getattr(task, split).to(learner.device)
    return accuracy(predicted, task.graph.y.to(learner.device)[nodes])


def _shared_scores(
    learners: Sequence[Learner], streams: Sequence[TaskStream], number: int, split: str
) -> dict[int, float]:
    """Return the scores on task ``number`` of learners (by index) that score the same nodes as another one."""
    groups: dict[Any, list[int]] = {}
    for i, (learner, stream) in enumerate(zip(learners, streams, strict=True)):
        task = stream[number]
        graph, nodes = task.graph if task.own_graph else learner.graph, getattr(task, split)
        here = graph is not None and graph.device == nodes.device == learner.device
        if here and learner.model is not None and 0 < nodes.numel() <= CHUNK:
            shape = learner.backbone, repr(learner.backbone_options), learner.heads.kind
            key = id(graph), id(task), *shape, tuple(learner.heads.classes)
            groups.setdefault(key, []).append(i)
    scores: dict[int, float] = {}
    for group in groups.values():
        task, heads = streams[group[0]][number], learners[group[0]].heads
        nodes = getattr(task, split)
        networks = {i: network for i in group if (network := _network(learners[i], task)) is not None}
        models = [network.model for network in networks.values() if isinstance(network.model, Backbone)]
        if len(models) < 2 or len(models) < len(networks) or not can_be_stacked(models):
            continue
        graph = next(iter(networks.values())).graph
        if not prefers_layers(models[0], graph, nodes):
            logits = logits_together(models, graph, nodes, heads.heads_of(task.id, nodes.numel(), nodes.device))
            for i, outputs in zip(networks, logits, strict=True):
                scores[i] = _score(learners[i], task, split, outputs)
    return scores


def _network(learner: Learner, task: Task) -> NetworkScorer | None:
    """Return the network whose outputs on the task's graph are the scores of its nodes; None if there is none."""
    graph = task.graph if task.own_graph else learner.graph
    if graph is None or learner.model is None:
        return None
    scorer = learner.method.scorer(learner, graph, None if learner.heads.kind == "growing" else task.id)
    return scorer if isinstance(scorer, NetworkScorer) and scorer.graph is graph else None


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions of held-out nodes: one entry of each array per node.

    Args:
        records: of all updates.
        classes: names of all classes.
        updates: number of the update that the node was held out of.
        truth: the node's class.
        predicted: the class that was predicted.
        probabilities: ``[nodes, classes]``; NaN where a class did not compete.
    """

    records: list[Record]
    classes: list[str]
    updates: NDArray[Any]
    truth: NDArray[Any]
    predicted: NDArray[Any]
    probabilities: NDArray[Any]

    def scores(self) -> list[Score]:
        """The score of each update that has held-out nodes."""
        total = np.bincount(self.updates)
        right = np.bincount(self.updates, self.truth == self.predicted)
        return [[int(n), int(right[n]), int(total[n])] for n in np.flatnonzero(total)]

    def confusion(self) -> NDArray[Any]:
        """``[true class, predicted class]``: how many nodes."""
        size = len(self.classes)
        return np.bincount(self.truth * size + self.predicted, minlength=size * size).reshape(size, size)

    def per_class(self) -> list[dict[str, Any]]:
        """Number of held-out nodes, recall, precision and F1 of each class that has any or was predicted.

        Recall is None for a class without held-out nodes, precision for one that was never predicted.
        """
        matrix = self.confusion()
        rows = []
        for c, name in enumerate(self.classes):
            right, nodes, chosen = int(matrix[c, c]), int(matrix[c].sum()), int(matrix[:, c].sum())
            if nodes or chosen:
                recall, precision = (right / of if of else None for of in (nodes, chosen))
                f1 = 2 * right / (nodes + chosen)
                rows.append({"class": name, "nodes": nodes, "recall": recall, "precision": precision, "f1": f1})
        return rows

    def overall(self) -> dict[str, Any] | None:
        """Scores over all nodes that show what accuracy alone hides; None without nodes.

        ``majority`` is the share of the most frequent class, ``balanced_accuracy`` the mean recall of the classes that
        have nodes, ``macro_f1`` the mean F1 of the classes that have nodes or were predicted, and ``roc_auc`` the mean
        area under the ROC curve of each class against the rest; it is None if all nodes are of one class.
        """
        if not len(self.truth):
            return None
        rows, areas = self.per_class(), self._areas()
        return {
            "nodes": len(self.truth),
            "accuracy": float((self.truth == self.predicted).mean()),
            "majority": float(np.bincount(self.truth).max() / len(self.truth)),
            "balanced_accuracy": float(np.mean([row["recall"] for row in rows if row["nodes"]])),
            "macro_f1": float(np.mean([row["f1"] for row in rows])),
            "roc_auc": float(np.mean(areas)) if areas else None,
        }

    def _areas(self) -> list[float]:
        """Area under the ROC curve of each class against the rest, among the nodes for which it competed."""
        areas = []
        for c in np.unique(self.truth):
            competed = ~np.isnan(self.probabilities[:, c])
            positive = self.truth[competed] == c
            if positive.any() and not positive.all():
                areas.append(roc_auc(positive, self.probabilities[competed, c]))
        return areas

    def warnings(self) -> list[str]:
        """Ways in which the accuracy misleads, see :func:`misleading`."""
        return misleading(self.truth, self.predicted, self.classes)


def misleading(truth: NDArray[Any], predicted: NDArray[Any], names: Sequence[str]) -> list[str]:
    """Ways in which an accuracy misleads, a line each: below the majority class, classes never predicted."""
    if not len(truth):
        return []
    lines, nodes = [], np.bincount(truth, minlength=len(names))
    right, largest = int((truth == predicted).sum()), int(nodes.argmax())
    if right < nodes[largest]:
        accuracy, share = (f"{100 * count / len(truth):.2f} %" for count in (right, nodes[largest]))
        always = f"always predicting {truncate(names[largest])} gives {share}"
        lines.append(f"accuracy is below the majority class: {accuracy}; {always}")
    chosen = np.unique(predicted)
    missing = np.setdiff1d(np.flatnonzero(nodes), chosen)
    if len(missing) and len(chosen) == 1:
        lines.append(f"the model predicts one class only: {truncate(names[int(chosen[0])])}")
    elif len(missing):
        several, count = len(missing) > 1, int(nodes[missing].sum())
        subject = f"{'classes' if several else 'class'} {listed([names[c] for c in missing], MAX_NAMES)}"
        verb = "are" if several else "is"
        lines.append(f"{subject} {verb} never predicted ({count:,} node{'s' * (count > 1)})")
    return lines


def _accuracy(record: Record) -> dict[int, float]:
    """The accuracy on each update's held-out nodes at the time of a record, without updates that have none left."""
    if not all(0 <= right <= of for _, right, of in record["scores"]):
        raise ValueError("a record counts more right nodes than nodes")
    return {update: right / of for update, right, of in record["scores"] if of}


def accuracy_matrix(records: Sequence[Record]) -> tuple[list[int], AccuracyMatrix] | None:
    """Updates that had held-out nodes when they came, and the accuracy on each since then."""
    accuracy = [_accuracy(record) for record in records]
    scored = [number for number, known in enumerate(accuracy) if number in known]
    values = np.array([[accuracy[i].get(j, np.nan) for j in scored] for i in scored]).reshape(len(scored), len(scored))
    if not scored or np.isnan(values[np.tril_indices(len(scored))]).any():
        return None
    return scored, AccuracyMatrix(values)


def measures(records: Sequence[Record]) -> dict[str, float]:
    """Return performance mean, forgetting mean and average accuracy of the updates so far, and accuracy over all nodes.

    All use the scores in the newest record, which need not have held-out nodes of its own; updates whose held-out nodes
    were all forgotten are left out.
    """
    accuracy = [_accuracy(record) for record in records]
    learned = {number: known[number] for number, known in enumerate(accuracy) if number in known}
    now = {update: score for update, score in (accuracy[-1] if records else {}).items() if update in learned}
    if not now:
        return {}
    _, right, total = map(sum, zip(*records[-1]["scores"], strict=True))
    return {
        "pm": float(np.mean([learned[update] for update in now])),
        "fm": forgetting(records)[-1] or 0.0,
        "aa": float(np.mean(list(now.values()))),
        "accuracy": right / total,
    }


def forgetting(records: Sequence[Record]) -> list[float | None]:
    """After each update, the mean over earlier ones of (score when it was learned − score now); None for the first."""
    learned: dict[int, float] = {}
    out: list[float | None] = []
    for number, record in enumerate(records):
        now = _accuracy(record)
        lost = [learned[update] - score for update, score in now.items() if update in learned]
        out.append(sum(lost) / len(lost) if lost else None)
        if number in now:
            learned[number] = now[number]
    return out
