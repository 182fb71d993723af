"""A stream whose features are embeddings from random walks on the graph seen so far.

At each task:

1. *Graph.* Walks are sampled on the task's view of the graph, among all nodes of the classes of tasks 0 … i and all
   nodes connected to them in the view. With ``own`` edges these are the classes seen so far, each task separate; with
   ``seen`` edges also the connected nodes without a task; with ``all`` edges every connected node, including those of
   future classes, as for a GNN.
2. *Vectors.* New walks are sampled from old and new nodes, and skip-gram continues from its vectors and context
   vectors. So old vectors change only by further training and are never reset; new nodes get new vectors. Nodes not
   seen yet have zeros. Features and labels are not used (labels only determine which nodes have arrived).
3. *Classifier.* The ordinary :class:`ergnn.learning.learner.Learner` is trained on these vectors, with the training
   nodes of the current task (and those stored by its method). Earlier tasks are scored with the latest vectors, so
   scores drop by
   the classifier's forgetting and by the drift of the vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from ergnn.config.errors import InputError, UnknownNameError
from ergnn.data.graph import Graph
from ergnn.data.stream import Task, TaskStream
from ergnn.lab.walks.skipgram import SkipGram
from ergnn.lab.walks.walkers import Neighbors, random_walks


@dataclass(frozen=True)
class WalkSettings:
    """Settings of the walks and of skip-gram at each task.

    Args:
        walks: walks per node.
        length: nodes per walk.
        p: return parameter of Node2Vec; ``p = q = 1`` is DeepWalk.
        q: in-out parameter of Node2Vec.
        dim, window, negative, epochs, lr: see :class:`SkipGram`.
        normalize: scale vectors to length 1; a raw vector's length reflects how often its node was trained on.
    """

    walks: int = 10
    length: int = 40
    p: float = 1.0
    q: float = 1.0
    dim: int = 128
    window: int = 10
    negative: int = 5
    epochs: int = 1
    lr: float = 0.025
    normalize: bool = True

    def __post_init__(self) -> None:
        for name in ("walks", "length", "dim", "window", "negative", "epochs"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InputError(f"{name} is {value!r}; it must be a whole number, 1 or more")
        for name in ("p", "q", "lr"):
            if not 0.0 < getattr(self, name) < float("inf"):
                raise InputError(f"{name} is {getattr(self, name)}; it must be above 0 and finite")


KINDS = {"deepwalk": WalkSettings(), "node2vec": WalkSettings(p=1.0, q=2.0)}
"""Default settings of each kind.

Both papers use vectors of size 128, windows of 10 and a learning rate of 0.025. DeepWalk uses 80 walks of 40 nodes per
node and a hierarchical softmax; Node2Vec 10 walks of 80 nodes and p, q from a grid search in {0.25, 0.5, 1, 2, 4}. Here
both use 10 walks of 40 nodes, at *every* task, and negative sampling (see :class:`SkipGram`); of seven pairs p, q with
values from that set, the default was best on the validation nodes of Cora and Citeseer together (one seed).
"""


def walk_settings(kind: str, **settings: Any) -> WalkSettings:
    """Return the settings of ``deepwalk`` or ``node2vec``, with overrides."""
    if kind not in KINDS:
        raise UnknownNameError("walk kind", kind, KINDS)
    allowed = {f.name for f in fields(WalkSettings)} - ({"p", "q"} if kind == "deepwalk" else set())
    for name in settings:
        if name not in allowed:
            raise InputError(f"{kind} has no setting {name!r}; its settings: {', '.join(sorted(allowed))}")
    return replace(KINDS[kind], **settings)


def walk_stream(stream: TaskStream, kind: str = "deepwalk", seed: int = 0, **settings: Any) -> TaskStream:
    """Replace the features of a stream by embeddings of walks, ``[n, dim]``, as known at each task.

    Args:
        stream: decides which nodes and edges are visible at each task.
        kind: ``deepwalk`` (uniform walks) or ``node2vec`` (second-order walks).
        seed: seed of walks, initial vectors and noise.
        settings: fields of :class:`WalkSettings` that override the defaults of the kind.
    """
    chosen = walk_settings(kind, **settings)
    generator = torch.Generator().manual_seed(seed)
    skip_gram = SkipGram(chosen.dim, chosen.window, chosen.negative, chosen.epochs, chosen.lr, seed)
    tasks: list[Task] = []
    seen: list[int] = []
    for task in stream:
        graph = task.graph
        graph.require_unweighted(f"an embedding by {kind}")
        seen.extend(task.classes)
        skip_gram.train(_walks(graph.to("cpu"), visible_nodes(graph, seen), chosen, generator))
        vectors = skip_gram.vectors(graph.num_nodes)
        vectors = F.normalize(vectors, dim=1) if chosen.normalize else vectors
        tasks.append(replace(task, graph=replace(graph, x=vectors.to(graph.device))))
    return TaskStream(tasks, name=stream.name, metric=stream.metric)


def visible_nodes(graph: Graph, classes: list[int]) -> Tensor:
    """Return the nodes of these classes and of their (weakly) connected components, in ascending order."""
    n, (source, target) = graph.num_nodes, graph.edge_index.cpu().numpy()
    links = coo_matrix((np.ones(len(source), dtype=np.int8), (source, target)), shape=(n, n))
    component = connected_components(links, directed=False)[1]
    of_class = torch.isin(graph.y.cpu(), torch.tensor(classes)).numpy()
    return torch.from_numpy(np.flatnonzero(np.isin(component, component[of_class])))


def _walks(graph: Graph, nodes: Tensor, settings: WalkSettings, generator: torch.Generator) -> Tensor:
    """Sample ``settings.walks`` walks from every node, in rounds of random order."""
    neighbors = Neighbors(graph.edge_index, graph.num_nodes)
    starts = [nodes[torch.randperm(nodes.numel(), generator=generator)] for _ in range(settings.walks)]
    return random_walks(neighbors, torch.cat(starts), settings.length, generator, settings.p, settings.q)
