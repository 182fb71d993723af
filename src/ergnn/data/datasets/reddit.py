"""Reddit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torch_geometric.datasets import Reddit as PygReddit

from ergnn.data.datasets import DATASETS
from ergnn.data.datasets.pyg import PygDataset

if TYPE_CHECKING:
    from torch_geometric.data import InMemoryDataset


@DATASETS.register("reddit")
class Reddit(PygDataset):
    """Posts that share commenters; word vectors, 41 communities (Hamilton et al., 2017)."""

    name = "reddit"
    title = "Reddit"
    nodes, features, classes, edges = 232_965, 602, 41, 57_307_946
    bag_of_words = False
    public_split = True
    classes_per_task = 5
    metric = "micro-f1"
    folder = "reddit"
    raw_files = ("reddit_data.npz", "reddit_graph.npz")
    url = PygReddit.url
    large_download = "reddit.zip, over 1 GB"

    def open(self, root: Path) -> InMemoryDataset:
        return PygReddit(str(root / "reddit"))
