"""The generator of Reddit-like graphs: reproducibility, distributions and files."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.reddit_like import RedditLike, files, read_files, verify_files, write_files
from ergnn.config.errors import InputError
from ergnn.data import make_stream
from ergnn.data.datasets import base
from ergnn.testing import check_dataset

SMALL = RedditLike(nodes=3000, edges=60_000, features=16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(SMALL, tmp_path_factory.mktemp("made") / SMALL.slug)


def links(folder: Path) -> list[tuple[int, int]]:
    """Directed edges, read row by row with numpy alone."""
    rowptr, col = np.load(folder / "rowptr.npy"), np.load(folder / "col.npy")
    return [(u, int(v)) for u in range(rowptr.size - 1) for v in col[rowptr[u] : rowptr[u + 1]]]


def test_links_are_exact_undirected_and_unique(folder: Path) -> None:
    found = links(folder)
    assert len(found) == 60_000
    assert len(set(found)) == 60_000
    assert {(v, u) for u, v in found} == set(found)
    assert all(u != v for u, v in found)
    assert found == sorted(found)


def test_the_same_bits_in_blocks_of_any_size(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LINKS", 1009)
    monkeypatch.setattr(files, "ENTRIES", 333)
    monkeypatch.setattr(files, "BLOCK", 77)
    other = write_files(SMALL, tmp_path / "other")
    assert json.loads((other / "manifest.json").read_text()) == json.loads((folder / "manifest.json").read_text())


def test_the_bits_of_a_seed_are_fixed(folder: Path) -> None:
    """Whoever changes them raises FORMAT, so that files of an older version are not taken for new ones."""
    manifest = read_files(folder).manifest
    assert files.FORMAT == 1
    assert {name: value[:16] for name, value in manifest["sha256"].items()} == {
        "col": "1b1605f4eca33c48",
        "rowptr": "3b750adc8c79c0e5",
        "y": "edb3c7215c0435aa",
        "split": "8f2f67ff775a08ea",
        "x": "f9f22bd10d9348a6",
    }


def test_files_round_trip(folder: Path) -> None:
    read = read_files(folder)
    assert torch.equal(read.x, SMALL.node_features(0, 3000, SMALL.communities(0, 3000)))
    assert torch.equal(read.y, SMALL.labels(0, 3000))
    assert torch.equal(read.split.long(), SMALL.splits(0, 3000))
    assert (read.col.dtype, read.rowptr.dtype) == (torch.int32, torch.int64)
    verify_files(folder)


def test_a_changed_byte_is_found(folder: Path, tmp_path: Path) -> None:
    other = write_files(SMALL, tmp_path / "other")
    data = bytearray((other / "col.npy").read_bytes())
    data[-3] ^= 1
    (other / "col.npy").write_bytes(bytes(data))
    with pytest.raises(InputError, match=r"col\.npy: damaged"):
        verify_files(other)
    (other / "y.npy").write_bytes((other / "y.npy").read_bytes()[:-8])
    with pytest.raises(InputError, match="other: not the files"):
        read_files(other)


def test_a_file_of_another_graph_is_rejected(tmp_path: Path) -> None:
    other = write_files(SMALL, tmp_path / "other")
    np.save(other / "y.npy", np.zeros(7, dtype=np.int64))
    with pytest.raises(InputError, match=r"y\.npy: has shape \(7,\) and type int64; expected \(3000,\) and int64"):
        read_files(other)
    manifest = json.loads((other / "manifest.json").read_text())
    (other / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(InputError, match="format is 99; this version of ergnn reads 1"):
        read_files(other)


def test_an_unfinished_graph_leaves_no_files(tmp_path: Path) -> None:
    class Fails(RedditLike):
        def node_features(self, start: int, end: int, community: Tensor) -> Tensor:
            raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        write_files(Fails(nodes=2000, edges=2000), tmp_path / "made" / "g")
    assert list((tmp_path / "made").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 100}, "nodes is 100; 41 classes need 820 or more"),
        ({"nodes": 2000, "edges": 7}, "edges is 7; directed edges come in pairs"),
        ({"nodes": 2000, "edges": 2000 * 251}, "an even number from 2 to 500000"),
        ({"features": 0}, "features is 0"),
        ({"homophily": 1.5}, "homophily is 1.5; it must lie between 0 and 1"),
        ({"signal": -1.0}, "signal is -1.0"),
        ({"nodes": 10_000_000, "edges": 2**31}, "it must be below 2147483648"),
    ],
)
def test_invalid_specifications_are_rejected(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RedditLike(**options)  # type: ignore[arg-type]


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("ERGNN_DATA", raising=False)
    monkeypatch.setattr(base, "cache_root", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def test_the_stream_has_eight_tasks_of_five_classes_and_is_generated_once(cache: Path) -> None:
    options = {"nodes": 3000, "features": 8}
    stream, split, _ = make_stream("reddit-like", dataset_options=options)
    assert ([len(task.classes) for task in stream], split, stream.metric) == ([5] * 8, "public", "micro-f1")
    assert stream[0].graph.csr is not None
    assert int((stream[0].graph.y == -1).sum()) == Counter(np.load(next(cache.rglob("y.npy"))).tolist())[40]
    made = next(cache.rglob("x.npy")).stat().st_mtime_ns
    make_stream("reddit-like", dataset_options=options)
    assert next(cache.rglob("x.npy")).stat().st_mtime_ns == made
    assert len(list(cache.rglob("x.npy"))) == 1


def test_files_are_found_below_the_data_folder_too(cache: Path, tmp_path: Path) -> None:
    write_files(RedditLike(nodes=3000, features=8), tmp_path / "data/reddit-like" / RedditLike(3000, features=8).slug)
    make_stream("reddit-like", dataset_options={"nodes": 3000, "features": 8}, root=tmp_path / "data")
    assert not cache.exists()


def test_it_satisfies_the_contract_with_other_options(cache: Path) -> None:
    check_dataset("reddit-like", nodes=2500, edges=30_000, features=4, seed=3)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_files(tmp_path: Path) -> None:
    """600 MB of files, in a process that may hold 250 MB more than it starts with."""
    code = """
import resource, sys
from pathlib import Path
import torch
from benchmarks.reddit_like import RedditLike, write_files
torch.set_num_threads(1)
torch.ones(1 << 20).sort()
held = [int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmData")][0] * 1024
resource.setrlimit(resource.RLIMIT_DATA, (held + (300 << 20),) * 2)
folder = write_files(RedditLike(nodes=200_000, edges=30_000_000), Path(sys.argv[1]) / "g")
print(sum(f.stat().st_size for f in folder.iterdir()))
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 590_000_000
