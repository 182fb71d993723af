"""Six Twitch graphs as a stream of domains."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.io import read_npz

from ergnn.data.datasets import DATASETS, storage
from ergnn.data.datasets.base import DataUnavailable, PartedDataset, PublicSplitUnavailable, join_graphs, with_compact_x
from ergnn.data.graph import Graph

SIZES = {"DE": 9_498, "ENGB": 7_126, "ES": 4_648, "FR": 6_549, "PTBR": 1_912, "RU": 4_385}
"""Nodes of each language."""
FILES = tuple(f"{language}.npz" for language in SIZES)


@DATASETS.register("twitch")
class Twitch(PartedDataset):
    """Streamers of six languages who follow each other; games they play, 2 classes in every language (MUSAE, 2021)."""

    name = "twitch"
    title = "Twitch"
    nodes, features, classes, edges = 34_118, 3_170, 2, 429_113
    class_names = ("everybody", "mature")
    folder = "musae_twitch"

    @property
    def num_tasks(self) -> int:
        return len(SIZES)

    def load(self, split: str, root: Path | None = None) -> Graph:
        if split == "public":
            raise PublicSplitUnavailable(f"no split was published with {self.title}")
        folder = storage.find(self.folder, FILES, root)
        if folder is None:
            raise DataUnavailable(storage.not_found(self.name, self.folder, FILES, root))
        return _load(folder)

    def location(self, root: Path | None = None) -> str:
        return storage.location(storage.find(self.folder, FILES, root), root)

    def parts(self) -> Tensor:
        return torch.repeat_interleave(torch.arange(len(SIZES)), torch.tensor(list(SIZES.values())))


@lru_cache(maxsize=1)  # every seed loads it again
def _load(folder: Path) -> Graph:
    graphs = [with_compact_x(Graph.from_pyg(read_npz(str(folder / file)))) for file in FILES]
    return join_graphs(graphs, Twitch.name, Twitch.class_names).validate()
