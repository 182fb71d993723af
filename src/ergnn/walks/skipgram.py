"""Skip-gram with negative sampling on walks, by gensim, that goes on when new nodes arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ergnn.errors import InputError

BLOCK = 4096
"""Walks that are Python lists at a time."""


class SkipGram:
    """Vectors for nodes, so that nodes near each other on walks have a large inner product with each other's context.

    Each call of :meth:`train` goes on from the vectors (and context vectors) that are there; nodes that walks name for
    the first time get new ones. The learning rate starts afresh with every call, as it does for a new corpus.

    Negative sampling, not the hierarchical softmax of the DeepWalk paper: the latter's tree depends on all counts, and
    when nodes arrive a new tree would give old inner vectors a new meaning.

    One worker, and nothing depends on how Python hashes names: the same seed and walks give the same bits.

    Args:
        dim: size of a vector.
        window: nodes within this many steps are each other's context (gensim draws 1 to ``window`` for each node).
        negative: noise nodes for each pair.
        epochs: passes over the walks.
        lr: first learning rate; it falls linearly to 0.0001 during each call of :meth:`train`.
        seed: of the first vectors and the noise.
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
        """Learn from walks ``[w, length]``, where numbers below 0 mark the end of a walk."""
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
        """``[num_nodes, dim]``; zeros where no walk has been yet."""
        out = torch.zeros(num_nodes, self._model.vector_size)
        if self._started:
            nodes = torch.tensor([int(name) for name in self._model.wv.index_to_key])
            out[nodes] = torch.from_numpy(self._model.wv.vectors.copy())
        return out


class _Corpus:
    """Walks as the sentences that gensim reads, pass after pass.

    A node's word is its number as a string: gensim takes a number that it does not know for a place in its table.
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
