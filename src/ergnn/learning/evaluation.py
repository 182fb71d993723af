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
from ergnn.data.graph import SPLITS, Graph
from ergnn.data.stream import Task, TaskStream
from ergnn.engine.hardware import use_threads
from ergnn.engine.losses import PlainModel
from ergnn.engine.objective import architecture
from ergnn.engine.outputs import CHUNK, has_large_field, logits_together
from ergnn.learning.callbacks import Callback
from ergnn.learning.learner import Learner
from ergnn.learning.metrics import AccuracyMatrix, accuracy, roc_auc
from ergnn.learning.observing import observe_together
from ergnn.methods.base import NetworkScorer
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.heads import HeadPolicy

Score = list[int]
"""``[update, right, of]``: how many held-out nodes of an update were predicted right."""
Record = dict[str, Any]
"""The record of an update: name, counts, classes, task, drift, ``scores`` of all updates so far, and ``overall``
(see :meth:`HeldOut.overall`), which records of earlier versions do not have."""


def evaluate_stream(
    learner: Learner, stream: TaskStream, *, split: str = "test", callbacks: Iterable[Callback] = ()
) -> AccuracyMatrix:
    """Let a new learner observe every task of a stream, and score it on all tasks so far after each task.

    ``split`` has the nodes to score on: ``train``, ``val`` or ``test``. For callbacks see
    :mod:`ergnn.learning.callbacks`.
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
    if learner.num_tasks:
        raise InputError(f"the learner has already observed {learner.num_tasks} task(s); use a new learner")
    model = None if isinstance(learner.backbone, str) else learner.new_model(stream.num_features)
    heads = HeadPolicy(learner.heads.kind)
    for task in stream:
        learner.method.check(task)
        try:
            heads.add_task(model, task.classes)
        except InputError as error:
            raise InputError(f"{task.name}: {error}") from None
    if isinstance(model, PlainModel):
        model.check_outputs(stream[0].graph)


def scores_together(
    learners: Sequence[Learner], streams: Sequence[TaskStream], split: str = "test"
) -> list[list[float]]:
    """Return the latest row of each learner's accuracy matrix: scores on observed tasks, NaN for the others.

    The learners have observed the same number of tasks, each of its own stream. Those that score the same nodes share
    their receptive field. On a GPU, a forward pass scores all tasks of as many learners as possible.
    """
    check_choice("split", split, SPLITS)
    done, shared = learners[0].num_tasks, _shared_scores(learners, streams, split)
    rows = []
    for i, (learner, stream) in enumerate(zip(learners, streams, strict=True)):
        row = [shared[i, j] if (i, j) in shared else learner.evaluate(stream[j], split) for j in range(done)]
        rows.append(row + [float("nan")] * (len(stream) - done))
    return rows


def _shared_scores(
    learners: Sequence[Learner], streams: Sequence[TaskStream], split: str
) -> dict[tuple[int, int], float]:
    """Return the scores of learners (by index) on tasks (by number) whose logits are computed together.

    Models of the same architecture share the field of the same nodes. On a GPU, a pass computes several models, each at
    the nodes of all its tasks: on a large graph, the nodes of each task depend on most of the graph.
    """
    examples: dict[Any, Examples] = {}
    groups: dict[Any, list[tuple[int, list[Task], NetworkScorer, Examples]]] = {}
    for i, (learner, stream) in enumerate(zip(learners, streams, strict=True)):
        shape = learner.backbone, repr(learner.backbone_options), learner.heads.kind
        for network, tasks in _networks(learner, stream[: learner.num_tasks], split):
            same = id(network.graph), *map(id, tasks), learner.heads.kind, *learner.heads.classes
            if same not in examples:
                examples[same] = _examples(learner, network.graph, tasks, split)
            key = *shape, str(architecture(network.model)), None if _joins_tasks(network.graph) else same
            groups.setdefault(key, []).append((i, tasks, network, examples[same]))
    scores: dict[tuple[int, int], float] = {}
    for group in groups.values():
        joined = _joins_tasks(group[0][2].graph)
        if len(group) == 1 and not joined:
            continue
        models = [network.model for *_, network, _ in group if isinstance(network.model, Backbone)]
        outputs = logits_together(models, [nodes for *_, nodes in group], joined)
        for (i, tasks, *_), logits in zip(group, outputs, strict=True):
            parts = logits.split([getattr(task, split).numel() for task in tasks])
            scores |= {
                (i, task.id): _score(learners[i], task, split, rows) for task, rows in zip(tasks, parts, strict=True)
            }
    return scores


def _networks(learner: Learner, tasks: Sequence[Task], split: str) -> list[tuple[NetworkScorer, list[Task]]]:
    """Return networks whose outputs are scores of tasks, each with its tasks: one, or on a GPU all of the network."""
    networks: dict[Any, tuple[NetworkScorer, list[Task]]] = {}
    for task in tasks if learner.model is not None else ():
        graph, nodes = task.graph if task.own_graph else learner.graph, getattr(task, split)
        if graph is None or graph.device != learner.device or not nodes.numel():
            continue
        network = learner.method.scorer(learner, graph, None if learner.heads.kind == "growing" else task.id)
        if not isinstance(network, NetworkScorer) or network.graph is not graph or architecture(network.model) is None:
            continue
        joined = _joins_tasks(graph)
        if joined or not (nodes.numel() > CHUNK or has_large_field(network.model, graph, nodes)):
            key = id(network.model), id(graph), None if joined else task.id
            networks.setdefault(key, (network, []))[1].append(task)
    return list(networks.values())


def _joins_tasks(graph: Graph) -> bool:
    return graph.x.is_cuda


def _examples(learner: Learner, graph: Graph, tasks: Sequence[Task], split: str) -> Examples:
    """Return the nodes of tasks with the heads that score them."""
    nodes = [getattr(task, split).to(learner.device) for task in tasks]
    heads = [learner.heads.heads_of(task.id, len(ids), learner.device) for task, ids in zip(tasks, nodes, strict=True)]
    unused = torch.zeros_like(ids := torch.cat(nodes))
    return Examples(graph, ids, torch.cat(heads), unused, unused.float())


def _score(learner: Learner, task: Task, split: str, logits: Tensor) -> float:
    """Return the score on a task; ``logits`` are those of its nodes."""
    columns, classes = learner.heads.scored(task.id, learner.device)
    predicted = classes[torch.softmax(logits[:, columns], dim=1).argmax(1)]
    nodes = getattr(task, split).to(learner.device)
    return accuracy(predicted, task.graph.y.to(learner.device)[nodes])


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
        area under the ROC curve of each class against the rest, among the nodes for which it competed; it is None if
        all nodes are of one class.
        """
        if not len(self.truth):
            return None
        rows, areas = self.per_class(), []
        for c in np.unique(self.truth):
            competed = ~np.isnan(self.probabilities[:, c])
            positive = self.truth[competed] == c
            if positive.any() and not positive.all():
                areas.append(roc_auc(positive, self.probabilities[competed, c]))
        return {
            "nodes": len(self.truth),
            "accuracy": float((self.truth == self.predicted).mean()),
            "majority": float(np.bincount(self.truth).max() / len(self.truth)),
            "balanced_accuracy": float(np.mean([row["recall"] for row in rows if row["nodes"]])),
            "macro_f1": float(np.mean([row["f1"] for row in rows])),
            "roc_auc": float(np.mean(areas)) if areas else None,
        }

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
        subject = f"{'classes' if several else 'class'} {listed([names[c] for c in missing], count=5)}"
        verb = "are" if several else "is"
        lines.append(f"{subject} {verb} never predicted ({count:,} node{'s' * (count > 1)})")
    return lines


