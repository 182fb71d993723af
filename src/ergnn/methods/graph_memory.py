"""Methods with a memory for graphs: sparsified subgraphs (SSM), propagated features (PDGNN), nodes in ContinualGNN, and
synthetic nodes (CaT).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ergnn.config.errors import check_at_least
from ergnn.config.registry import inherit_options
from ergnn.data.graph import Graph, join_graphs
from ergnn.data.stream import Task
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.cache import Cache
from ergnn.engine.propagation import propagate
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, FolderUse, LearnerView, Method, Scorer
from ergnn.methods.importance import EWC
from ergnn.methods.memory import STORES_VALUES, MemoryMethod, SelectorMethod
from ergnn.nn.examples import Examples
from ergnn.replay.buffer import positions_in_groups
from ergnn.replay.selectors import SELECTORS, Selection, Selector

_EMBEDDED: Cache[Graph] = Cache()


def balance_classes(examples: Examples) -> Examples:
    """Weight an example of class c by ``1 / (C n_c)``, so that each of the C classes has the same total weight."""
    _, class_of, counts = torch.unique(examples.graph.y[examples.nodes], return_inverse=True, return_counts=True)
    return examples.weighted(1.0 / (counts.numel() * counts[class_of]))


def sparsify(graph: Graph, nodes: Tensor, hops: int, neighbors: int, generator: torch.Generator) -> Graph:
    """Return the same graph with only the edges between sampled nodes.

    Per hop, each node of the previous hop samples at most ``neighbors`` of its neighbors without replacement, with
    probabilities in proportion to their degrees: those with the smallest keys ``E / degree`` for exponential E
    (Efraimidis and Spirakis, 2006).
    """
    adj = adjacency_of(graph)
    inside = torch.zeros(graph.num_nodes, dtype=torch.bool, device=nodes.device)
    inside[nodes] = True
    for _ in range(hops):
        row, source = adj.incoming(nodes)
        chance = torch.rand(row.numel(), generator=generator, dtype=torch.float64).to(row.device)
        keys = -torch.log1p(-chance) / adj.degrees(source).clamp(min=1)
        rank = torch.from_numpy(positions_in_groups([row.cpu().numpy()], [keys.cpu().numpy()]))
        nodes = source[rank.to(row.device) < neighbors].unique()
        nodes = nodes[~inside[nodes]]
        inside[nodes] = True
    source, target = graph.edge_index
    return replace(graph, edge_index=graph.edge_index[:, inside[source] & inside[target]], public_split=None)


@METHODS.register("ssm", help="replay nodes with sparsified neighborhoods (sparsified subgraph memory)")
class SSM(SelectorMethod):
    """Sparsified subgraph memory (Zhang et al., 2022).

    A remembered node is stored with a sparsified computation graph: per hop, at most ``neighbors`` neighbors of each
    node, sampled in proportion to their degrees, and the edges between all sampled nodes. The loss is
    ``Σ_c mean_{v∈c} CE(z_v, y_v) / C`` over the C classes of the task and the memory.

    Args:
        neighbors: maximum number of neighbors sampled per node and hop.
    """

    comparison = Comparison(search={"neighbors": (3, 5, 10)})
    folder = STORES_VALUES

    @inherit_options(SelectorMethod, "replay")
    def __init__(self, *, selector: str | Selector = "random", neighbors: int = 5, **memory: Any) -> None:
        check_at_least(0, neighbors=neighbors)
        super().__init__(selector=selector, replay="ego", **memory)
        self.neighbors = neighbors

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        return balance_classes(Examples.join(self.parts(learner, task)))

    def to_store(self, learner: LearnerView, task: Task, nodes: Tensor) -> tuple[Graph, dict[str, Tensor]]:
        generator = task.generator(learner.seed, 71)
        return sparsify(task.graph, nodes, self.buffer.hops, self.neighbors, generator), {}


def embedded(graph: Graph, hops: int) -> Graph:
    """Return the nodes with features ``S^K X`` and no edges; computed once per graph."""

    def make() -> Graph:
        edges = torch.empty(2, 0, dtype=torch.long, device=graph.device)
        return replace(graph, x=propagate(graph, hops), edge_index=edges, public_split=None)

    return _EMBEDDED.get([graph], make, hops)


def coverage(graph: Graph, nodes: Tensor, hops: int) -> Tensor:
    """Return the number of nodes within ``hops`` of each node, itself included."""
    adj, n = adjacency_of(graph), graph.num_nodes
    pairs = torch.arange(nodes.numel(), device=nodes.device) * n + nodes
    for _ in range(hops):
        row, source = adj.incoming(pairs % n)
        pairs = torch.cat([pairs, (pairs // n)[row] * n + source]).unique()
    return torch.bincount(pairs // n, minlength=nodes.numel())


@METHODS.register("pdgnn-tem", help="store propagated features, replay them through an MLP (PDGNN with TEM)")
class PDGNN(MemoryMethod):
    """Parameter-decoupled GNN with a topology-aware embedding memory (Zhang et al., 2024).

    The topology-aware embedding of node v is its row of ``S^K X``; the network is an MLP on these (any backbone is one,
    as the nodes have no edges). e embeddings per class are stored, sampled without replacement in proportion to
    coverage, the number of nodes within K hops. A stored embedding contains the whole neighborhood in constant size.

    The loss is ``Σ_c mean_{v∈c} CE(z_v, y_v) / C`` over the C classes of the task and the memory.

    Args:
        hops: K, number of propagation steps.
    """

    backbone = "mlp"
    comparison = Comparison(search={"hops": (1, 2, 3)})
    folder = STORES_VALUES

    @inherit_options(MemoryMethod, "replay")
    def __init__(self, *, hops: int = 2, **memory: Any) -> None:
        check_at_least(0, hops=hops)
        super().__init__(replay="isolated", hops=1, **memory)
        self.hops = hops

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        return balance_classes(Examples.join(self.parts(learner, self._embedded(task))))

    def validation(self, learner: LearnerView, task: Task) -> Examples:
        return super().validation(learner, self._embedded(task))

    def _embedded(self, task: Task) -> Task:
        return replace(task, graph=embedded(task.graph, self.hops))

    def select(self, learner: LearnerView, task: Task, trained_on: Examples) -> Selection:
        context = learner.selection_context(task, trained_on, self.per_class, False)
        generator, labels = context.generator(), context.labels
        covered = coverage(task.graph, task.train, self.hops).double()
        chosen = []
        for c in task.classes:
            members = (labels == c).nonzero().flatten()
            count = min(self.per_class, members.numel())
            picked = torch.multinomial(covered[members].cpu(), count, generator=generator)
            chosen.append(members[picked.to(members.device)])
        index = torch.cat(chosen)
        return Selection(task.train[index], covered[index].float())

    def to_store(self, learner: LearnerView, task: Task, nodes: Tensor) -> tuple[Graph, dict[str, Tensor]]:
        return embedded(task.graph, self.hops), {}

    def scorer(self, learner: LearnerView, graph: Graph, task: int | None) -> Scorer:
        return super().scorer(learner, embedded(graph, self.hops), task)


@METHODS.register("continualgnn", help="replay important and random nodes, with a penalty as in EWC (ContinualGNN)")
class ContinualGNN(EWC, MemoryMethod):
    """ContinualGNN (Wang et al., 2020): patterns are kept from the data and from the parameters.

    The loss is ``mean_{v∈D} ℓ_v + mean_{v∈B} ℓ_v + λ/2 Σ_k Σ_j F_kj (θ_j − θ*_kj)²`` for the task D, the buffer B, and
    the Fisher information F_k of the training nodes of each earlier task k (see
    :class:`~ergnn.methods.importance.EWC`).

    The importance of a node is the share of its neighbors with a different class, ``I_v = mean_{u∈N(v)} [ŷ_u ≠ y_v]``:
    the network depends most on nodes near a class boundary. ŷ is the prediction of the network, as labels of
    neighbors are mostly unknown. Per class, half of the e nodes (rounded up) are sampled in proportion to importance,
    the others uniformly.

    Args:
        lam: λ, weight of the penalty; 0 is replay alone.
    """

    comparison = Comparison(search={"lam": (0.3, 3.0, 30.0)})
    folder = FolderUse(extra_hops=1)

    @inherit_options(MemoryMethod)
    def __init__(self, *, lam: float = 3.0, fisher_samples: int | None = None, **memory: Any) -> None:
        EWC.__init__(self, lam, fisher_samples)
        MemoryMethod.__init__(self, **memory)
        self.selector = SELECTORS.create("random")  # a folder replaces forgotten nodes with it

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        return Examples.join(self.parts(learner, task))

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        own = trained_on[torch.arange(task.train.numel(), device=task.train.device)]
        own = replace(own, graph=task.graph)  # replayed nodes are not connected to it
        info = MemoryMethod.after_task(self, learner, task, trained_on)
        return {**info, **EWC.after_task(self, learner, task, own)}

    def select(self, learner: LearnerView, task: Task, trained_on: Examples) -> Selection:
        generator = learner.selection_context(task, trained_on, self.per_class, False).generator()
        importance, labels = self.share_of_other_classes(learner, task).cpu().double(), task.graph.y[task.train].cpu()
        chosen = []
        for c in task.classes:
            members = (labels == c).nonzero().flatten()
            members = members[torch.randperm(members.numel(), generator=generator)]
            count = min(self.per_class, members.numel())
            first = (count + 1) // 2  # tiny weights keep nodes of importance 0 available where others are too few
            picked = torch.multinomial(importance[members] + 1e-9, first, generator=generator)
            left = torch.ones(members.numel(), dtype=torch.bool)
            left[picked] = False
            chosen.append(torch.cat([members[picked], members[left][: count - first]]))
        index = torch.cat(chosen)
        return Selection(task.train[index.to(task.train.device)], importance[index].float())

    def share_of_other_classes(self, learner: LearnerView, task: Task) -> Tensor:
        """Return ``I_v`` of the task's training nodes; 0 for a node without neighbors."""
        adj = adjacency_of(task.graph).without_loops()
        row, source = adj.incoming(task.train)
        unique, position = source.unique(return_inverse=True)
        columns, classes = learner.heads.scored(task.id, learner.device)
        differs = torch.zeros(0, device=row.device)
        if unique.numel():
            predicted = classes[learner.logits(task.graph, unique, task.id)[:, columns].argmax(1)]
            differs = (predicted[position] != task.graph.y[task.train][row]).float()
        total = torch.zeros(task.train.numel(), device=row.device).index_add_(0, row, differs)
        return total / adj.degrees(task.train).clamp(min=1)


