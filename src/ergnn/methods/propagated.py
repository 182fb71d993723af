"""Methods on propagated features without a trained network: nearest class mean, streaming LDA, and prompts (TPP)."""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache, partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import InputError, check_at_least, check_choice
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.hardware import Recorded, side_stream
from ergnn.engine.losses import MASKED
from ergnn.engine.propagation import propagate
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView, Method, Scorer
from ergnn.nn.examples import Examples
from ergnn.replay.selectors.base import Distance


@lru_cache(maxsize=2)  # drawing takes longer than using it
def random_encoder(seed: int, shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a Gaussian matrix of a shape, drawn by seed on the CPU."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    return torch.randn(*shape, generator=generator, dtype=dtype).to(device)


class ClassStatistics(Method):
    """Base class of methods that store a vector and a count per class, which tasks update in any order.

    Attributes:
        statistic: what the vectors are, their key in the state.
    """

    trains_network = False
    backbone = "sgc"
    statistic: ClassVar[str]

    def __init__(self, hops: int) -> None:
        check_at_least(0, hops=hops)
        self.hops = hops
        self.vectors: dict[int, Tensor] = {}
        self.counts: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        """Size of the vectors and counts of the classes so far, and of other statistics, in bytes."""
        return super().nbytes + sum(vector.nbytes + 8 for vector in self.vectors.values()) if self.vectors else 0

    def encode(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return the rows of some nodes, of ``S^K X`` or computed from it, in float64."""
        return propagate(graph, self.hops, nodes=nodes).double()

    @abstractmethod
    def add(self, c: int, z: Tensor) -> None:
        """Add rows of class c to its statistics."""

    @abstractmethod
    def scores(self, graph: Graph, nodes: Tensor, classes: Tensor) -> Tensor:
        """Return the score of each class."""

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        z, labels = self.encode(task.graph, task.train), task.graph.y[task.train]
        for c in task.classes:
            self.add(c, z[labels == c])
        return {}

    def scorer(self, learner: LearnerView, graph: Graph, task: int | None) -> Scorer:
        return partial(self.scores, graph, classes=learner.classes(task))

    def state_dict(self) -> dict[str, Any]:
        vectors, counts = list(self.vectors.values()), list(self.counts.values())
        return {**super().state_dict(), "classes": list(self.vectors), self.statistic: vectors, "counts": counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.vectors = dict(zip(state["classes"], state[self.statistic], strict=True))
        self.counts = dict(zip(state["classes"], state["counts"], strict=True))


@METHODS.register("nearest-mean", aliases=("ncm",), help="predict the nearest class mean in S²X, without training")
class NearestMean(ClassStatistics):
    """Predict the class whose mean is nearest.

    ``z_v`` is v's row of ``S^K X`` with ``S = D̃^−½ (A + I) D̃^−½``, and ``μ_c`` the mean of z over the training nodes of
    class c, computed in the graph of c's task (over all its tasks, if a class occurs in several). The score of c is
    ``−‖z_v − μ_c‖²``, or ``cos(z_v, μ_c)``. The head determines which classes compete: those of the task, or all so
    far. The backbone is not used.

    Args:
        hops: K, number of propagation steps; 0 compares raw features.
        distance: distance between a node and a class mean.
    """

    statistic = "sums"
    comparison = Comparison(search={"hops": (1, 2, 3), "distance": ("euclidean", "cosine")})

    def __init__(self, hops: int = 2, distance: Distance = "euclidean") -> None:
        super().__init__(hops)
        check_choice("distance", distance, Distance)
        self.distance = distance

    def add(self, c: int, z: Tensor) -> None:
        self.vectors[c] = z.sum(0) + self.vectors.get(c, 0.0)
        self.counts[c] = z.size(0) + self.counts.get(c, 0)

    def scores(self, graph: Graph, nodes: Tensor, classes: Tensor) -> Tensor:
        z = self.encode(graph, nodes)
        means = torch.stack([self.vectors[c].to(z.device) / self.counts[c] for c in classes.tolist()])
        if self.distance == "cosine":
            return F.normalize(z, dim=1) @ F.normalize(means, dim=1).T
        return -torch.cdist(z, means, compute_mode="donot_use_mm_for_euclid_dist").square()


@METHODS.register("slda", help="streaming linear discriminant analysis on a random graph encoder, without training")
class StreamingLDA(ClassStatistics):
    """Streaming LDA (Hayes and Kanan, 2020) on random features (as in Prabhu et al., 2024), without training.

    ``z_v = ReLU(W h_v)``, where ``h_v`` is v's row of ``S^K X`` divided by its norm, and W is Gaussian, drawn by seed
    and never changed. The running statistics are the mean μ_c and the count n_c of each class, and the scatter M
    within classes. A batch of n' rows of class c with mean μ' and scatter M' is added exactly, with ``δ = μ' − μ_c``:

        M ← M + M' + n_c n' / (n_c + n') δδᵀ,   μ_c ← μ_c + n' / (n_c + n') δ,   n_c ← n_c + n' .

    The score of class c is ``μ_cᵀ Σ⁻¹ z − ½ μ_cᵀ Σ⁻¹ μ_c`` (equal priors) with ``Σ = (1 − ε) M/n + ε tr(M/n)/d I``: as
    of LDA on all rows at once, in any order. The head decides which classes compete. The backbone is not used.

    Args:
        hops: K, number of propagation steps; 0 encodes raw features.
        width: d, number of random features.
        shrinkage: ε, weight of the identity in the covariance, above 0; 1 predicts the nearest class mean.
    """

    statistic = "means"
    stored = ("seed", "scatter")
    comparison = Comparison(search={"hops": (1, 2, 3), "shrinkage": (0.1, 0.5, 0.9)}, size_option="width")

    def __init__(self, hops: int = 2, width: int = 512, shrinkage: float = 0.9) -> None:
        super().__init__(hops)
        check_at_least(1, width=width)
        if not 0.0 < shrinkage <= 1.0:
            raise InputError(f"shrinkage is {shrinkage}; it must be above 0 and at most 1")
        self.width, self.shrinkage, self.seed = width, shrinkage, 0
        self.scatter = torch.zeros(width, width, dtype=torch.float64)

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        self.seed = learner.seed
        return super().after_task(learner, task, trained_on)

    def add(self, c: int, z: Tensor) -> None:
        if not len(z):
            return
        mean, count, old = z.mean(0), z.size(0), self.counts.get(c, 0)
        delta = mean - self.vectors.get(c, mean)
        apart = z - mean
        self.scatter = self.scatter.to(z.device) + apart.T @ apart
        self.scatter += old * count / (old + count) * torch.outer(delta, delta)
        self.vectors[c] = self.vectors.get(c, mean) + count / (old + count) * delta
        self.counts[c] = old + count

    def encode(self, graph: Graph, nodes: Tensor) -> Tensor:
        h, shape = F.normalize(super().encode(graph, nodes), dim=1), (graph.num_features, self.width)
        return torch.relu(h @ random_encoder(self.seed * 1_000_003 + 61, shape, torch.float64, h.device))

    def scores(self, graph: Graph, nodes: Tensor, classes: Tensor) -> Tensor:
        z = self.encode(graph, nodes)
        means = torch.stack([self.vectors[c].to(z.device) for c in classes.tolist()])
        covariance = self.scatter.to(z.device) / sum(self.counts.values())
        scale = float(covariance.diagonal().mean()) or 1.0  # 0 if every class has a single row
        eye = torch.eye(self.width, dtype=z.dtype, device=z.device)
        weight = torch.linalg.solve((1.0 - self.shrinkage) * covariance + self.shrinkage * scale * eye, means.T)
        return z @ weight - 0.5 * (means.T * weight).sum(0)


@METHODS.register("tpp", help="prompts and a classifier for each task on a frozen encoder, with task profiles (TPP)")
class TPP(Method):
    """Task profiling and prompting (Niu et al., 2024); the task of a node is guessed for each node on its own.

    h_v is v's row of ``S^K X`` divided by its norm. The profile of a task is ``p_t = mean h_v`` over its training
    nodes. If the task is unknown, it is ``argmin_t ‖h_v − p_t‖``, from this node alone. (The original compares the mean
    of a whole test set, which reveals the task.) The outputs of task t are

        U_t ReLU(W (h_v + Σ_j α_vj φ_tj)) + b_t   with   α_v = softmax(Q_t h_v),

    where W is a Gaussian encoder, drawn by seed and frozen (the original pretrains one on the first task). The prompts
    φ_t, the queries Q_t and the classifier U_t, b_t minimize the mean cross-entropy of the task's training nodes by
    Adam, and never change afterwards. The backbone is not used.

    Args:
        prompts: number of prompts per task; 0 trains the classifier alone.
        hops: K, number of propagation steps.
        width: number of outputs of the encoder.
    """

    trains_network, backbone = False, "gcn"
    stored = ("profiles", "tasks")
    comparison = Comparison(search={"hops": (1, 2, 3)})

    def __init__(self, prompts: int = 3, hops: int = 2, width: int = 256) -> None:
        check_at_least(0, prompts=prompts, hops=hops)
        check_at_least(1, width=width)
        self.prompts, self.hops, self.width = prompts, hops, width
        self.profiles: list[Tensor] = []
        self.tasks: list[dict[str, Tensor]] = []

    @property
    def unused_settings(self) -> tuple[str, ...]:
        used = ("epochs", "lr", "weight_decay")  # of prompts and classifiers
        return tuple(name for name in super().unused_settings if name not in used)

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        h, targets, training = self.inputs(task.graph, task.train), task.targets(task.train), learner.training
        encoder = self.encoder(learner.seed, h)
        encoded, generator = h @ encoder, task.generator(learner.seed, 73)
        zeros = map(h.new_zeros, ((self.prompts, h.size(1)), (self.width, task.num_classes), (task.num_classes,)))
        values = [torch.randn(h.size(1), self.prompts, generator=generator).to(h), *zeros]
        learned = dict(zip(("query", "tokens", "weight", "bias"), (v.requires_grad_() for v in values), strict=True))
        optimizer = torch.optim.Adam(values, training.lr, weight_decay=training.weight_decay, capturable=h.is_cuda)

        def step(_: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(outputs(h, encoded, encoder, learned), targets)
            loss.backward()
            optimizer.step()
            return loss.detach()

        train = Recorded(step, side_stream(h.device)) if h.is_cuda else step
        for _ in range(training.epochs):
            loss = train(h[:0])
        self.tasks.append({name: value.detach() for name, value in learned.items()})
        self.profiles.append(h.mean(0))
        return {"loss": float(loss)}

    def encoder(self, seed: int, h: Tensor) -> Tensor:
        return random_encoder(seed * 1_000_003 + 79, (h.size(1), self.width), torch.float32, h.device)

    def inputs(self, graph: Graph, nodes: Tensor) -> Tensor:
        return F.normalize(propagate(graph, self.hops, nodes=nodes).float(), dim=1)

    def scorer(self, learner: LearnerView, graph: Graph, task: int | None) -> Scorer:
        return partial(self.scores, learner, graph, task)

    def scores(self, learner: LearnerView, graph: Graph, task: int | None, nodes: Tensor) -> Tensor:
        """Return the outputs of each node's task; outputs for classes of other tasks are masked."""
        h, classes = self.inputs(graph, nodes), learner.classes(task).tolist()
        guess = torch.cdist(h, torch.stack(self.profiles)).argmin(1) if task is None else torch.full_like(nodes, task)
        scores = torch.full((nodes.numel(), len(classes)), MASKED, device=nodes.device)
        encoder = self.encoder(learner.seed, h)
        for number in guess.unique().tolist():
            rows, columns = guess == number, [classes.index(c) for c in learner.classes(number).tolist()]
            scores[rows.nonzero(), columns] = outputs(h[rows], h[rows] @ encoder, encoder, self.tasks[number])
        return scores


def outputs(h: Tensor, encoded: Tensor, encoder: Tensor, learned: dict[str, Tensor]) -> Tensor:
    """Return the outputs of one task for rows h, ``[n, classes of the task]``; ``encoded`` is ``h @ encoder``."""
    prompted = encoded + torch.softmax(h @ learned["query"], dim=1) @ (learned["tokens"] @ encoder)
    return torch.relu(prompted) @ learned["weight"] + learned["bias"]
