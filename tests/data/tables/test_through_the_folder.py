"""Files as pandas writes them, read and learned by a learner's folder: classes and features stay the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ergnn.config.errors import InputError
from ergnn.data.tables import read_edges, read_nodes
from ergnn.data.tables.kinds import Codes
from ergnn.folder import LearnerFolder
from folder.growing import quick

NAMES = ["age", "height", "score"]


def frame_of(first: int, labels: list[Any]) -> pd.DataFrame:
    rng = np.random.default_rng(first)
    frame = pd.DataFrame(rng.random((len(labels), 3)).round(3), columns=NAMES)
    return frame.assign(id=range(first, first + len(labels)), label=labels)


def written(frame: pd.DataFrame, path: Path) -> Path:
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> LearnerFolder:
    """A folder that has learned the classes 0 and 1 from integers in a CSV file."""
    out = LearnerFolder.create(tmp_path / "d", quick(epochs=1))
    edges = read_edges(pd.DataFrame({"from": range(20), "target": range(1, 21)}).rename(columns={"from": "source"}))
    out.observe(read_nodes(written(frame_of(0, [0, 1] * 10 + [0]), tmp_path / "first.csv")), edges)
    return out


def test_floats_after_a_missing_label_are_the_same_two_classes(folder: LearnerFolder, tmp_path: Path) -> None:
    later = frame_of(21, [0, 1, None, 1, 0, 1, 0])
    assert later.label.dtype == np.float64
    nodes = read_nodes(written(later, tmp_path / "later.csv"))
    edges = read_edges(pd.DataFrame({"source": [21.0, 22.0], "target": [0, 21]}))
    folder.observe(nodes, edges)
    found = folder.inspect()
    assert sorted(found["classes"]) == ["0", "1"]
    assert (found["graph"]["nodes"], nodes.labels.tolist()[:3]) == (28, ["0", "1", None])


def test_features_are_known_by_name(folder: LearnerFolder) -> None:
    later = frame_of(21, [0, 1, 0, 1])
    turned = later[["score", "label", "age", "id", "height"]]
    folder.observe(read_nodes(turned), None)
    stored = Codes.from_matrix(folder.snapshot().graph.stored_features(np.arange(21, 25)), len(NAMES))
    np.testing.assert_allclose(stored.numbers, later[NAMES].to_numpy(), rtol=1e-13)
    with pytest.raises(InputError, match="missing: 'age'; add what is missing, values may be empty; unknown: 'years'"):
        folder.observe(read_nodes(frame_of(30, [0, 1]).rename(columns={"age": "years"})), None)
    assert folder.inspect()["graph"]["nodes"] == 25


def test_edge_weights_are_refused(folder: LearnerFolder) -> None:
    edges = read_edges(pd.DataFrame({"source": [1, 2], "target": [5, 6], "weight": [1, 2]}))
    with pytest.raises(InputError, match=r"the edges have weights, .* --ignore-column weight"):
        folder.observe(None, edges)