def condense(real: Sequence[Tensor], start: Tensor, draw: Callable[[], Tensor], steps: int, lr: float) -> Tensor:
    """Return rows X̃ ``[classes, m, features]`` whose mean embedding per class matches that of the real rows.

    Gradient descent on ``½ Σ_c ‖mean f(H_c) − mean f(X̃_c)‖²`` with ``f(H) = ReLU(H W) / √width`` and a new W at each
    step. (Adam would scale the noise of features that no node of a class has up to the size of a step.) The gradient
    is written out, as automatic differentiation would take most of the time.

    Args:
        real: H_c ``[n_c, features]`` of each class.
        start: initial X̃.
        draw: returns the next W ``[features, width]``.
        steps, lr: number of steps; learning rate, per row (the gradient has the factor 1/m), which decays to 0.
    """
    rows, sizes, x = torch.cat(list(real)), [h.size(0) for h in real], start.clone()
    for step in range(steps):
        scale = (weight := draw()).size(1) ** -0.5
        encoded = torch.relu(rows @ weight) * scale
        wanted = torch.stack([of_class.mean(0) for of_class in encoded.split(sizes)])
        active = torch.relu(x @ weight)
        error = ((active * scale).mean(1) - wanted) / x.size(1) * scale
        gradient = torch.where(active > 0, error.unsqueeze(1), 0.0) @ weight.T
        x -= lr * (1.0 - step / steps) * x.size(1) * gradient
    return x


