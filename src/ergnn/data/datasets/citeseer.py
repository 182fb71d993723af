"""Citeseer."""

from __future__ import annotations

from torch import Tensor

from ergnn.data.datasets import DATASETS
from ergnn.data.datasets.planetoid import BundledDataset, planetoid_files
from ergnn.data.graph import Graph


@DATASETS.register("citeseer")
class Citeseer(BundledDataset):
    """Computer-science papers and their citations; bag of words of the papers, 6 topics."""

    name = "citeseer"
    title = "Citeseer"
    nodes, features, classes, edges = 3_327, 3_703, 6, 4_552
    class_names = ("AI", "ML", "IR", "DB", "Agents", "HCI")
    planetoid_name = "CiteSeer"
    folder = "planetoid/CiteSeer"
    raw_files = planetoid_files("citeseer")
    url = "https://github.com/kimiyoung/planetoid/raw/master/data/ind.citeseer.x"

    def labeled(self, graph: Graph) -> Tensor:
        """Return all but the 15 nodes missing from Planetoid's files, which have no words, no edges and label 0."""
        words = graph.x.crow_indices().diff() if graph.is_sparse else (graph.x != 0).sum(dim=1)
        return (words > 0).nonzero().flatten()
