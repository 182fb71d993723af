"""Incremental skip-gram with negative sampling on random walks, by gensim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ergnn.config.errors import InputError

BLOCK = 4096
"""Walks converted to Python lists per block."""


class SkipGram:
    """Node vectors with large inner products with the context vectors of nodes that are close on walks.

    Each call of :meth:`train` continues from the current vectors (and context vectors); nodes that occur for the first
    time get new ones. The learning-rate schedule restarts with every call, as for a new corpus.

    Negative sampling replaces the hierarchical softmax of the DeepWalk paper: the softmax tree depends on all counts,
    and when nodes arrive a new tree would change the meaning of old inner vectors.

    There is one worker, and nothing depends on Python's string hashes, so the same seed and walks give bitwise the same
    vectors.

    Args:
        dim: vector size.
        window: nodes within this many steps are each other's context (gensim draws 1 to ``window`` per node).
        negative: noise nodes per pair.
        epochs: passes over the walks.
        lr: initial learning rate; it falls linearly to 0.0001 during each call of :meth:`train`.
        seed: seed of the initial vectors and the noise.
    """

    def __init__(
        self, dim: int = 128, window: int = 10, negative: int = 5, epochs: int = 1, lr: float = 0.025, seed: int = 0
    ) -> None:
        try:
            from gensim.models import Word2Vec
        except ImportError as error:
            raise InputError(
                f"DeepWalk and Node2Vec need gensim ({error}); install it with: pip install 'ergnn[walks]'"
            ) from None
        self.epochs = epochs
        self._started = False
        self._model: Any = Word2Vec(
            vector_size=dim,
            window=window,
            sg=1,
            hs=0,
            negative=negative,
            alpha=lr,
            min_count=1,
            sample=0,
            workers=1,
            seed=seed % 2**32,
        )

    def train(self, walks: Tensor) -> None:
        """Train on walks ``[w, length]``; negative numbers mark the end of a walk."""
        corpus = _Corpus(walks)
        if not corpus.counts:
            return
        self._model.build_vocab_from_freq(corpus.counts, corpus_count=len(corpus.rows), update=self._started)
        self._started = True
        self._model.train(
            corpus,
            total_examples=len(corpus.rows),
            total_words=sum(corpus.counts.values()),
            epochs=self.epochs,
        )

    def vectors(self, num_nodes: int) -> Tensor:
        """Return the vectors ``[num_nodes, dim]``; zeros for nodes that no walk has visited yet."""
        out = torch.zeros(num_nodes, self._model.vector_size)
        if self._started:
            nodes = torch.tensor([int(name) for name in self._model.wv.index_to_key])
            out[nodes] = torch.from_numpy(self._model.wv.vectors.copy())
        return out


class _Corpus:
    """Walks as the sentences that gensim reads in every epoch.

    A node's word is its number as a string: gensim treats unknown integers as positions in its table.
    """

    def __init__(self, walks: Tensor) -> None:
        self.rows = walks.cpu().numpy().astype(np.int32)
        nodes, counts = np.unique(self.rows[self.rows >= 0], return_counts=True)
        self.words = {node: str(node) for node in nodes.tolist()}
        self.counts = dict(zip(self.words.values(), counts.tolist(), strict=True))

    def __iter__(self) -> Iterator[list[str]]:
        for start in range(0, len(self.rows), BLOCK):
            for row in self.rows[start : start + BLOCK].tolist():
                yield [self.words[node] for node in row if node >= 0]
