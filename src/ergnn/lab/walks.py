"""DeepWalk and Node2Vec along a stream of tasks: features are embeddings from random walks on the graph seen so far.

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
   scores drop by the classifier's forgetting and by the drift of the vectors.

A walk goes from the source to the target of an edge and ends early at a node without outgoing edges; the rest is filled
with :data:`ENDED`. All walks are sampled in parallel, step by step.
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

from ergnn.config.errors import InputError, check_at_least, check_between, check_choice
from ergnn.config.imports import extra
from ergnn.config.registry import field_options
from ergnn.data.graph import Graph
from ergnn.data.stream import Task, TaskStream

ENDED = -1
"""Placeholder for nodes after the end of a walk."""


@dataclass(frozen=True)
class WalkSettings:
    """Settings of the walks and of skip-gram at each task.

    Args:
        walks: walks per node.
        length: nodes per walk.
        p: return parameter of Node2Vec; ``p = q = 1`` is DeepWalk.
        q: in-out parameter of Node2Vec.
        dim: vector size.
        window: nodes within this many steps are each other's context (gensim draws 1 to ``window`` per node).
        negative: noise nodes per pair.
        epochs: passes over the walks.
        lr: initial learning rate; it falls linearly to 0.0001 at each task.
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
        for option in field_options(WalkSettings):
            option.check(getattr(self, option.name))
        counts = ("walks", "length", "dim", "window", "negative", "epochs")
        check_at_least(1, **{name: getattr(self, name) for name in counts})
        check_between(0, float("inf"), p=self.p, q=self.q, lr=self.lr)


KINDS = {"deepwalk": WalkSettings(), "node2vec": WalkSettings(p=1.0, q=2.0)}
"""Default settings of each kind.

Both papers use vectors of size 128, windows of 10 and a learning rate of 0.025. DeepWalk uses 80 walks of 40 nodes per
node and a hierarchical softmax; Node2Vec 10 walks of 80 nodes and p, q from a grid search in {0.25, 0.5, 1, 2, 4}. Here
both use 10 walks of 40 nodes, at *every* task, and negative sampling (see :class:`SkipGram`); of seven pairs p, q with
values from that set, the default was best on the validation nodes of Cora and Citeseer together (one seed).
"""


def walk_settings(kind: str, **settings: Any) -> WalkSettings:
    """Return the settings of ``deepwalk`` or ``node2vec``, with overrides."""
    check_choice("walk kind", kind, KINDS)
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
    skip_gram = SkipGram(chosen, seed)
    tasks: list[Task] = []
    seen: list[int] = []
    for task in stream:
        graph = task.graph
        graph.require_unweighted(f"an embedding by {kind}")
        seen.extend(task.classes)
        nodes = visible_nodes(graph, seen)
        starts = torch.cat([nodes[torch.randperm(nodes.numel(), generator=generator)] for _ in range(chosen.walks)])
        neighbors = Neighbors(graph.edge_index.cpu(), graph.num_nodes)
        skip_gram.train(random_walks(neighbors, starts, chosen.length, generator, chosen.p, chosen.q))
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


