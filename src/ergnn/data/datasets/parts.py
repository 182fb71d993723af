"""Data sets whose tasks are domains or periods of time: six Twitch graphs, four citation graphs, PubMed by years."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import check_at_least
from ergnn.data.datasets import DATASETS
from ergnn.data.datasets.base import PartedDataset
from ergnn.data.datasets.table import DBLP, Citeseer, CoauthorCS, PubMed
from ergnn.data.graph import UNLABELED, Graph, compact, join_graphs
from ergnn.data.hashing import seeded
from ergnn.data.scenarios import periods

LANGUAGES = {"DE": 9_498, "ENGB": 7_126, "ES": 4_648, "FR": 6_549, "PTBR": 1_912, "RU": 4_385}
"""Nodes of the Twitch graph of each language."""
DOMAINS = (Citeseer, PubMed, CoauthorCS, DBLP)


@DATASETS.register("twitch")
class Twitch(PartedDataset):
    """Streamers of six languages who follow each other; games they play, 2 classes in every language (MUSAE, 2021)."""

    name = "twitch"
    title = "Twitch"
    nodes, features, classes, edges = 34_118, 3_170, 2, 429_113
    class_names = ("everybody", "mature")
    folder = "musae_twitch"
    raw_files = tuple(f"{language}.npz" for language in LANGUAGES)
    num_tasks = len(LANGUAGES)
    part_sizes = tuple(LANGUAGES.values())

    def read(self, root: Path | None) -> Graph:
        from torch_geometric.io import read_npz

        folder = self.find_or_raise(root)
        graphs = [Graph.from_pyg(read_npz(str(folder / file))) for file in self.raw_files]
        graphs = [replace(graph, x=compact(graph.x)) for graph in graphs]
        return replace(join_graphs(graphs), name=self.name, class_names=self.class_names).validate()


@DATASETS.register("citation-domains")
class CitationDomains(PartedDataset):
    """Citeseer, PubMed, Coauthor CS and DBLP, one per task, with features of a common width; 28 classes.

    The features of each graph, divided by their row sum, are projected on its first right singular vectors (computed
    by a randomized method with a fixed seed), with zeros if there are fewer. Shuffled orders are rotations of the order
    above.
    """

    name = "citation-domains"
    title = "Citation domains"
    nodes, features = sum(domain.nodes for domain in DOMAINS), 512
    classes, edges = sum(domain.classes for domain in DOMAINS), sum(domain.edges for domain in DOMAINS)
    class_names = tuple(f"{domain.name} {c}" for domain in DOMAINS for c in range(domain.classes))
    bag_of_words = False
    classes_per_task = 7
    num_tasks = len(DOMAINS)
    part_sizes = tuple(domain.nodes for domain in DOMAINS)
    rotates = True

    def read(self, root: Path | None) -> Graph:
        graphs, first = list[Graph](), 0  # the first class of a domain
        for domain in (kind() for kind in DOMAINS):
            graph = domain.load("seeded", root)
            y = domain.labels(graph)
            y = torch.where(y == UNLABELED, y, y + first)
            first += domain.classes
            x = reduced(graph.row_normalized().x, self.features)
            graphs.append(replace(graph, x=x, y=y, name=self.name, class_names=self.class_names))
        return join_graphs(graphs).validate()

    def location(self, root: Path | None = None) -> str:
        locations = [domain().location(root) for domain in DOMAINS]
        return next((location for location in locations if "missing" in location), locations[-1])


def reduced(x: Tensor, width: int) -> Tensor:
    """Return ``XV`` with the first ``width`` right singular vectors V of X, and zeros if there are fewer."""
    with seeded(0):
        v = torch.svd_lowrank(x, q=min(width, *x.shape), niter=2)[2]
    return F.pad(x @ v, (0, width - v.size(1)))


@DATASETS.register("pubmed-years")
class PubMedYears(PartedDataset):
    """Papers on diabetes by year of publication (1964 to 2010), in periods of similar size with the same 3 classes.

    Args:
        tasks: number of periods.
    """

    name = "pubmed-years"
    title = "PubMed by years"
    nodes, features, classes, edges = PubMed.nodes, PubMed.features, PubMed.classes, PubMed.edges
    classes_per_task = PubMed.classes
    scenarios = ("time",)
    folder, raw_files = "pubmed_temporal", ("pubmed_temporal.npz",)

    def __init__(self, tasks: int = 5) -> None:
        check_at_least(1, tasks=tasks)
        self.num_tasks = tasks

    def read(self, root: Path | None) -> Graph:
        (file,) = self.raw_files
        with np.load(self.find_or_raise(root) / file, allow_pickle=False) as arrays:
            self._years = arrays["node_time"].astype(np.int64)
        return replace(PubMed().load("seeded", root), name=self.name, public_split=None)

    def location(self, root: Path | None = None) -> str:
        return "missing" if self.find(root) is None else PubMed().location(root)

    def parts(self) -> Tensor:
        return torch.from_numpy(periods(self._years, self.num_tasks))
