"""The data sets that PyG and OGB read: one row each, by collection."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ergnn.data.datasets import DATASETS
from ergnn.data.datasets.pyg import (
    BundledDataset,
    CoauthorDataset,
    OgbDataset,
    PlanetoidDataset,
    PygDataset,
    SeveralSplitsDataset,
    ogb_files,
)

if TYPE_CHECKING:
    from torch_geometric.data import InMemoryDataset


class Collection(NamedTuple):
    """Data sets that one loader reads, see :class:`PygDataset`: in ``folder`` and ``files``, ``{}`` is the name of a
    data set in the collection (in ``files``, in lower case)."""

    loader: str
    folder: str
    files: tuple[str, ...]
    base: type[PygDataset] = PygDataset

    def add(
        self,
        name: str,
        title: str,
        key: str,
        counts: tuple[int, int, int, int],
        help: str,
        aliases: tuple[str, ...] = (),
        **more: Any,
    ) -> type[PygDataset]:
        """Register a data set: its names, the name in the collection (``key``), the counts of nodes, features, classes
        and undirected edges, one line for lists, and other attributes of its class."""
        facts = {
            "__doc__": help,
            "name": name,
            "title": title,
            "loader": self.loader,
            "folder": self.folder.format(key),
            "raw_files": tuple(file.format(key.lower()) for file in self.files),
            **dict(zip(("nodes", "features", "classes", "edges"), counts, strict=True)),
        }
        kind = type("".join(filter(str.isalnum, title)), (self.base,), facts | more)
        DATASETS.register(name, aliases=aliases, help=help)(kind)
        return kind


class HeterophilousDataset(SeveralSplitsDataset):
    """A graph whose edges join unlike nodes, with ten splits (Platonov et al., 2023)."""

    num_folds = 10
    bag_of_words = False


class FilteredDataset(HeterophilousDataset):
    """A graph of the same collection that PyG does not list."""

    def open(self, root: Path) -> InMemoryDataset:
        from torch_geometric.data import InMemoryDataset

        folder, loader = root / self.folder, self._loader()
        dataset: InMemoryDataset = loader.__new__(loader)  # whose constructor checks the name
        dataset.name = folder.name
        InMemoryDataset.__init__(dataset, str(folder.parent))
        dataset.load(dataset.processed_paths[0])
        return dataset


CORA = "Theory Reinforcement_Learning Genetic_Algorithms Neural_Networks Probabilistic_Methods Case_Based Rule_Learning"
CITESEER = "AI ML IR DB Agents HCI"
PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")

# fmt: off
planetoid = Collection("Planetoid", "planetoid/{}", tuple(f"ind.{{}}.{part}" for part in PARTS), PlanetoidDataset)
bundled = planetoid._replace(base=BundledDataset)
bundled.add("cora", "Cora", "Cora", (2_708, 1_433, 7, 5_278),
            "Machine-learning papers and their citations; bag of words of the papers, 7 topics",
            class_names=tuple(CORA.split()))
Citeseer = bundled.add("citeseer", "Citeseer", "CiteSeer", (3_327, 3_703, 6, 4_552),
                       "Computer-science papers and their citations; bag of words of the papers, 6 topics",
                       class_names=tuple(CITESEER.split()))
PubMed = planetoid.add("pubmed", "PubMed", "PubMed", (19_717, 500, 3, 44_324),
                       "Papers on diabetes and their citations; TF-IDF of words, 3 types of diabetes")

amazon = Collection("Amazon", "amazon/{}", ("amazon_electronics_{}.npz",))
amazon.add("amazon-computers", "Amazon Computers", "Computers", (13_752, 767, 10, 245_861),
           "Products bought together; bag of words of their reviews, 10 categories", ("computers",),
           tuned_file="amazon-computer_split.npz")
amazon.add("amazon-photo", "Amazon Photo", "Photo", (7_650, 745, 8, 119_081),
           "Products bought together; bag of words of their reviews, 8 categories", ("photo",),
           tuned_file="amazon-photo_split.npz")

coauthor = Collection("Coauthor", "coauthor/{}", ("ms_academic_{}.npz",), CoauthorDataset)
CoauthorCS = coauthor.add("coauthor-cs", "Coauthor CS", "CS", (18_333, 6_805, 15, 81_894),
                          "Authors who wrote papers together; keywords of their papers, 15 fields of study",
                          tuned_file="coauthor-cs_split.npz")
coauthor.add("coauthor-physics", "Coauthor Physics", "Physics", (34_493, 8_415, 5, 247_962),
             "Authors who wrote papers together; keywords of their papers, 5 fields of study")

citation = Collection("CitationFull", "citation_full/{}", ("{}.npz",))
citation.add("corafull", "CoraFull", "cora", (19_793, 8_710, 70, 63_421),
             "Computer-science papers and their citations; bag of words of the papers, 70 topics", ("cora-full",))
citation.add("cora-ml", "Cora-ML", "cora_ml", (2_995, 2_879, 7, 8_158),
             "The machine-learning part of the full Cora; bag of words of the papers, 7 topics")
citation.add("citeseer-full", "Citeseer (full)", "citeseer", (4_230, 602, 6, 5_337),
             "Citeseer with all citing papers; bag of words of the papers, 6 topics")
DBLP = citation.add("dblp", "DBLP", "dblp", (17_716, 1_639, 4, 52_867),
                    "Computer-science papers and their citations; bag of words of the titles, 4 areas")

wikics = Collection("WikiCS", "{}", ("data.json",), SeveralSplitsDataset)
wikics.add("wikics", "WikiCS", "wikics", (11_701, 300, 10, 215_603),
           "Wikipedia articles on computer science and their links; word vectors, 10 fields, 20 public splits",
           ("wiki-cs",), num_folds=20, bag_of_words=False)

unlike = Collection("HeterophilousGraphDataset", "heterophilous/{}", ("{}.npz",), HeterophilousDataset)
unlike.add("roman-empire", "Roman-empire", "roman_empire", (22_662, 300, 18, 32_927),
           "Words of an article, joined by grammar; word vectors, 18 syntactic roles")
unlike.add("amazon-ratings", "Amazon-ratings", "amazon_ratings", (24_492, 300, 5, 93_050),
           "Products bought together; word vectors of their descriptions, 5 ratings")
unlike.add("minesweeper", "Minesweeper", "minesweeper", (10_000, 7, 2, 39_402),
           "Cells of a grid; number of mines around, whether there is a mine")
unlike.add("tolokers", "Tolokers", "tolokers", (11_758, 10, 2, 519_000),
           "Workers on the same tasks; statistics of their work, whether they were banned")
unlike.add("questions", "Questions", "questions", (48_921, 301, 2, 153_540),
           "Users who answered each other; word vectors of their profiles, whether they stayed")
filtered = unlike._replace(base=FilteredDataset)
filtered.add("chameleon", "Chameleon (filtered)", "chameleon_filtered", (890, 2_325, 5, 8_854),
             "Wikipedia articles and their links, without duplicates; nouns, 5 levels of traffic")
filtered.add("squirrel", "Squirrel (filtered)", "squirrel_filtered", (2_223, 2_089, 5, 46_998),
             "Wikipedia articles and their links, without duplicates; nouns, 5 levels of traffic")

reddit = Collection("Reddit", "{}", ("reddit_data.npz", "reddit_graph.npz"))
reddit.add("reddit", "Reddit", "reddit", (232_965, 602, 41, 57_307_946),
           "Posts that share commenters; word vectors, 41 communities (Hamilton et al., 2017)",
           bag_of_words=False, public_split=True, classes_per_task=5, metric="micro-f1", csr=True,
           large_download="reddit.zip, over 1 GB")

arxiv = Collection("PygNodePropPredDataset", "{}", ogb_files("time"), OgbDataset)
arxiv.add("ogbn-arxiv", "ogbn-arxiv", "ogbn_arxiv", (169_343, 128, 40, 1_157_799),
          "Computer-science papers and their citations; word vectors, 40 areas (OGB)", ("arxiv",))
products = arxiv._replace(files=ogb_files("sales_ranking"))
products.add("ogbn-products", "ogbn-products", "ogbn_products", (2_449_029, 100, 47, 61_859_012),
             "Products bought together; word vectors of their descriptions, 47 categories (OGB)", ("products",),
             csr=True, large_download="products.zip, 1.4 GB")