def _accuracies(records: Sequence[Record]) -> NDArray[Any]:
    """``[i, j]``: accuracy on the held-out nodes of update j after update i; NaN where it has none (left)."""
    values = np.full((len(records), len(records)), np.nan)
    for number, record in enumerate(records):
        for update, right, of in record["scores"]:
            if not 0 <= right <= of:
                raise ValueError("a record counts more right nodes than nodes")
            values[number, update] = right / of if of else np.nan
    return values


def accuracy_matrix(records: Sequence[Record]) -> tuple[list[int], AccuracyMatrix] | None:
    """Updates that had held-out nodes when they came, and the accuracy on each since then."""
    values = _accuracies(records)
    scored = np.flatnonzero(~np.isnan(values.diagonal()))
    values = values[np.ix_(scored, scored)]
    if not len(scored) or np.isnan(values[np.tril_indices(len(scored))]).any():
        return None
    return scored.tolist(), AccuracyMatrix(values)


def measures(records: Sequence[Record]) -> dict[str, float]:
    """Return performance mean, forgetting mean and average accuracy of the updates so far, and accuracy over all nodes.

    All use the scores in the newest record, which need not have held-out nodes of its own; updates whose held-out nodes
    were all forgotten are left out.
    """
    values = _accuracies(records)
    learned, now = values.diagonal(), values[-1:].sum(0)
    scored = ~np.isnan(learned + now)
    if not scored.any():
        return {}
    _, right, total = map(sum, zip(*records[-1]["scores"], strict=True))
    means = {"pm": float(learned[scored].mean()), "aa": float(now[scored].mean()), "accuracy": right / total}
    return {**means, "fm": forgetting(records)[-1] or 0.0}


def forgetting(records: Sequence[Record]) -> list[float | None]:
    """After each update, the mean over earlier ones of (score when it was learned − score now); None for the first."""
    values = _accuracies(records)
    earlier = [row[:number][~np.isnan(row[:number])] for number, row in enumerate(values.diagonal() - values)]
    return [float(sum(lost) / len(lost)) if len(lost) else None for lost in earlier]
