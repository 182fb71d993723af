"""Data sets that PyG and OGB can read, and the bundled graphs."""

from __future__ import annotations

import io
import os
import shutil
import warnings
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ergnn.config.errors import InputError, check_within
from ergnn.config.files import wrap_errors
from ergnn.config.imports import extra
from ergnn.data import splits
from ergnn.data.csr import CsrEdges, pointers
from ergnn.data.datasets import base
from ergnn.data.datasets.base import Dataset, DataUnavailable, NotDownloaded, PublicSplitUnavailable
from ergnn.data.graph import UNLABELED, Graph, Split, compact

if TYPE_CHECKING:
    from torch_geometric.data import Data, InMemoryDataset


class PygDataset(Dataset):
    """A data set that one of PyG's loaders reads.

    Attributes:
        loader: name of the loader in ``torch_geometric.datasets``.
        folder: folder of ``raw/`` below the root. A loader of several data sets gets the last part as their name:
            ``planetoid/Cora`` is ``Planetoid("planetoid", "Cora")``.
        raw_files: the files in ``raw/`` that the loader needs. Files in the parent of ``folder`` are found, too.
        large_download: size of the download, as text, if it is too large to start automatically.
        csr: whether to store edges in CSR form, which takes 4 bytes per edge instead of 16.
    """

    loader: ClassVar[str]
    large_download: ClassVar[str] = ""
    csr: ClassVar[bool] = False

    def open(self, root: Path) -> InMemoryDataset:
        """Create PyG's loader; it reads, downloads and writes ``processed/`` in ``folder`` below the root."""
        make, folder = self._loader(), root / self.folder
        return make(str(folder.parent), folder.name) if "/" in self.folder else make(str(folder))

    def read_data(self, root: Path) -> Data:
        """Read the graph from ``folder`` below the root."""
        return self.open(root)[0]

    @property
    def url(self) -> str:
        """Address of the download."""
        return str(self._loader().url)

    def read(self, root: Path | None) -> Graph:
        raw = self.find(root)
        return self._read(raw) if raw is not None else self._download(root)

    def location(self, root: Path | None = None) -> str:
        if self.find(root) is not None:
            return super().location(root)
        if self.large_download:
            return f"missing ({self.large_download})"
        return "downloaded on first use" if base.downloads_allowed() else "missing (--download)"

    def _loader(self) -> Any:
        import torch_geometric.datasets

        return getattr(torch_geometric.datasets, self.loader)

    def find(self, root: Path | None) -> Path | None:
        parent = os.path.dirname(self.folder)
        raw = base.find(f"{self.folder}/raw", self.raw_files, root)
        return base.find(parent, self.raw_files, root) if raw is None and parent else raw

    def _read(self, raw: Path) -> Graph:
        """Let PyG process a link to the raw files: it writes next to them, and the root may be read-only."""
        with TemporaryDirectory(prefix="ergnn-") as scratch:
            stage = Path(scratch) / self.folder
            stage.mkdir(parents=True)
            beside = raw.parent.iterdir() if raw.name == "raw" else ()  # e.g. OGB's split/
            for path in (raw, *(path for path in beside if path.name not in ("raw", "processed"))):
                link = stage / ("raw" if path == raw else path.name)
                link.symlink_to(path.resolve(), target_is_directory=path.is_dir())
            with wrap_errors(f"{self.name}: {raw}", f"a folder with {', '.join(self.raw_files)}"):
                return self._graph(Path(scratch))

    def _download(self, root: Path | None) -> Graph:
        cache = base.cache_root()
        target = cache / self.folder
        missing = base.not_found(self.name, f"{self.folder}/raw", self.raw_files, root)
        if self.large_download:
            raise DataUnavailable(
                f"{missing}; it is too large to download automatically: fetch {self.url} ({self.large_download}) and "
                f"unpack it, so that {(base.data_root(root) or cache) / self.folder / 'raw'} has these files"
            )
        if not base.downloads_allowed():
            how = f"set {base.DOWNLOAD_VARIABLE}=1 (or use `ergnn run --download`) to download it"
            off = f"downloads are off ({base.OFFLINE_VARIABLE} is set)"
            raise NotDownloaded(f"{missing}; {off if base.is_set(base.OFFLINE_VARIABLE) else how}")
        try:
            base.probe(self.url)
            cache.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix="download-", dir=cache) as scratch:
                graph = self._graph(Path(scratch), quiet=False)
                shutil.rmtree(Path(scratch) / self.folder / "processed", ignore_errors=True)
                target.parent.mkdir(parents=True, exist_ok=True)
                if not target.exists():  # else another process was faster
                    shutil.move(Path(scratch) / self.folder, target)
                return graph
        except InputError:
            raise
        except Exception as error:  # no network, disk full, no permission: the data set is unavailable
            raise DataUnavailable(
                f"{missing}; the download into {target / 'raw'} failed ({type(error).__name__}: {error})"
            ) from error

    def _graph(self, root: Path, quiet: bool = True) -> Graph:
        silent = redirect_stderr(io.StringIO()) if quiet else nullcontext()
        with warnings.catch_warnings(), silent, redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")  # PyG's readers change the filters of the whole process
            data = self.read_data(root)
            source, target = data.edge_index
            if bool((source == target).any()):  # layers add their own self-loops
                data.edge_index = data.edge_index[:, source != target]
            graph = replace(Graph.from_pyg(data, self.name), class_names=self.class_names)
        if not self.csr:
            return replace(graph, x=compact(graph.x))
        source, target = graph.edge_index
        col = source.int()[torch.argsort(target, stable=True)]
        return replace(graph, edge_index=CsrEdges(pointers(target, graph.num_nodes), col))


