"""The experience buffer: nodes of past tasks, how they are replayed, and in which order they leave a full buffer."""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ergnn.config.errors import InputError, check_at_least, check_choice
from ergnn.data.graph import UNLABELED, Graph, join_graphs
from ergnn.engine.adjacency import adjacency_of

Array = NDArray[Any]
ReplayMode = Literal["live", "isolated", "ego"]
COLUMNS = ("nodes", "labels", "scores")


@dataclass(frozen=True, eq=False)
class Experience:
    """Nodes stored from one task.

    Args:
        task: id of the task.
        nodes: node ids, grouped by class.
        labels: their classes.
        scores: the selector's score per node (larger is better).
        copy: stored subgraph with features and edges, these nodes first; None if only ids are stored.
        extras: additional values per node, ``[n, …]`` each, e.g. logits of a model.
    """

    task: int
    nodes: Tensor
    labels: Tensor
    scores: Tensor
    copy: Graph | None = None
    extras: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.nodes.numel())

    @property
    def nbytes(self) -> int:
        tensors = [self.nodes, self.labels, *self.extras.values()]
        if self.copy is not None:
            x = self.copy.x
            tensors += [x.crow_indices(), x.col_indices(), x.values()] if self.copy.is_sparse else [x]
            tensors += [self.copy.edge_index]
        return sum(tensor.nbytes for tensor in tensors)

    def keep(self, index: Tensor, hops: int) -> Experience:
        """Return the nodes at the given positions, and the part of the stored neighborhood within ``hops`` of them."""
        columns = {key: getattr(self, key)[index] for key in COLUMNS}
        copy = None if self.copy is None else _ego(self.copy, index, hops)
        return Experience(self.task, **columns, copy=copy, extras={key: v[index] for key, v in self.extras.items()})

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"task": self.task, **{key: getattr(self, key) for key in COLUMNS}}
        if self.extras:
            state["extras"] = dict(self.extras)
        if self.copy is not None:
            state["copy"] = {"x": self.copy.x, "edge_index": self.copy.edge_index, "y": self.copy.y}
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Experience:
        return cls(**{**state, "copy": Graph(**state["copy"], name="experience") if "copy" in state else None})

    @property
    def ranks(self) -> Tensor:
        """The rank of each node within its class; the best has rank 0."""
        return torch.from_numpy(positions_in_groups([self.labels.cpu().numpy()], [np.arange(len(self))]))


