"""Watching a model in use: drift of its inputs, calibration of its probabilities, nodes of unknown classes.

Drift is tested by permutation, with an exact level: whether new nodes have the same distribution as earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from ergnn.analytic import FEATURE_MAPS, Features, Inputs, NormalizedAdjacency
from ergnn.analytic.head import SKETCH_SIZE
from ergnn.analytic.ridge import best_temperature
from ergnn.config.errors import InputError, check_between
from ergnn.data.graph import Graph

Array = NDArray[Any]

ALPHA = 0.01
"""Share of false alarms: probability of an alarm, over all aspects together, if the distribution is unchanged."""

PERMUTATIONS = 999
SAMPLES = 300
"""Maximum number of nodes per side; drawn at random if there are more."""
BINS = 15
"""Bins of confidence, of equal width (Guo et al., 2017)."""
SMALLEST = 1e-12
"""Probabilities are clipped to at least this before their logarithm is taken."""
RATE = 0.05
"""Share of nodes of known classes that are reported as unknown."""
NUM_HOPS = 2
MIN_VAL = 30
"""Validation nodes that a temperature is fitted to, at least."""


@dataclass(frozen=True)
class Drift:
    """The result of :func:`drift_test`.

    Args:
        p: adjusted p-value of each aspect, e.g. ``features``.
        alarm: whether any of them is at most ``alpha``.
        alpha: share of false alarms.
        reference: number of earlier nodes.
        new: number of new nodes.
    """

    p: dict[str, float]
    alarm: bool
    alpha: float
    reference: int
    new: int


def node_aspects(graph: Graph, nodes: Array) -> dict[str, Any]:
    """The aspects of nodes that :func:`drift_test` compares without a model: one matrix per aspect, dense or CSR.

    ``features`` are the nodes' own, ``neighborhoods`` the means over their in-neighbors (zero without any), and
    ``degrees`` is ``log(1 + in-degree)``.
    """
    source, target = graph.edge_index.cpu().numpy()
    size = graph.num_nodes
    adjacency = scipy.sparse.csr_matrix((np.ones(len(source)), (target, source)), (size, size))[nodes]
    degree = np.asarray(adjacency.sum(1))
    x: Any = graph.x.cpu()
    sparse = graph.is_sparse
    x = scipy.sparse.csr_matrix((x.values(), x.col_indices(), x.crow_indices()), x.shape) if sparse else x.numpy()
    mean = scipy.sparse.diags((1 / np.maximum(degree, 1)).ravel()) @ adjacency @ x
    return {"features": x[nodes], "neighborhoods": mean, "degrees": np.log1p(degree)}


def stack_aspects(groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Concatenate the aspects of several groups of nodes."""
    return {name: _stack([aspects[name] for aspects in groups]) for name in groups[0]}


def _stack(rows: list[Any]) -> Any:
    return scipy.sparse.vstack(rows, "csr") if scipy.sparse.issparse(rows[0]) else np.concatenate(rows)


