"""Planetoid's files and split, and the bundled graphs."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import to_undirected

from ergnn.data import splits
from ergnn.data.datasets.base import DataUnavailable, PublicSplitUnavailable, with_compact_x
from ergnn.data.datasets.pyg import PygDataset
from ergnn.data.graph import Graph, Split


class PlanetoidDataset(PygDataset):
    """Planetoid's raw files (Yang et al., 2016) with their public split."""

    loader = "Planetoid"
    public_split = True

    def seeded_split(self, graph: Graph, seed: int) -> Split:
        """Draw a split of Planetoid's sizes: 20 training nodes per class, 500 validation and 1,000 test nodes."""
        return splits.planetoid_like(graph.y, seed=seed, nodes=self.labeled(graph))

    def labeled(self, graph: Graph) -> Tensor:
        """Return the nodes with words: 15 of Citeseer are missing from Planetoid's files and have label 0."""
        words = graph.x.crow_indices().diff() if graph.is_sparse else (graph.x != 0).sum(dim=1)
        return (words > 0).nonzero().flatten()


class BundledDataset(PlanetoidDataset):
    """A Planetoid graph that is also bundled with the package, without the public split."""

    def load(self, split: str, root: Path | None = None) -> Graph:
        if split == "seeded":
            return self.bundled()
        try:
            return super().load(split, root)
        except DataUnavailable as error:
            raise PublicSplitUnavailable(str(error)) from error

    def location(self, root: Path | None = None) -> str:
        return f"bundled; public split {super().location(root)}"

    def bundled(self) -> Graph:
        """Load the bundled graph. Its node order is that of its source, not Planetoid's."""
        path = files("ergnn.data.datasets") / "bundled" / f"{self.name}.npz"
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            y, words, words_per_node, edges = (
                torch.from_numpy(arrays[key].astype(np.int64)) for key in ("labels", "words", "words_per_node", "edges")
            )
        n = y.numel()
        x = torch.zeros(n, self.features)
        x[torch.repeat_interleave(torch.arange(n), words_per_node), words] = 1
        graph = Graph(x, to_undirected(edges, num_nodes=n), y, name=self.name, class_names=self.class_names)
        return with_compact_x(graph).validate()
