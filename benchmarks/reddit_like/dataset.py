"""The data set ``reddit-like``."""

from __future__ import annotations

from pathlib import Path

from benchmarks.reddit_like.files import MANIFEST, read_files, write_files
from benchmarks.reddit_like.spec import CLASSES, SPLIT, RedditLike
from ergnn.data import splits
from ergnn.data.datasets import DATASETS, base
from ergnn.data.datasets.base import Dataset
from ergnn.data.graph import Graph, Split


@DATASETS.register("reddit-like")
class RedditLikeDataset(Dataset):
    """A synthetic graph of any size with Reddit's degrees, homophily and classes; not a substitute for Reddit.

    Its files are generated once, in the cache folder, and reused from there or from the data folder. Features stay in
    their file: only the rows that are used are read.

    Args:
        nodes, edges, features, homophily, signal, seed: see :class:`RedditLike`; Reddit has ``nodes=232965``.
        device: device that generates missing files; the bits are the same on every device.
    """

    name = "reddit-like"
    title = "Reddit-like (synthetic)"
    nodes, features, classes, edges = 5_000, 602, CLASSES, 250_000
    bag_of_words = False
    public_split = True
    classes_per_task = 5
    metric = "micro-f1"

    def __init__(
        self,
        nodes: int = 5_000,
        edges: int | None = None,
        features: int = 602,
        homophily: float = 0.85,
        signal: float = 0.125,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.spec = RedditLike(nodes, edges, features, homophily, signal, seed)
        self.device = device
        self.nodes, self.features, self.edges = nodes, features, self.spec.links  # type: ignore[misc]

    def load(self, split: str, root: Path | None = None) -> Graph:
        folder = self._found(root) or write_files(self.spec, self._folder(base.cache_root()), self.device)
        files = read_files(folder)
        public = Split(*((files.split == part).nonzero().flatten() for part in range(3)))
        return Graph.from_csr(
            files.x,
            files.rowptr,
            files.col,
            files.y,
            undirected=True,
            name=self.name,
            public_split=public if split == "public" else None,
        )

    def location(self, root: Path | None = None) -> str:
        return "generated on first use" if self._found(root) is None else "in the cache or the data folder"

    def seeded_split(self, graph: Graph, seed: int) -> Split:
        """Draw a split with the proportions of the public one, per class."""
        train, val, test = (part / sum(SPLIT) for part in SPLIT)
        return splits.fractions(graph.y, train=train, val=val, test=test, seed=seed)

    def _found(self, root: Path | None) -> Path | None:
        bases = (base.data_root(root), base.cache_root())
        folders = [self._folder(base) for base in bases if base is not None]
        return next((folder for folder in folders if (folder / MANIFEST).is_file()), None)

    def _folder(self, base: Path) -> Path:
        return base / self.name / self.spec.slug
