"""Amazon Computers and Amazon Photo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torch_geometric.datasets import Amazon

from ergnn.data.datasets import DATASETS
from ergnn.data.datasets.pyg import PygDataset

if TYPE_CHECKING:
    from torch_geometric.data import InMemoryDataset


@DATASETS.register("amazon-computers", aliases=("computers",))
class AmazonComputers(PygDataset):
    """Products bought together; bag of words of their reviews, 10 categories."""

    name = "amazon-computers"
    title = "Amazon Computers"
    nodes, features, classes, edges = 13_752, 767, 10, 245_861
    folder = "amazon/Computers"
    raw_files = ("amazon_electronics_computers.npz",)
    url = Amazon.url + raw_files[0]

    def open(self, root: Path) -> InMemoryDataset:
        return Amazon(str(root / "amazon"), "Computers")


@DATASETS.register("amazon-photo", aliases=("photo",))
class AmazonPhoto(PygDataset):
    """Products bought together; bag of words of their reviews, 8 categories."""

    name = "amazon-photo"
    title = "Amazon Photo"
    nodes, features, classes, edges = 7_650, 745, 8, 119_081
    folder = "amazon/Photo"
    raw_files = ("amazon_electronics_photo.npz",)
    url = Amazon.url + raw_files[0]

    def open(self, root: Path) -> InMemoryDataset:
        return Amazon(str(root / "amazon"), "Photo")