class CoauthorDataset(PygDataset):
    """Authors with the keywords of their papers (Shchur et al., 2018).

    Args:
        counts: read how often an author used a keyword, as in the file, instead of whether, as PyG's loader does.
    """

    def __init__(self, counts: bool = False) -> None:
        self.counts = counts

    def read_data(self, root: Path) -> Data:
        data = super().read_data(root)
        if self.counts:
            with np.load(root / self.folder / "raw" / self.raw_files[0], allow_pickle=False) as arrays:
                value, column, start = (arrays[f"attr_{key}"] for key in ("data", "indices", "indptr"))
            row = np.repeat(np.arange(len(start) - 1), np.diff(start))
            data.x[torch.from_numpy(row), torch.from_numpy(column).long()] = torch.from_numpy(value).to(data.x.dtype)
        return data


class SeveralSplitsDataset(PygDataset):
    """A data set that was published with several splits.

    Args:
        fold: number of the public split, from 0.
    """

    public_split = True
    num_folds: ClassVar[int]

    def __init__(self, fold: int = 0) -> None:
        check_within(self.name, 0, self.num_folds - 1, fold=fold)
        self.fold = fold

    def read_data(self, root: Path) -> Data:
        data = super().read_data(root)
        self._folds = {key: data[key] for key in ("train_mask", "val_mask", "test_mask")}
        for key, mask in self._folds.items():
            if mask.dim() == 2:
                data[key] = mask[:, self.fold]
        return data

    def fold_split(self, number: int) -> Split:
        masks = [mask[:, number % self.num_folds] if mask.dim() == 2 else mask for mask in self._folds.values()]
        return Split(*(mask.nonzero().flatten() for mask in masks))


class PlanetoidDataset(PygDataset):
    """Planetoid's raw files (Yang et al., 2016) with their public split."""

    loader = "Planetoid"
    public_split = True

    def seeded_split(self, graph: Graph, seed: int) -> Split:
        """Draw a split of Planetoid's sizes: 20 training nodes per class, 500 validation and 1,000 test nodes."""
        return splits.planetoid_like(self.labels(graph), seed=seed)

    def labels(self, graph: Graph) -> Tensor:
        """Return the labels of nodes with words: 15 of Citeseer are missing from Planetoid's files and have label 0."""
        words = graph.x.crow_indices().diff() if graph.is_sparse else (graph.x != 0).sum(dim=1)
        return torch.where(words > 0, graph.y, UNLABELED)


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
        both = torch.unique(torch.cat([edges, edges.flip(0)], 1), dim=1)
        return Graph(compact(x), both, y, name=self.name, class_names=self.class_names).validate()


def ogb_files(split: str) -> tuple[str, ...]:
    """Return the files of a data set whose published split has this name, relative to ``raw/``."""
    arrays = ("edge", "node-feat", "node-label", *(f"../split/{split}/{part}" for part in ("train", "valid", "test")))
    return *(f"{array}.csv.gz" for array in arrays), "../RELEASE_v1.txt"  # without the last, the loader asks questions


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

    def read_data(self, root: Path) -> Data:
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
