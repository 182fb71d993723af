"""PubMed."""

from __future__ import annotations

from ergnn.data.datasets import DATASETS
from ergnn.data.datasets.planetoid import PlanetoidDataset, planetoid_files


@DATASETS.register("pubmed")
class PubMed(PlanetoidDataset):
    """Papers on diabetes and their citations; TF-IDF of words, 3 types of diabetes."""

    name = "pubmed"
    title = "PubMed"
    nodes, features, classes, edges = 19_717, 500, 3, 44_324
    planetoid_name = "PubMed"
    folder = "planetoid/PubMed"
    raw_files = planetoid_files("pubmed")
    url = "https://github.com/kimiyoung/planetoid/raw/master/data/ind.pubmed.x"
