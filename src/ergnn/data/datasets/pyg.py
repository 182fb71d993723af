"""Data sets that PyG can read."""

from __future__ import annotations

import io
import shutil
import warnings
from abc import abstractmethod
from contextlib import nullcontext, redirect_stderr
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar

from ergnn.config.errors import InputError
from ergnn.data.datasets import storage
from ergnn.data.datasets.base import Dataset, DataUnavailable, NotDownloaded, PublicSplitUnavailable, with_compact_x
from ergnn.data.graph import Graph

if TYPE_CHECKING:
    from torch_geometric.data import InMemoryDataset


class PygDataset(Dataset):
    """A data set that one of PyG's loaders reads.

    Attributes:
        folder: folder of ``raw/`` below the root, e.g. ``planetoid/Cora``.
        raw_files: the files in ``raw/`` that the loader needs.
        url: a file of the download, used to check that its host is reachable.
        large_download: size of the download, as text, if it is too large to start automatically.
    """

    folder: ClassVar[str]
    raw_files: ClassVar[tuple[str, ...]]
    url: ClassVar[str]
    large_download: ClassVar[str] = ""

    @abstractmethod
    def open(self, root: Path) -> InMemoryDataset:
        """Create PyG's loader; it reads, downloads and writes ``processed/`` in ``folder`` below the root."""

    def load(self, split: str, root: Path | None = None) -> Graph:
        if split == "public" and not self.public_split:
            raise PublicSplitUnavailable(f"no split was published with {self.title}")
        raw = storage.find(self.folder, self.raw_files, root)
        return self._read(raw) if raw is not None else self._download(root)

    def location(self, root: Path | None = None) -> str:
        raw = storage.find(self.folder, self.raw_files, root)
        if raw is None:
            if self.large_download:
                return f"missing ({self.large_download})"
            return "downloaded on first use" if storage.downloads_allowed() else "missing (--download)"
        return storage.location(raw, root)

    def _read(self, raw: Path) -> Graph:
        """Let PyG process a link to the raw files: it writes next to them, and the root may be read-only."""
        with TemporaryDirectory(prefix="ergnn-") as scratch:
            stage = Path(scratch) / self.folder
            stage.mkdir(parents=True)
            (stage / "raw").symlink_to(raw.resolve(), target_is_directory=True)
            try:
                return self._graph(Path(scratch))
            except InputError:
                raise
            except Exception as error:  # third-party readers can raise anything for a damaged file
                raise InputError(
                    f"{self.name}: the files in {raw} cannot be read ({type(error).__name__}: {error}); "
                    f"expected {', '.join(self.raw_files)}"
                ) from error

    def _download(self, root: Path | None) -> Graph:
        cache = storage.cache_root()
        target = cache / self.folder / "raw"
        if self.large_download:
            raise DataUnavailable(
                f"{self._not_found(root)}; it is too large to download automatically: fetch {self.url} "
                f"({self.large_download}) and unpack it into "
                f"{(storage.data_root(root) or cache) / self.folder / 'raw'}"
            )
        if not storage.downloads_allowed():
            raise NotDownloaded(f"{self._not_found(root)}; {storage.how_to_get()}")
        try:
            storage.probe(self.url)
            cache.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix="download-", dir=cache) as scratch:
                graph = self._graph(Path(scratch), quiet=False)
                target.parent.mkdir(parents=True, exist_ok=True)
                if not target.exists():  # else another process was faster
                    shutil.move(Path(scratch) / self.folder / "raw", target)
                return graph
        except InputError:
            raise
        except Exception as error:  # no network, disk full, no permission: the data set is unavailable
            raise DataUnavailable(
                f"{self._not_found(root)}; the download into {target} failed ({type(error).__name__}: {error})"
            ) from error

    def _graph(self, root: Path, quiet: bool = True) -> Graph:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()) if quiet else nullcontext():
            warnings.simplefilter("ignore")  # PyG's readers change the filters of the whole process
            data = self.open(root)[0]
        graph = replace(Graph.from_pyg(data, self.name), class_names=self.class_names)
        return with_compact_x(graph)

    def _not_found(self, root: Path | None) -> str:
        base = storage.data_root(root)
        if base is None:
            where = f"{storage.DATA_VARIABLE} is not set and the cache folder has no {self.folder}/raw"
        else:
            where = f"neither {base} nor the cache folder has {self.folder}/raw"
        more = f" and {len(self.raw_files) - 1} more" if len(self.raw_files) > 1 else ""
        return f"{self.name}: {where} ({self.raw_files[0]}{more})"
