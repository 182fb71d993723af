"""What is remembered of past tasks, and how it is shown to the model again."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ergnn.data.graph import UNLABELLED, Graph
from ergnn.data.stream import Task
from ergnn.engine.adjacency import adjacency_of
from ergnn.errors import InputError, UnknownNameError

REPLAYS = ("live", "isolated", "ego")


@dataclass(frozen=True, eq=False)
class Experience:
    """Nodes remembered from one task.

    Args:
        task: the task's number.
        nodes: node ids, class by class.
        labels: their classes.
        scores: what the selector thought of each (larger is better).
        copy: what was stored beside the ids: attributes, and edges among them, with the remembered nodes first.
    """

    task: int
    nodes: Tensor
    labels: Tensor
    scores: Tensor
    copy: Graph | None = None

    def __len__(self) -> int:
        return int(self.nodes.numel())

    @property
    def nbytes(self) -> int:
        tensors = [self.nodes, self.labels]
        if self.copy is not None:
            x = self.copy.x
            tensors += [x.crow_indices(), x.col_indices(), x.values()] if self.copy.is_sparse else [x]
            tensors += [self.copy.edge_index]
        return sum(t.numel() * t.element_size() for t in tensors)

    def keep(self, mask: Tensor, hops: int) -> Experience:
        """Only some of the nodes; of a stored neighbourhood, what lies within ``hops`` of them."""
        copy = None if self.copy is None else _ego(self.copy, mask.nonzero().flatten(), hops)
        return Experience(self.task, self.nodes[mask], self.labels[mask], self.scores[mask], copy)

    @property
    def ranks(self) -> Tensor:
        """The place of each node among those of its class, the best being 0."""
        same = self.labels.unsqueeze(0) == self.labels.unsqueeze(1)
        return same.tril(-1).sum(1)


@dataclass
class ExperienceBuffer:
    """The experience buffer 𝔹 of Algorithm 1: it grows by e nodes a class, unless it is kept within a budget.

    Args:
        replay: how a remembered node is shown again: ``live``, where it stands in the graph, with the neighbours it
            has now; ``isolated``, its attributes alone; ``ego``, with the neighbourhood it had when it was stored.
        hops: radius of a stored neighbourhood.
    """

    replay: str = "live"
    hops: int = 2
    experiences: list[Experience] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.replay not in REPLAYS:
            raise UnknownNameError("replay", self.replay, REPLAYS)
        if self.hops < 1:
            raise InputError(f"hops is {self.hops}; an ego graph needs at least 1")

    def __len__(self) -> int:
        return sum(len(part) for part in self.experiences)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.experiences)

    def check(self, task: Task) -> None:
        """Refuse a task whose nodes could not be shown again."""
        if task.own_graph and self.replay == "live":
            raise InputError(
                f"{task.name} has a graph of its own, which later tasks do not see; replay is 'live', but its nodes "
                "must be stored: use 'isolated' or 'ego'"
            )

    def add(self, graph: Graph, task: int, nodes: Tensor, scores: Tensor) -> None:
        """𝔹 ← 𝔹 ∪ ℰ; a node once only, but where copies are stored another task's graph may have the same ids."""
        rivals = [part.nodes for part in self.experiences if self.replay == "live" or part.task == task]
        again = nodes[torch.isin(nodes, torch.cat(rivals))] if rivals else nodes[:0]
        if again.numel() or nodes.unique().numel() < nodes.numel():
            raise InputError(
                f"node {int(again[0]) if again.numel() else int(nodes.mode().values)} is remembered already"
            )
        copy = None if self.replay == "live" else _ego(graph, nodes, self._radius)
        self.experiences.append(Experience(task, nodes.clone(), graph.y[nodes], scores.clone(), copy))

    def remove(self, nodes: Tensor, task: int | None = None) -> int:
        """Forget nodes by id (where copies are stored, of one task, as ids may repeat); returns how many there were."""
        before = len(self)
        for i, part in enumerate(self.experiences):
            if task is None or part.task == task:
                gone = torch.isin(part.nodes, nodes.to(part.nodes.device))
                if bool(gone.any()):
                    self.experiences[i] = part.keep(~gone, self._radius)
        self.experiences = [part for part in self.experiences if len(part)]
        return before - len(self)

    def trim(self, budget_nodes: int | None = None, budget_bytes: int | None = None) -> int:
        """Forget as few nodes as bring the buffer within a budget; returns how many.

        Who gives way is decided fairly: the class with the most nodes, in it the task with the most, there the lowest
        rank. Among equals a hash of node and task decides, so that no age is favoured (as in reservoir sampling).
        """
        before = len(self)
        while len(self) and (
            (budget_nodes is not None and len(self) > budget_nodes)
            or (budget_bytes is not None and self.nbytes > budget_bytes)
        ):
            i, place = self._least_needed()
            mask = torch.ones(len(self.experiences[i]), dtype=torch.bool, device=self.experiences[i].nodes.device)
            mask[place] = False
            self.experiences[i] = self.experiences[i].keep(mask, self._radius)
            self.experiences = [part for part in self.experiences if len(part)]
        return before - len(self)

    def _least_needed(self) -> tuple[int, int]:
        """Experience and place of the node that gives way first."""
        of_class: Counter[int] = Counter()
        of_both: Counter[tuple[int, int]] = Counter()
        for part in self.experiences:
            for label in part.labels.tolist():
                of_class[label] += 1
                of_both[label, part.task] += 1
        worst, found = None, (0, 0)
        for i, part in enumerate(self.experiences):
            listed = zip(part.nodes.tolist(), part.labels.tolist(), part.ranks.tolist(), strict=True)
            for place, (node, label, rank) in enumerate(listed):
                luck = zlib.crc32(f"{node},{part.task}".encode())
                need = (of_class[label], of_both[label, part.task], rank, luck)
                if worst is None or need > worst:
                    worst, found = need, (i, place)
        return found

    @property
    def _radius(self) -> int:
        return self.hops if self.replay == "ego" else 0

    @property
    def nodes(self) -> Tensor:
        """Ids of all remembered nodes, oldest first."""
        return torch.cat([part.nodes for part in self.experiences]) if self.experiences else torch.empty(0).long()

    def attach(self, graph: Graph) -> tuple[Graph, list[Tensor]]:
        """The graph to train on, and in it the ids of each experience's nodes.

        ``live`` leaves the graph as it is; the other ways append what was stored as nodes of their own.
        """
        if self.replay == "live":
            return graph, [part.nodes for part in self.experiences]
        ids, start = [], graph.num_nodes
        for part in self.experiences:
            ids.append(torch.arange(len(part), device=graph.device) + start)
            start += part.copy.num_nodes if part.copy is not None else 0
        copies = [part.copy for part in self.experiences if part.copy is not None]
        return _append(graph, copies), ids

    def state_dict(self) -> dict[str, Any]:
        return {
            "replay": self.replay,
            "hops": self.hops,
            "experiences": [_experience_state(part) for part in self.experiences],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.replay, self.hops = state["replay"], state["hops"]
        self.experiences = [_experience(part) for part in state["experiences"]]


def _ego(graph: Graph, nodes: Tensor, hops: int) -> Graph:
    """A copy of the nodes (first) and of what lies within ``hops`` of them, with the edges among those."""
    adj = adjacency_of(graph)
    inside = nodes
    for _ in range(hops):
        inside = torch.cat([inside, adj.incoming(inside)[1]]).unique()
    others = inside[~torch.isin(inside, nodes)]
    kept = torch.cat([nodes, others])
    place = torch.full((graph.num_nodes,), -1, device=graph.device)
    place[kept] = torch.arange(kept.numel(), device=graph.device)
    edges = place[graph.edge_index]
    edges = edges[:, (edges >= 0).all(0)] if hops else edges[:, :0]
    x = graph.rows(kept)
    y = torch.cat([graph.y[nodes], torch.full_like(others, UNLABELLED)])  # neighbours' labels are nobody's business
    return replace(
        graph,
        x=x.to_sparse_csr() if graph.is_sparse else x,
        edge_index=edges,
        y=y,
        public_split=None,
    )


def _append(graph: Graph, others: list[Graph]) -> Graph:
    """One graph with the others as further components."""
    if not others:
        return graph
    parts = [graph, *others]
    starts = [sum(part.num_nodes for part in parts[:i]) for i in range(len(parts))]
    edges = torch.cat([part.edge_index + start for part, start in zip(parts, starts, strict=True)], dim=1)
    if graph.is_sparse:
        counts = torch.cat([part.x.crow_indices().diff() for part in parts])
        rowptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        col = torch.cat([part.x.col_indices() for part in parts])
        value = torch.cat([part.x.values() for part in parts])
        x = torch.sparse_csr_tensor(rowptr, col, value, (counts.numel(), graph.num_features), check_invariants=False)
    else:
        x = torch.cat([part.x for part in parts])
    return replace(graph, x=x, edge_index=edges, y=torch.cat([part.y for part in parts]), public_split=None)


def _experience_state(part: Experience) -> dict[str, Any]:
    state: dict[str, Any] = {
        "task": part.task,
        "nodes": part.nodes,
        "labels": part.labels,
        "scores": part.scores,
    }
    if part.copy is not None:
        state["copy"] = {"x": part.copy.x, "edge_index": part.copy.edge_index, "y": part.copy.y}
    return state


def _experience(state: dict[str, Any]) -> Experience:
    copy = Graph(**state["copy"], name="experience") if "copy" in state else None
    return Experience(state["task"], state["nodes"], state["labels"], state["scores"], copy)
