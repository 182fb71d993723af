"""Coauthor CS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torch_geometric.datasets import Coauthor

from ergnn.data.datasets import DATASETS
from ergnn.data.datasets.pyg import PygDataset

if TYPE_CHECKING:
    from torch_geometric.data import InMemoryDataset


@DATASETS.register("coauthor-cs")
class CoauthorCS(PygDataset):
    """Authors who wrote papers together; keywords of their papers, 15 fields of study."""

    name = "coauthor-cs"
    title = "Coauthor CS"
    nodes, features, classes, edges = 18_333, 6_805, 15, 81_894
    folder = "coauthor/CS"
    raw_files = ("ms_academic_cs.npz",)
    url = Coauthor.url + raw_files[0]

    def open(self, root: Path) -> InMemoryDataset:
        return Coauthor(str(root / "coauthor"), "CS")
