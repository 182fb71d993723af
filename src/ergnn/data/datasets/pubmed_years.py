"""PubMed by year of publication."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data.datasets import DATASETS, storage
from ergnn.data.datasets.base import DataUnavailable, PartedDataset, PublicSplitUnavailable
from ergnn.data.datasets.table import PubMed
from ergnn.data.graph import Graph
from ergnn.data.scenarios.assignment import periods

FOLDER, FILE = "pubmed_temporal", "pubmed_temporal.npz"


@DATASETS.register("pubmed-years")
class PubMedYears(PartedDataset):
    """Papers on diabetes by year of publication (1964 to 2010), in periods of similar size with the same 3 classes.

    Args:
        tasks: number of periods.
    """

    name = "pubmed-years"
    title = "PubMed by years"
    nodes, features, classes, edges = PubMed.nodes, PubMed.features, PubMed.classes, PubMed.edges
    classes_per_task = PubMed.classes
    scenarios = ("time",)

    def __init__(self, tasks: int = 5) -> None:
        if not 1 <= tasks <= 20:
            raise InputError(f"{self.name}: tasks is {tasks}; it must be 1 to 20")
        self.tasks = tasks
        self._root: Path | None = None

    @property
    def num_tasks(self) -> int:
        return self.tasks

    def load(self, split: str, root: Path | None = None) -> Graph:
        if split == "public":
            raise PublicSplitUnavailable(
                f"{self.name}: PubMed's public split has 20 training nodes per class, too few for every period"
            )
        self._root = root
        self._years()  # an error if the file is missing
        return replace(PubMed().load("seeded", root), name=self.name, public_split=None)

    def location(self, root: Path | None = None) -> str:
        graph, years = PubMed().location(root), storage.find(FOLDER, (FILE,), root)
        return graph if years is not None else "missing"

    def parts(self) -> Tensor:
        return torch.from_numpy(periods(self._years(), self.tasks))

    def _years(self) -> np.ndarray:
        folder = storage.find(FOLDER, (FILE,), self._root)
        if folder is None:
            raise DataUnavailable(storage.not_found(self.name, FOLDER, (FILE,), self._root))
        with np.load(folder / FILE, allow_pickle=False) as file:
            years: np.ndarray = file["node_time"].astype(np.int64)
        if years.shape != (self.nodes,):
            raise InputError(f"{folder / FILE}: node_time has shape {years.shape}; expected ({self.nodes},)")
        return years