class Neighbors:
    """The targets of every node's edges in CSR form; duplicate edges count once."""

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self._keys = torch.unique(edge_index[0] * num_nodes + edge_index[1])  # sorted by source, then target
        self.targets = self._keys % num_nodes
        self.degree = torch.bincount(self._keys // num_nodes, minlength=num_nodes)
        self.start = self.degree.cumsum(0) - self.degree

    def pick(self, nodes: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one neighbor of each node uniformly; every node must have one."""
        degree = self.degree[nodes]
        at = (_uniform(nodes, generator) * degree).long()
        return self.targets[self.start[nodes] + torch.minimum(at, degree - 1)]  # the product may be rounded up

    def linked(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Return whether each pair is connected by an edge."""
        key = sources * self.num_nodes + targets
        at = torch.searchsorted(self._keys, key).clamp(max=self._keys.numel() - 1)
        return self._keys[at] == key


def random_walks(
    neighbors: Neighbors,
    starts: Tensor,
    length: int,
    generator: torch.Generator,
    p: float = 1.0,
    q: float = 1.0,
) -> Tensor:
    """Sample one walk of up to ``length`` nodes from each start, ``[starts, length]``.

    From ``v``, having come from ``t``, the next node ``x`` is drawn among v's neighbors with probability
    proportional to (Node2Vec, Eq. 2)::

        1/p  if x = t
        1    if t → x is an edge
        1/q  otherwise

    The first step is uniform. With ``p = q = 1`` all steps are (DeepWalk).

    The biased step uses rejection sampling: it draws a uniform neighbor and accepts it with probability
    ``weight / max(1, 1/p, 1/q)``. This is exact, needs no table per edge, and is as fast at hubs as elsewhere.
    """
    walks = torch.full((starts.numel(), length), ENDED, dtype=torch.long, device=starts.device)
    walks[:, 0] = starts
    for step in range(1, length):
        here = walks[:, step - 1]
        going = ((here != ENDED) & (neighbors.degree[here] > 0)).nonzero().flatten()
        if not going.numel():
            break
        if step == 1 or p == q == 1.0:
            walks[going, step] = neighbors.pick(here[going], generator)
        else:
            walks[going, step] = _biased_step(neighbors, walks[going, step - 2], here[going], p, q, generator)
    return walks


def _biased_step(
    neighbors: Neighbors, before: Tensor, here: Tensor, p: float, q: float, generator: torch.Generator
) -> Tensor:
    largest = max(1.0, 1.0 / p, 1.0 / q)
    chosen = torch.empty_like(here)
    left = torch.arange(here.numel(), device=here.device)
    while left.numel():
        x, t = neighbors.pick(here[left], generator), before[left]
        near = torch.where(neighbors.linked(t, x), 1.0, 1.0 / q)
        weight = torch.where(x == t, 1.0 / p, near)
        accepted = _uniform(x, generator) * largest < weight
        chosen[left[accepted]] = x[accepted]
        left = left[~accepted]
    return chosen


def _uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(like.shape, generator=generator, dtype=torch.float64, device=like.device)


class SkipGram:
    """Node vectors with large inner products with the context vectors of nodes that are close on walks.

    Each call of :meth:`train` continues from the current vectors (and context vectors); nodes that occur for the first
    time get new ones. The learning-rate schedule restarts with every call, as for a new corpus.

    Negative sampling replaces the hierarchical softmax of the DeepWalk paper: the softmax tree depends on all counts,
    and when nodes arrive a new tree would change the meaning of old inner vectors.

    There is one worker, and nothing depends on Python's string hashes, so the same seed and walks give bitwise the same
    vectors.
    """

    def __init__(self, settings: WalkSettings = WalkSettings(), seed: int = 0) -> None:
        models = extra("gensim.models", "walks", "an embedding of random walks")
        self._model: Any = models.Word2Vec(
            vector_size=settings.dim,
            window=settings.window,
            sg=1,
            hs=0,
            negative=settings.negative,
            epochs=settings.epochs,
            alpha=settings.lr,
            min_count=1,
            sample=0,
            workers=1,
            seed=seed % 2**32,
        )

    def train(self, walks: Tensor) -> None:
        """Train on walks ``[w, length]``; negative numbers mark the end of a walk."""
        counts = walks[walks >= 0].bincount()
        # a node's word is its number as text: gensim treats unknown integers as positions in its table
        words = {node: str(node) for node in counts.nonzero().flatten().tolist()}
        if not words:
            return
        frequencies = {word: int(counts[node]) for node, word in words.items()}
        self._model.build_vocab_from_freq(frequencies, corpus_count=len(walks), update=len(self._model.wv) > 0)
        sentences = [[words[node] for node in walk.tolist() if node >= 0] for walk in walks.numpy()]
        total_words, epochs = int(counts.sum()), self._model.epochs
        self._model.train(sentences, total_examples=len(walks), total_words=total_words, epochs=epochs)

    def vectors(self, num_nodes: int) -> Tensor:
        """Return the vectors ``[num_nodes, dim]``; zeros for nodes that no walk has visited yet."""
        out = torch.zeros(num_nodes, self._model.vector_size)
        nodes = torch.tensor([int(name) for name in self._model.wv.index_to_key], dtype=torch.long)
        out[nodes] = torch.from_numpy(self._model.wv.vectors.copy())
        return out
