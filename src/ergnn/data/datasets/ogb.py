"""Node classification graphs of the Open Graph Benchmark (Hu et al., 2020), which the package ``ogb`` reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ergnn.config.lazy import extra
from ergnn.data import splits
from ergnn.data.datasets.pyg import PygDataset
from ergnn.data.graph import Graph, Split

if TYPE_CHECKING:
    from torch_geometric.data import Data, InMemoryDataset


def raw_files(split: str) -> tuple[str, ...]:
    """Return the files of a data set whose published split has this name, relative to ``raw/``."""
    arrays = ("edge", "node-feat", "node-label", *(f"../split/{split}/{part}" for part in ("train", "valid", "test")))
    return (
        *(f"{array}.csv.gz" for array in arrays),
        "../RELEASE_v1.txt",
    )  # without the last, the loader asks questions


class OgbDataset(PygDataset):
    """A data set of OGB, with its published split; edges are undirected.

    By default, its stream is that of the continual-learning benchmark CGLB (Zhang et al., 2022): two classes per task,
    60 % of each class for training, 20 % for validation and 20 % for testing.
    """

    loader = "PygNodePropPredDataset"
    bag_of_words = False
    public_split = True
    default_split = "seeded"

    def open(self, root: Path) -> InMemoryDataset:
        from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
        from torch_geometric.data.storage import GlobalStorage

        allowed = torch.serialization.get_safe_globals()
        classes = [kind for kind in (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage) if kind not in allowed]
        with torch.serialization.safe_globals(classes):  # it reads its own processed file with torch.load
            return self._loader()(self.name, str(root))

    def read(self, root: Path) -> Data:
        from torch_geometric.utils import index_to_mask, to_undirected

        dataset: Any = self.open(root)
        data = dataset[0]
        if dataset.meta_info["add_inverse_edge"] != "True":
            data.edge_index = to_undirected(data.edge_index, num_nodes=data.num_nodes)
        split = dataset.get_idx_split()
        for key, name in (("train_mask", "train"), ("val_mask", "valid"), ("test_mask", "test")):
            data[key] = index_to_mask(split[name], data.num_nodes)
        return data

    def seeded_split(self, graph: Graph, seed: int) -> Split:
        """Draw 60 % of each class for training, 20 % for validation and 20 % for testing."""
        return splits.sixty_twenty_twenty(graph.y, seed=seed)

    @property
    def url(self) -> str:
        return f"http://snap.stanford.edu/ogb/data/nodeproppred/{self.name.removeprefix('ogbn-')}.zip"

    def _loader(self) -> Any:
        return getattr(extra("ogb.nodeproppred", "ogb", f"reading {self.name}"), self.loader)
