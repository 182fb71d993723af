"""Files that were made to do harm are refused with the right message, and mutated files of every format are refused or
read as an independent reader reads them, in a process with a gigabyte of memory."""

import gzip
import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

WORKER = Path(__file__).with_name("fuzz_worker.py")
MB = 1 << 20


class Evil:
    """Its pickle writes a file when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch harm",)


def raw(content: Callable[[], bytes]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(content())

    return make


def packed_text(text: bytes, times: int) -> Callable[[Path], None]:
    return raw(lambda: gzip.compress(text * times, 1))


def written(text: str) -> Callable[[Path], None]:
    return raw(text.encode)


def npz(**changes: Any) -> Callable[[Path], None]:
    """A graph of three nodes with some arrays replaced, by functions that make them or by raw bytes."""
    arrays: dict[str, Any] = {
        "adj_data": np.ones(2),
        "adj_indices": np.array([1, 2]),
        "adj_indptr": np.array([0, 1, 2, 2]),
        "adj_shape": np.array([3, 3]),
        "labels": np.array([0, 1, 0]),
    } | changes

    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            for name, given in arrays.items():
                array = given() if callable(given) else given
                content = io.BytesIO(array) if isinstance(array, bytes) else io.BytesIO()
                if not isinstance(array, bytes):
                    np.lib.format.write_array(content, array, allow_pickle=True)
                file.writestr(f"{name}.npy", content.getvalue())

    return make


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def parquet(options: dict[str, Any] | None = None, /, **columns: Any) -> Callable[[Path], None]:
    return lambda path: pq.write_table(
        pa.table({name: make() for name, make in columns.items()}), path, **(options or {})
    )


def repeated(value: Any, times: int) -> pa.Array:
    """One value many times, which takes a few bytes in a Parquet file."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(times, dtype=np.int8)), pa.array([value]))


FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    # extreme compression
    "lines.csv.gz": (packed_text(b"\n" * MB, 20), "at most 16 MB or 100 times the file are allowed"),
    "nodes.csv.gz": (packed_text(b"id,label,domain\n", 2 * MB), "at most 16 MB or 100 times the file are allowed"),
    "zeros.npz": (
        npz(adj_data=lambda: np.ones(12 * MB, np.int8), adj_indices=lambda: np.zeros(12 * MB, np.int32)),
        "at most 32 MB or 50 times the file are allowed",
    ),
    "edges.parquet": (
        parquet(source=lambda: repeated(1, 40 * MB), target=lambda: repeated(1, 40 * MB)),
        "at most 512 MB or 200 times the file are allowed",
    ),
    "text.parquet": (parquet(id=lambda: pa.array(range(9_999)), label=lambda: repeated("x" * MB, 9_999)), "read"),
    # sizes that are only claimed
    "shape.npz": (npz(adj_shape=np.array([10**12, 10**12])), "1,000,000,000,000 nodes; at most 10,000,000"),
    "square.npz": (npz(adj_shape=np.array([3, 10**12])), "an adjacency matrix is square"),
    "header.npz": (
        npz(labels=header("{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,), }\n")),
        "cannot reshape array of size 0",
    ),
    "long.npz": (npz(labels=b"\x93NUMPY\x02\x00\xff\xff\xff\x7f"), "cannot be read as an npz file"),
    # pickles
    "objects.npz": (npz(labels=np.array([Evil(), 1, 2], dtype=object)), "Python objects; these are pickles"),
    "pickle.npz": (raw(lambda: pickle.dumps(Evil())), "File is not a zip file"),
    # paths outside of the folder; nothing is ever unpacked to a file
    "climb.npz": (npz(**{"../../harm": np.ones(3)}), "read"),
    # texts that grow or nest
    "quote.csv": (written('id\n"' + "a\n" * 100_000), "a quote is opened and never closed"),
    "index.tsv": (written("id\tfeatures\na\t999999999999:1\n"), "index 999999999999 is out of range"),
    "ragged.csv": (written("id,a\n" + "1," * 500_000), "Expected 2 columns, got 500001"),
    "wide.csv": (
        written("id," + ",".join(map(str, range(1_000_001))) + "\n"),
        "1,000,002 columns take 9,537 MB; at most 4,096 are allowed",
    ),
}


def work(folder: Path, count: int, seed: int) -> dict[str, Any]:
    # the default allocator reserves a gigabyte of address space, most of which it never uses
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    command = [sys.executable, "-W", "ignore", str(WORKER), str(folder), str(count), str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"crashed with {done.returncode}: {done.stderr[-2000:]}"
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "work").mkdir()
    for name, (make, _) in FILES.items():
        make(folder / "work" / name)
    out = work(folder, 0, 0)
    assert sorted(path.name for path in (folder / "work").iterdir()) == sorted(FILES)
    assert not list(folder.glob("**/harm*"))
    assert not list(folder.parent.glob("harm*"))
    return out


@pytest.mark.parametrize("name", FILES)
def test_it_is_refused_with_the_right_message(name: str, outcomes: dict[str, dict[str, Any]]) -> None:
    outcome, expected = outcomes[name], FILES[name][1]
    assert expected in outcome["said"]
    assert not outcome["out_of_memory"]
    if expected != "read":
        assert outcome["said"].startswith("FormatError: ")
        assert name in outcome["said"]


@pytest.mark.parametrize(("count", "seed"), [(100, 0), pytest.param(10_000, 1, marks=pytest.mark.slow)])
def test_mutated_files(count: int, seed: int, tmp_path: Path) -> None:
    result = work(tmp_path, count, seed)
    assert result["wrong"] == []
    read, refused = (sum(counts[what] for counts in result["tally"].values()) for what in ("read", "refused"))
    assert read + refused == count
    assert read > count // 50
    for name, counts in result["tally"].items():
        assert counts["refused"], f"no mutant of {name} was refused"
    assert result["grown"] < 1 << 30
