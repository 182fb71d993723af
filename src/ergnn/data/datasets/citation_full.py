"""The citation graphs of Bojchevski and Günnemann (2018): DBLP, Cora-ML and the full Citeseer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from torch_geometric.datasets import CitationFull

from ergnn.data.datasets import DATASETS
from ergnn.data.datasets.pyg import PygDataset

if TYPE_CHECKING:
    from torch_geometric.data import InMemoryDataset


class CitationFullDataset(PygDataset):
    citation_name: ClassVar[str]

    def open(self, root: Path) -> InMemoryDataset:
        return CitationFull(str(root / "citation_full"), self.citation_name)


@DATASETS.register("dblp")
class DBLP(CitationFullDataset):
    """Computer-science papers and their citations; bag of words of the titles, 4 areas."""

    name = "dblp"
    title = "DBLP"
    nodes, features, classes, edges = 17_716, 1_639, 4, 52_867
    citation_name = "DBLP"
    folder = "citation_full/dblp"
    raw_files = ("dblp.npz",)
    url = CitationFull.url.format("dblp")


@DATASETS.register("cora-ml")
class CoraML(CitationFullDataset):
    """The machine-learning part of the full Cora; bag of words of the papers, 7 topics."""

    name = "cora-ml"
    title = "Cora-ML"
    nodes, features, classes, edges = 2_995, 2_879, 7, 8_158
    citation_name = "Cora_ML"
    folder = "citation_full/cora_ml"
    raw_files = ("cora_ml.npz",)
    url = CitationFull.url.format("cora_ml")


@DATASETS.register("citeseer-full")
class CiteseerFull(CitationFullDataset):
    """Citeseer with all citing papers; bag of words of the papers, 6 topics."""

    name = "citeseer-full"
    title = "Citeseer (full)"
    nodes, features, classes, edges = 4_230, 602, 6, 5_337
    citation_name = "CiteSeer"
    folder = "citation_full/citeseer"
    raw_files = ("citeseer.npz",)
    url = CitationFull.url.format("citeseer")