def drift_test(
    reference: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    alpha: float = ALPHA,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Drift:
    """Compare rows of earlier and of new nodes in several aspects at once.

    The statistic of an aspect is the energy distance ``2 E‖X−Y‖ − E‖X−X'‖ − E‖Y−Y'‖`` (Székely and Rizzo, 2013), which
    is zero only for equal distributions. All aspects are computed for the same random permutations of the nodes. With
    statistics standardized over permutations, the adjusted p-value of an aspect is the share of permutations whose
    *largest* statistic reaches the aspect's own (single-step maxT; Westfall and Young, 1993). If earlier and new nodes
    are exchangeable, an alarm has probability at most ``alpha``, whatever the dependence between aspects; it is exactly
    ``alpha`` without ties if ``alpha (permutations + 1)`` is a whole number.

    Args:
        reference: rows of earlier nodes by aspect, dense or in CSR form.
        new: the same aspects of new nodes.
        alpha: share of false alarms.
        permutations: number of permutations.
        seed: seed of the permutations.
    """
    check_between(0, 1, alpha=alpha)
    if not reference or list(reference) != list(new):
        raise InputError(f"aspects are {list(reference)} and {list(new)}; they must be the same, and at least one")
    (n, *others), (m, *more) = ({rows.shape[0] for rows in aspects.values()} for aspects in (reference, new))
    if others or more or not n or not m:
        raise InputError("every aspect needs the same nodes, and at least one on each side")
    rng = np.random.default_rng(seed)
    signs = np.repeat([1 / n, -1 / m], [n, m]).astype(np.float32)
    columns = np.stack([signs, *(rng.permutation(signs) for _ in range(permutations))], 1)
    scores = np.stack([_standardized(_distances(reference[name], new[name]), columns) for name in reference])
    largest = scores.max(0)
    observed = zip(reference, scores[:, 0], strict=True)
    p = {name: float((largest >= score - 1e-6).mean()) for name, score in observed}  # ties count, up to rounding
    return Drift(p, min(p.values()) <= alpha, alpha, n, m)


def _standardized(distances: Array, columns: Array) -> Array:
    """``−sᵀ D s`` of each column s, the first of which is the observed one, in standard deviations from their mean."""
    values = -np.einsum("ij,ij->j", columns, distances @ columns, dtype=np.float64)
    spread = values.std()
    return (values - values.mean()) / spread if spread > 1e-9 * distances.mean() else np.zeros_like(values)


def _distances(reference: Any, new: Any) -> Array:
    """Euclidean distances between all rows of both sides; columns of dense rows are scaled to unit variance."""
    rows = _stack([reference, new])
    if scipy.sparse.issparse(rows):
        gram = (rows @ rows.T).toarray()
    else:
        rows = rows.astype(np.float64)
        spread = rows.std(0)
        rows = (rows - rows.mean(0)) / np.where(spread > 0, spread, 1.0)
        gram = rows @ rows.T
    square = gram.diagonal()
    return np.sqrt(np.maximum(square[:, None] + square - 2 * gram, 0)).astype(np.float32)


def fit_temperature(probabilities: Array, labels: Array) -> float:
    """The τ that minimizes the negative log-likelihood of ``softmax(τ log p)``; below 1, the model was overconfident.

    The probabilities ``[n, classes]`` are of nodes that were not used for training; a label is the column of a class.
    """
    _check(probabilities, labels)
    log = torch.from_numpy(np.log(np.maximum(probabilities, SMALLEST)))
    return best_temperature(log, torch.from_numpy(labels), torch.ones(len(labels), dtype=log.dtype))


def apply_temperature(probabilities: Array, temperature: float) -> Array:
    """``softmax(τ log p)``."""
    clipped = np.maximum(probabilities, SMALLEST)
    power = (clipped / clipped.max(1, keepdims=True)) ** temperature  # the largest is 1: no row becomes all zero
    return power / power.sum(1, keepdims=True)


def expected_calibration_error(probabilities: Array, labels: Array, bins: int = BINS) -> tuple[float, list[list[Any]]]:
    """``ECE = Σ_b n_b/n |accuracy_b − confidence_b|`` and its bins.

    The confidence of a node is its largest probability; bin b holds those in ``(b/B, (b+1)/B]``, and is returned as
    ``[low, high, nodes, confidence, accuracy]`` if it has nodes.
    """
    _check(probabilities, labels)
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    rows, error = [], 0.0
    for b in np.unique(place):
        inside = place == b
        mean, share = float(confidence[inside].mean()), float(right[inside].mean())
        rows.append([b / bins, (b + 1) / bins, int(inside.sum()), mean, share])
        error += inside.mean() * abs(share - mean)
    return float(error), rows


def calibration(val: tuple[Array, Array], test: tuple[Array, Array]) -> dict[str, Any]:
    """Temperature on validation nodes, and calibration error on test nodes without and with it.

    ``val`` and ``test`` are the probabilities of the nodes and the columns of their classes. The temperature is None if
    validation nodes are few, or are all predicted right: their likelihood then grows with τ without end.
    """
    error, bins = expected_calibration_error(*test)
    temperature = calibrated = None
    if len(val[1]) >= MIN_VAL and (val[0].argmax(1) != val[1]).any():
        temperature = fit_temperature(*val)
        calibrated = expected_calibration_error(apply_temperature(test[0], temperature), test[1])[0]
    return {
        "temperature": temperature,
        "ece": error,
        "ece_calibrated": calibrated,
        "bins": bins,
        "val": len(val[1]),
        "test": len(test[1]),
    }


def _check(probabilities: Array, labels: Array) -> None:
    if probabilities.ndim != 2 or len(probabilities) != len(labels) or not len(labels):
        raise InputError(
            f"probabilities have shape {probabilities.shape} for {len(labels)} labels; one row per label is needed, "
            "and at least one"
        )


def unknown_rows(graph: Graph, nodes: Tensor) -> Tensor:
    """``[X, SX, S²X]`` of some nodes with rows of unit length, the input of :class:`UnknownScore`."""
    sketch = SKETCH_SIZE if graph.num_features > SKETCH_SIZE else None
    inputs = Inputs(graph, sketch, torch.float32)
    features = Features(
        FEATURE_MAPS.create("hops", num_hops=NUM_HOPS), NormalizedAdjacency(graph, graph.edge_weight), inputs
    )
    return features.rows(nodes)[:, :-1]


@dataclass(frozen=True, eq=False)
class UnknownScore:
    """How far a node is from every known class: ``s(z) = −max_c ⟨z − m, μ_c − m⟩ / ‖μ_c − m‖``.

    z is the node's row of propagated features, μ_c the mean over the training nodes of class c, and m the mean over
    nodes of the whole graph, labeled or not. A node whose features and neighborhood are typical of the graph as a whole
    but of no class has a score of about 0; the score is negative along a class. This differs from a nearest class mean
    by the center m, which includes nodes of unknown classes.

    Args:
        center: m, ``[width]``.
        directions: ``(μ_c − m) / ‖μ_c − m‖``, ``[classes, width]``.
        threshold: nodes with higher scores are reported as unknown.
        rate: share of nodes of known classes above the threshold.
    """

    center: Tensor
    directions: Tensor
    threshold: float = inf
    rate: float = RATE

    @classmethod
    def fit(cls, rows: Tensor, labels: Tensor, background: Tensor) -> UnknownScore:
        """Fit to rows of training nodes with their labels, and to rows of any nodes of the graph."""
        if not rows.size(0) or rows.size(0) != labels.numel() or not background.size(0):
            raise InputError(
                f"{rows.size(0)} rows, {labels.numel()} labels and {background.size(0)} background rows; as many rows "
                "as labels are needed, and at least one of each"
            )
        center = background.mean(0)
        means = torch.stack([rows[labels == c].mean(0) for c in labels.unique()]) - center
        return cls(center, means / means.norm(dim=1, keepdim=True).clamp(min=1e-12))

    def score(self, rows: Tensor) -> Tensor:
        """The score s of each row."""
        return -((rows - self.center) @ self.directions.T).amax(1)

    def with_threshold(self, val: Tensor, rate: float = RATE) -> UnknownScore:
        """Set the threshold to the ``⌈(n+1)(1−rate)⌉``-th smallest score of n validation rows of known classes.

        A further node of a known class that is exchangeable with them is reported as unknown with probability at most
        ``rate`` (split conformal prediction; Vovk et al., 2005). With too few rows for that, nothing is unknown.
        """
        check_between(0, 1, rate=rate)
        scores, place = self.score(val).sort().values, ceil((val.size(0) + 1) * (1 - rate)) - 1
        return replace(self, threshold=float(scores[place]) if place < val.size(0) else inf, rate=rate)

    def count(self, rows: Tensor) -> dict[str, Any]:
        """Count the unknown nodes, and return the threshold (None if there is none) and the rate as well."""
        above = int((self.score(rows) > self.threshold).sum())
        threshold = self.threshold if self.threshold < inf else None
        return {"rate": self.rate, "threshold": threshold, "nodes": rows.size(0), "above": above}
