"""Cora."""

from __future__ import annotations

from ergnn.data.datasets import DATASETS
from ergnn.data.datasets.planetoid import BundledDataset, planetoid_files


@DATASETS.register("cora")
class Cora(BundledDataset):
    """Machine-learning papers and their citations; bag of words of the papers, 7 topics."""

    name = "cora"
    title = "Cora"
    nodes, features, classes, edges = 2_708, 1_433, 7, 5_278
    class_names = (
        "Theory",
        "Reinforcement_Learning",
        "Genetic_Algorithms",
        "Neural_Networks",
        "Probabilistic_Methods",
        "Case_Based",
        "Rule_Learning",
    )
    planetoid_name = "Cora"
    folder = "planetoid/Cora"
    raw_files = planetoid_files("cora")
    url = "https://github.com/kimiyoung/planetoid/raw/master/data/ind.cora.x"
