"""Learners as files: what comes back, what must be passed again, and files that are not learners."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch_geometric.nn import GCN

from ergnn.config.errors import ErgnnError, InputError
from ergnn.data import TaskStream
from ergnn.learning.learner import Learner
from ergnn.replay import SELECTORS
from graphs import random_graph


@pytest.fixture(scope="module")
def stream() -> TaskStream:
    graph = random_graph(n=60, f=6, classes=6, p_edge=0.08, seed=1)
    return TaskStream.from_classes(replace(graph, class_names=("a", "b", "c", "d", "e", "ü")))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"memory": "statistics", "feature_map": "ppr"},
        {"feature_map": "ppr", "map_options": {"alpha": 0.2}, "lam": 0.5},
        {"method": "slda"},
        {"method": "ewc", "backbone": "gcn", "epochs": 3, "head": "per-task"},
        {"method": "joint", "backbone": "sgc", "epochs": 3, "batch_size": 8, "fanout": (3, 2)},
    ],
    ids=str,
)
def test_a_loaded_learner_predicts_the_same_bits_and_learns_on(
    stream: TaskStream, options: dict[str, Any], tmp_path: Path
) -> None:
    file, nodes = tmp_path / "learner.safetensors", stream[1].test
    learner = Learner(**{"method": "analytic", "head": "growing", **options})
    for task in stream[:2]:
        learner.observe(task)
    learner.save(file)
    loaded = Learner.load(file)
    assert loaded.config == learner.config
    assert loaded.history == learner.history
    with pytest.raises(InputError, match=r"has no graph; call learner.set_graph\(graph\)"):
        loaded.predict(nodes, 1)
    loaded.set_graph(stream[1].graph)
    assert torch.equal(loaded.predict_proba(nodes, 1), learner.predict_proba(nodes, 1))
    for one in (learner, loaded):
        one.observe(stream[2])
    torch.testing.assert_close(loaded.predict_proba(nodes, 1), learner.predict_proba(nodes, 1), atol=1e-12, rtol=0)


def test_the_graph_is_saved_if_told(stream: TaskStream, tmp_path: Path) -> None:
    learner = Learner(method="analytic", head="growing")
    with pytest.raises(InputError, match="graph=True, but this learner has no graph"):
        learner.save(tmp_path / "learner", graph=True)
    graph = replace(stream[0].graph, edge_weight=torch.rand(stream[0].graph.num_edges))
    learner.observe(replace(stream[0], graph=graph))
    learner.save(tmp_path / "learner", graph=True)
    stored = Learner.load(tmp_path / "learner").graph
    assert (stored.name, stored.class_names) == (graph.name, graph.class_names)
    for name in ("x", "edge_index", "y", "edge_weight"):
        assert torch.equal(getattr(stored, name), getattr(graph, name))
    larger = random_graph(n=80, f=6, classes=6, seed=2)
    assert Learner.load(tmp_path / "learner", larger).graph is larger


def test_objects_are_passed_again(stream: TaskStream, tmp_path: Path) -> None:
    module = GCN(6, 8, num_layers=2, out_channels=6)
    learner = Learner(module, selector="random", epochs=3).observe(stream[0])
    learner.save(tmp_path / "learner")
    with pytest.raises(
        InputError, match=r"learner: its backbone was an object.*Learner.load\(path, backbone=GCN\(…\)\)"
    ):
        Learner.load(tmp_path / "learner")
    loaded = Learner.load(tmp_path / "learner", stream[0].graph, backbone=GCN(6, 8, num_layers=2, out_channels=6))
    nodes = stream[0].test
    assert torch.equal(loaded.predict_proba(nodes, 0), learner.predict_proba(nodes, 0))
    with pytest.raises(InputError, match="state's backbone is 'GCN'; this learner's is 'sgc'"):
        Learner.load(tmp_path / "learner", backbone="sgc")


def test_files_that_are_no_learners_are_named(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, tmp_path / "model.safetensors")
    (tmp_path / "text").write_text("no learner")
    for name, message in (
        ("none", "no such file"),
        ("text", "cannot be read as a saved learner"),
        ("model.safetensors", r"was not written by Learner.save \(ergnn.load reads exported models\)"),
    ):
        with pytest.raises(ErgnnError, match=f"{name}: {message}"):
            Learner.load(tmp_path / name)
    learner = Learner(method="replay", selector=SELECTORS.create("random"))
    with pytest.raises(InputError, match="settings, method_options, selector: a value of type Random cannot"):
        learner.save(tmp_path / "learner")
    assert not (tmp_path / "learner").exists()