@dataclass
class ExperienceBuffer:
    """The experience buffer 𝔹 of Algorithm 1: it grows by e nodes per class, unless a budget limits it.

    Args:
        replay: how to replay a stored node: ``live``, in the graph with its current neighbors; ``isolated``, by its
            features alone; ``ego``, with its neighborhood at the time it was stored.
        hops: radius of a stored neighborhood.
    """

    replay: ReplayMode = "live"
    hops: int = 2
    experiences: list[Experience] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_choice("replay", self.replay, ReplayMode)
        check_at_least(1, hops=self.hops)

    def __len__(self) -> int:
        return sum(len(one) for one in self.experiences)

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self.experiences)

    def add(
        self, graph: Graph, task: int, nodes: Tensor, scores: Tensor, extras: Mapping[str, Tensor] | None = None
    ) -> None:
        """Add nodes, 𝔹 ← 𝔹 ∪ ℰ; each node once, but if copies are stored, graphs of different tasks may share ids."""
        stored = [one.nodes for one in self.experiences if self.replay == "live" or one.task == task]
        again = nodes[torch.isin(nodes, torch.cat(stored))] if stored else nodes[:0]
        if again.numel() or nodes.unique().numel() < nodes.numel():
            duplicate = int(again[0]) if again.numel() else int(nodes.mode().values)
            raise InputError(f"node {duplicate} is already in the buffer")
        copy = None if self.replay == "live" else _ego(graph, nodes, self._radius)
        columns = nodes.clone(), graph.y[nodes], scores.to(nodes.device, copy=True)
        self.experiences.append(Experience(task, *columns, copy, dict(extras or {})))

    def remap(self, mapping: Callable[[Tensor], Tensor]) -> None:
        """Replace the ids of the stored nodes."""
        self.experiences = [replace(one, nodes=mapping(one.nodes)) for one in self.experiences]

    def remove(self, nodes: Tensor) -> int:
        """Remove nodes by id; return how many were removed."""
        before, stored = len(self), self.nodes
        self.experiences = self._kept(~torch.isin(stored, nodes.to(stored.device)).cpu())
        return before - len(self)

    def trim(self, budget_nodes: int | None = None, budget_bytes: int | None = None) -> int:
        """Evict as few nodes as needed to meet the budget, in the order of :func:`eviction_steps`; return how many."""
        before = len(self)
        evicted = 0 if budget_nodes is None else max(0, before - budget_nodes)
        if self.experiences and (evicted or (budget_bytes is not None and self.nbytes > budget_bytes)):
            steps = eviction_steps(self.experiences)

            def fits(count: int) -> bool:
                return budget_bytes is None or sum(one.nbytes for one in self._kept(steps > count)) <= budget_bytes

            # the size never increases
            evicted += bisect_left(range(evicted, before), True, key=fits)
            self.experiences = self._kept(steps > evicted)
        return before - len(self)

    def _kept(self, mask: Tensor) -> list[Experience]:
        """Return the experiences with the nodes in ``mask`` (on the CPU) only, without those that have no nodes."""
        positions = [one.nonzero().flatten() for one in mask.split([len(one) for one in self.experiences])]
        return [
            one if index.numel() == len(one) else one.keep(index.to(one.nodes.device), self._radius)
            for one, index in zip(self.experiences, positions, strict=True)
            if index.numel()
        ]

    @property
    def _radius(self) -> int:
        return self.hops if self.replay == "ego" else 0

    @property
    def nodes(self) -> Tensor:
        """Ids of all stored nodes, oldest first."""
        return torch.cat([one.nodes for one in self.experiences]) if self.experiences else torch.empty(0).long()

    def attach(self, graph: Graph) -> tuple[Graph, list[Tensor]]:
        """Return the graph to train on, and the ids of each experience's nodes in it.

        ``live`` returns the graph unchanged; the other modes append the stored nodes.
        """
        if self.replay == "live":
            return graph, [one.nodes for one in self.experiences]
        ids, start = [], graph.num_nodes
        for one in self.experiences:
            ids.append(torch.arange(len(one), device=graph.device) + start)
            start += one.copy.num_nodes if one.copy is not None else 0
        copies = [one.copy for one in self.experiences if one.copy is not None]
        return join_graphs([graph, *copies]), ids

    def alone(self, graph: Graph) -> tuple[Graph, Tensor]:
        """Return a graph in which the stored nodes can be embedded, and their ids in it; they must not be empty.

        ``live`` returns the given graph, the other modes only the stored nodes and their neighbors.
        """
        no_nodes = torch.empty(0, dtype=torch.long, device=graph.device)
        joined, ids = self.attach(graph if self.replay == "live" else _ego(graph, no_nodes, 0))
        return joined, torch.cat(ids)

    def state_dict(self) -> dict[str, Any]:
        return {
            "replay": self.replay,
            "hops": self.hops,
            "experiences": [one.state_dict() for one in self.experiences],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.replay, self.hops = state["replay"], state["hops"]
        self.experiences = [Experience.from_state(one) for one in state["experiences"]]


def _ego(graph: Graph, nodes: Tensor, hops: int) -> Graph:
    """Return the subgraph induced by the nodes (which come first) and all nodes within ``hops`` of them."""
    adj = adjacency_of(graph)
    inside = nodes
    for _ in range(hops):
        inside = torch.cat([inside, adj.incoming(inside)[1]]).unique()
    others = inside[~torch.isin(inside, nodes)]
    nodes_first = torch.cat([nodes, others])
    local_id = torch.full((graph.num_nodes,), -1, device=graph.device)
    local_id[nodes_first] = torch.arange(nodes_first.numel(), device=graph.device)
    edges = local_id[graph.edge_index]
    edges = edges[:, (edges >= 0).all(0)] if hops else edges[:, :0]
    y = torch.cat([graph.y[nodes], torch.full_like(others, UNLABELED)])  # neighbors' labels are not stored
    return replace(graph, x=graph.select_x(nodes_first), edge_index=edges, y=y, public_split=None)


def eviction_steps(experiences: list[Experience]) -> Tensor:
    """Return the step at which each node is evicted, from 1, over the nodes of all experiences (on the CPU).

    The next node comes from the class with the most nodes, within it from the task with the most nodes, and is the
    worst-ranked one there; a hash of node and task breaks ties, so neither old nor new nodes are favored (as in
    reservoir sampling). A node is the worst of its class and task when as many nodes are left there as its position
    among them, and likewise in its class. So the order is one sort, by the position in the class, then the position in
    class and task, then rank and hash.
    """
    nodes, labels = (torch.cat([getattr(one, key) for one in experiences]).cpu().numpy() for key in COLUMNS[:2])
    task = np.repeat([one.task for one in experiences], [len(one) for one in experiences])
    pairs = zip(nodes.tolist(), task.tolist(), strict=True)
    tie_breaker = np.array([zlib.crc32(f"{node},{task}".encode()) for node, task in pairs])
    index = np.arange(nodes.size)
    rank = torch.cat([one.ranks for one in experiences]).numpy()
    keys = [rank, tie_breaker, -index]
    keys = [positions_in_groups([task, labels], keys), *keys]
    keys = [positions_in_groups([labels], keys), *keys]
    steps = np.empty_like(index)
    steps[np.lexsort(keys[::-1])] = index[::-1] + 1
    return torch.from_numpy(steps)


def positions_in_groups(groups: list[Array], keys: list[Array]) -> Array:
    """Return the position of each element within its group, sorted by the keys."""
    order = np.lexsort([*keys[::-1], *groups])
    index = np.arange(order.size)
    new = np.any([group[order] != np.roll(group[order], 1) for group in groups], axis=0)
    positions = np.empty_like(index)
    positions[order] = index - np.maximum.accumulate(np.where(new, index, 0))
    return positions
