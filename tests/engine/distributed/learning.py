"""Learn one member of a configuration on the running ranks, and record the state of each rank after every task."""

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ergnn.analytic import FEATURE_MAPS, Features, Inputs, NormalizedAdjacency
from ergnn.engine.distributed import Ranks, digest, joined
from ergnn.lab.config import RunConfig
from ergnn.lab.run import Checkpointer, make_learner, streams_of
from ergnn.learning.learner import Learner
from graphs import random_graph

BASE = RunConfig(dataset="cora", backbone="gcn", split="seeded", seeds=1, epochs=4, backbone_options={"dropout": 0.0})


@dataclass
class Learnt:
    """What a rank has to tell."""

    state: dict[str, Any]
    matrix: list[list[float | None]]
    parameters: list[str] = field(default_factory=list)
    remembered: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


class Watched(Checkpointer):
    """Notes hashes of what a rank itself has learned and chosen, before the ranks talk about it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.parameters: list[str] = []
        self.remembered: list[str] = []

    def _synchronized(self, name: str, learner: Learner, scores: list[float]) -> list[float]:
        state = learner.state_dict()
        self.parameters.append(digest(state["model"]))
        self.remembered.append(digest([state["method"], learner.history[-1]["selection"], scores]))
        return super()._synchronized(name, learner, scores)


def learn(config: RunConfig, folder: str | None = None, killed_at: int | None = None, plain: bool = False) -> Learnt:
    """Seed 0, class order 0.

    Args:
        folder: for checkpoints.
        killed_at: the epoch, over all tasks, after which rank 1 is killed.
        plain: with a module of our own in place of the backbone.
    """
    said: list[str] = []
    with joined(timeout=60) as ranks:
        keeper = Watched(config, None if folder is None else Path(folder), ranks, said.append)
        (preset,) = streams_of(config, [(0, 0)])
        learner = make_learner(config.learner, 0)
        if plain:
            torch.manual_seed(0)
            module = Plain(preset.stream[0].graph.num_features)
            learner = Learner(module, selector="random", head="shared", epochs=3, weight_decay=0.1)
        progress = None if killed_at is None or not is_second(ranks) else Suicide(killed_at)
        matrix = keeper.learn((0, 0), learner, preset.stream, progress)
    return Learnt(learner.state_dict(), matrix.to_list(), keeper.parameters, keeper.remembered, said)


def is_second(ranks: Ranks | None) -> bool:
    return ranks is not None and ranks.rank == 1


class Suicide:
    """Kills this process after so many epochs."""

    def __init__(self, epochs: int) -> None:
        self.left = epochs

    def __call__(self, done: int) -> None:
        self.left -= done
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Plain(nn.Module):
    """A module that knows nothing of us, with a layer that is never used."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, 2)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        h = self.linear(x)
        return h + torch.zeros_like(h).index_add(0, adj[1], h[adj[0]])


def disagree(config: RunConfig) -> str:
    """Rank 1 changes a parameter behind the others' back."""

    class Wrong(Checkpointer):
        def _synchronized(self, name: str, learner: Learner, scores: list[float]) -> list[float]:
            if learner.num_tasks == 2 and is_second(self.ranks):
                with torch.no_grad():
                    next(learner.model.parameters())[0] += 1e-6
            return super()._synchronized(name, learner, scores)

    with joined(timeout=60) as ranks:
        (preset,) = streams_of(config, [(0, 0)])
        learner = make_learner(config.learner, 0)
        Wrong(config, None, ranks, print).learn((0, 0), learner, preset.stream, None)
    return "no error"


def propagate(name: str) -> tuple[list[int], Tensor, Tensor]:
    """φ of some nodes of a small graph: which columns this rank propagated, the rows, and the norms of all nodes."""
    graph, own = random_graph(n=30, f=8), []

    class Watching(Inputs):
        def columns(self, first: int, last: int) -> Tensor:
            own.extend(range(first, last))
            return super().columns(first, last)

    with joined(timeout=60) as ranks:
        features = Features(FEATURE_MAPS.create(name), NormalizedAdjacency(graph), Watching(graph))
        rows = features.rows(torch.arange(10, 25), ranks)
    return own, rows, features.norms()


def second_comes_late(seconds: float) -> str:
    """Rank 0 waits for rank 1 no longer than two seconds."""
    with joined(timeout=2) as ranks:
        if is_second(ranks):
            time.sleep(seconds)
        dist.barrier()
    return "no error"