@METHODS.register("cat", help="train on condensed tasks only: synthetic nodes with matching class means (CaT)")
class CaT(Method):
    """CaT (Liu et al., 2023): condense and train, with the single propagation of PUMA (Liu et al., 2024).

    Each task is condensed to m synthetic nodes per class without edges, X̃, that minimize
    ``E_W Σ_c ‖mean_{v∈c} ReLU(W h_v) − mean_{i∈c} ReLU(W x̃_i)‖²`` over random encoders W (a GPU draws other ones than a
    CPU), where h are rows of ``S^K X``. X̃ starts as random rows of h, shifted to the class mean. The network is trained
    from new parameters on the synthetic nodes of all tasks so far, including the current one.

    Args:
        per_class: m, number of synthetic nodes per class.
        hops: K, number of propagation steps.
        width: number of outputs of a random encoder.
        steps: number of condensation steps; 0 keeps the start, which matches the means under every linear encoder.
        condense_lr: learning rate of the synthetic features.
    """

    backbone = "gcn"
    comparison = Comparison(search={"hops": (1, 2, 3), "condense_lr": (0.01, 0.05)})
    folder = FolderUse(refused="it stores features that forgetting cannot remove")
    stored = ("x", "y")

    def __init__(
        self, per_class: int = 1, hops: int = 2, width: int = 256, steps: int = 100, condense_lr: float = 0.05
    ) -> None:
        check_at_least(1, per_class=per_class, width=width)
        check_at_least(0, hops=hops, steps=steps, condense_lr=condense_lr)
        self.per_class, self.hops, self.width, self.steps, self.condense_lr = per_class, hops, width, steps, condense_lr
        self.x: list[Tensor] = []
        self.y: list[Tensor] = []
        self._new: tuple[Tensor, Tensor] | None = None

    def restarts(self, learner: LearnerView, task: Task) -> bool:
        return True

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        self._new = self._condensed(learner, task)
        graph, pairs = task.graph, [*zip(self.x, self.y, strict=True), self._new]
        copies = [Graph(x.to_sparse_csr() if graph.is_sparse else x, graph.edge_index[:, :0], y) for x, y in pairs]
        joined = join_graphs([graph, *copies])
        synthetic = torch.arange(graph.num_nodes, joined.num_nodes, device=graph.device)
        examples = [learner.examples(joined, task.train, task.id).weighted(0.0)]
        tasks = [*range(len(self.x)), task.id]
        for of_task, nodes in zip(tasks, synthetic.split([len(y) for _, y in pairs]), strict=True):
            examples.append(learner.examples(joined, nodes, of_task).weighted(1.0 / synthetic.numel()))
        return Examples.join(examples)

    def _condensed(self, learner: LearnerView, task: Task) -> tuple[Tensor, Tensor]:
        """Return the features and labels of the task's synthetic nodes."""
        h, labels = propagate(task.graph, self.hops, nodes=task.train), task.graph.y[task.train]
        classes = [c for c in task.classes if bool((labels == c).any())]
        generator = task.generator(learner.seed, 67)
        encoders = torch.Generator(h.device).manual_seed(generator.initial_seed()) if h.is_cuda else generator

        def draw() -> Tensor:
            return torch.randn(h.size(1), self.width, generator=encoders, dtype=h.dtype, device=h.device)

        def start(rows: Tensor) -> Tensor:
            chosen = torch.randperm(rows.size(0), generator=generator).repeat(self.per_class)[: self.per_class]
            return (some := rows[chosen.to(rows.device)]) + rows.mean(0) - some.mean(0)

        real = [h[labels == c] for c in classes]
        x = condense(real, torch.stack(list(map(start, real))), draw, self.steps, self.condense_lr).flatten(0, 1)
        return x, torch.tensor(classes, device=h.device).repeat_interleave(self.per_class)

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        assert self._new is not None
        x, y = self._new
        self.x, self.y, self._new = [*self.x, x], [*self.y, y], None
        return {}
