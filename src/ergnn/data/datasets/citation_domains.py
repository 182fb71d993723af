"""Citeseer, PubMed, Coauthor CS and DBLP as a stream of domains."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data.datasets import DATASETS
from ergnn.data.datasets.base import Dataset, PartedDataset, PublicSplitUnavailable, join_graphs
from ergnn.data.datasets.table import DBLP, Citeseer, CoauthorCS, PubMed
from ergnn.data.graph import UNLABELED, Graph

DOMAINS = (Citeseer, PubMed, CoauthorCS, DBLP)


@DATASETS.register("citation-domains")
class CitationDomains(PartedDataset):
    """Citeseer, PubMed, Coauthor CS and DBLP, one per task, with features of a common width; 28 classes.

    The features of each graph, divided by their row sum, are projected on its first right singular vectors (computed
    by a randomized method with a fixed seed), with zeros if there are fewer than ``width``. Shuffled orders are
    rotations of the order above.

    Args:
        width: number of features.
    """

    name = "citation-domains"
    title = "Citation domains"
    nodes, features = sum(domain.nodes for domain in DOMAINS), 512
    classes, edges = sum(domain.classes for domain in DOMAINS), sum(domain.edges for domain in DOMAINS)
    class_names = tuple(f"{domain.name} {c}" for domain in DOMAINS for c in range(domain.classes))
    bag_of_words = False
    classes_per_task = 7

    def __init__(self, width: int = 512) -> None:
        if not 1 <= width <= max(domain.features for domain in DOMAINS):
            raise InputError(f"{self.name}: width is {width}; it must be 1 to {CoauthorCS.features:,}")
        self.features = width  # type: ignore[misc]

    @property
    def num_tasks(self) -> int:
        return len(DOMAINS)

    def load(self, split: str, root: Path | None = None) -> Graph:
        if split == "public":
            raise PublicSplitUnavailable(f"no split was published for all graphs of {self.name}")
        return _load(root, self.features)

    def location(self, root: Path | None = None) -> str:
        locations = [domain().location(root) for domain in DOMAINS]
        return next((location for location in locations if "missing" in location), locations[-1])

    def parts(self) -> Tensor:
        return torch.repeat_interleave(torch.arange(4), torch.tensor([domain.nodes for domain in DOMAINS]))

    def shuffled_order(self, seed: int) -> list[int]:
        """Return the natural order, rotated by ``seed`` places."""
        return [(seed + i) % len(DOMAINS) for i in range(len(DOMAINS))]


@lru_cache(maxsize=1)  # every seed loads it again
def _load(root: Path | None, width: int) -> Graph:
    graphs = [_reduced_graph(domain(), root, width) for domain in DOMAINS]
    return join_graphs(graphs, CitationDomains.name, CitationDomains.class_names, distinct=True).validate()


def _reduced_graph(domain: Dataset, root: Path | None, width: int) -> Graph:
    graph = domain.load("seeded", root)
    y = torch.full_like(graph.y, UNLABELED)
    y[domain.labeled(graph)] = graph.y[domain.labeled(graph)]
    return replace(graph, x=reduced(graph.row_normalized().x, width), y=y)


def reduced(x: Tensor, width: int) -> Tensor:
    """Return ``XV`` with the first ``width`` right singular vectors V of X, and zeros if there are fewer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        v = torch.svd_lowrank(x, q=min(width, *x.shape), niter=2)[2]
    return F.pad(x @ v, (0, width - v.size(1)))
