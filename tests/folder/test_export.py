"""Exported files give the logits that the folder gives, on its own graph and on others."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import ergnn
from ergnn.analytic import Features, Inputs, NormalizedAdjacency
from ergnn.cli.main import main
from ergnn.config.errors import ErgnnError, InputError
from ergnn.data import Graph
from ergnn.data.datasets import load_graph
from ergnn.data.tables import from_graph
from ergnn.data.tables.node_tables import EdgeTable, NodeTable
from ergnn.folder import LearnerFolder, Settings, export
from folder.growing import make_updates, own_graph, quick

SOLVED: dict[str, Any] = {"method": "analytic", "scale": "rows"}
MODELS = {
    **{name: {"method": "replay", "backbone": name} for name in ("gat", "gcn", "sage", "gin", "sgc")},
    "tuned": {"method": "replay", "network": "tuned", "backbone_options": {"hidden": 16}},
    "auto": SOLVED,
    **{name: {**SOLVED, "feature_map": name, "kernel": "linear"} for name in ("ppr", "hops")},
    "rbf": {**SOLVED, "kernel": "rbf"},
    "sketched": {**SOLVED, "feature_map": "hops", "map_options": {"num_hops": 2}, "sketch": 8},
}
"""Settings of every layer form and feature map."""


def learned(root: Path, updates: list[tuple[NodeTable, EdgeTable]], **settings: Any) -> LearnerFolder:
    """A folder that has learned updates of unequal numbers of classes."""
    if settings["method"] == "replay":
        settings = {"epochs": 3, "per_class": 2, **settings}
    folder = LearnerFolder.create(root, Settings.from_settings(settings))
    for nodes, edges in updates:
        folder.observe(nodes, edges)
    return folder


def cora_updates() -> list[tuple[NodeTable, EdgeTable]]:
    """Cora in two updates, of four and three classes."""
    graph = load_graph("cora", split="seeded").graph
    nodes, edges = from_graph(graph)
    first = graph.y.numpy() < 4
    known = set(nodes.ids[first])
    early = np.array([a in known and b in known for a, b in zip(edges.source, edges.target, strict=True)])
    return [
        (NodeTable(nodes.ids[mine], nodes.labels[mine], features=nodes.features[mine]),
         EdgeTable(edges.source[now], edges.target[now]))
        for mine, now in ((first, early), (~first, ~early))
    ]  # fmt: skip


def expected(folder: LearnerFolder, graph: Graph) -> tuple[list[str], Tensor]:
    """Class names and probabilities of all nodes of any graph, by the engine of training or the rows of the solve.

    Like a folder, it counts an edge that is given twice once.
    """
    graph = replace(graph, edge_index=torch.tensor(sorted(set(map(tuple, graph.edge_index.T.tolist())))).T)
    with folder.snapshot() as snapshot:
        learner: Any = snapshot.learner
        names = [snapshot.classes[c] for c in learner.classes()]
        if folder.settings.learner.method == "analytic":
            feature_map = learner.head.maps[learner.head.chosen]
            features = Features(feature_map, NormalizedAdjacency(graph), Inputs(graph, learner.head.sketched))
            scores = learner._with_anchors().scores(features.rows(torch.arange(graph.num_nodes)))
            return names, torch.softmax(learner.head.solution.temperature * scores, 1).float()
        found = learner.learner.predict_proba(torch.arange(graph.num_nodes), graph=graph)
        return names, found[:, torch.argsort(learner.learner.classes())]


def other_graph(own: Graph, num_nodes: int, seed: int = 0) -> Graph:
    """Features of random nodes and of none, with random edges: isolated nodes, loops and duplicate edges."""
    rng = torch.Generator().manual_seed(seed)
    x = own.x[torch.randint(own.num_nodes, (num_nodes,), generator=rng)]
    x[::9] = 0.0
    edges = torch.randint(num_nodes * 3 // 4, (2, 3 * num_nodes), generator=rng)
    edges = torch.cat([edges, edges[:, :20], edges[:1, 20:30].expand(2, -1)], 1)
    return Graph(x, edges, torch.zeros(num_nodes, dtype=torch.long))


def run_onnx(path: Path, graph: Graph) -> Tensor:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = {"x": graph.x.numpy(), "edge_index": graph.edge_index.numpy()}
    return torch.from_numpy(session.run(["logits"], inputs)[0])


def check_onnx(folder: LearnerFolder, out: Path) -> None:
    (path,) = folder.export(out, format="onnx")
    module = ergnn.load(folder.root)
    own = own_graph(folder)
    for graph in (own, other_graph(own, 333)):
        found = run_onnx(path, graph)
        with torch.no_grad():
            logits = module(graph.x, graph.edge_index)
        torch.testing.assert_close(found, logits, atol=1e-5, rtol=1e-6)  # logits near 30 are rounded
        names, probabilities = expected(folder, graph)
        columns = [module.classes.index(name) for name in names]
        torch.testing.assert_close(torch.softmax(found, 1)[:, columns], probabilities, atol=1e-5, rtol=0)


@pytest.mark.parametrize("model", MODELS)
def test_the_loaded_module_gives_the_probabilities_of_the_folder(model: str, tmp_path: Path) -> None:
    folder = learned(tmp_path / "f", make_updates(2), **MODELS[model])
    module, own = ergnn.load(folder.root), own_graph(folder)
    assert not module.training
    layers = [layer for layer in module.modules() if "Conv" in type(layer).__name__]
    assert all(type(layer).__module__.startswith("torch_geometric.nn") for layer in layers)
    for graph in (own, other_graph(own, 57, seed=1)):
        names, probabilities = expected(folder, graph)
        with torch.no_grad():
            found = torch.softmax(module(graph.x, graph.edge_index), 1)
        columns = [module.classes.index(name) for name in names]
        torch.testing.assert_close(found[:, columns], probabilities, atol=1e-6, rtol=1e-5)
    ids = [name for nodes, _ in make_updates(2) for name in nodes.ids]
    parts = list(folder.predict(ids))
    stored = np.concatenate([part[2] for part in parts])
    for edges in (own.edge_index, torch.cat([own.edge_index, own.edge_index[:, ::3]], 1)):
        with torch.no_grad():
            found = torch.softmax(module(own.x, edges), 1)
        np.testing.assert_allclose(found[:, [module.classes.index(name) for name in parts[0][1]]], stored, atol=1e-5)


@pytest.mark.parametrize("model", ["gat", "sketched", "tuned"])
def test_onnx_gives_our_logits_on_graphs_of_any_size(model: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    check_onnx(learned(tmp_path / "f", make_updates(2), **MODELS[model]), tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("model", [name for name in MODELS if name != "sketched"])
def test_onnx_gives_our_logits_on_cora(model: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    check_onnx(learned(tmp_path / "f", cora_updates(), **MODELS[model]), tmp_path / "out")


def test_an_onnx_file_that_differs_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    folder = learned(tmp_path / "f", make_updates(2), **MODELS["sgc"])
    traced = export.traced

    def other(module: Any) -> Any:
        changed = deepcopy(module)
        with torch.no_grad():
            changed.model.heads[0].weight += 1e-3
        return traced(changed)

    monkeypatch.setattr(export, "traced", other)
    with pytest.raises(ErgnnError, match="logits by ONNX differ by"):
        folder.export(tmp_path / "out" / "model.onnx", format="onnx")
    assert not (tmp_path / "out").exists()


def test_sums_that_onnx_runtime_computes_with_a_data_race_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")

    class Racing(export.NodeClassifier):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])

    module = Racing({"outputs": [[0, "a"], [1, "b"]], "num_features": 2})
    with pytest.raises(ErgnnError, match="with a data race; use scatter_add"):
        export.onnx_bytes(module)


@pytest.mark.parametrize("model", ["gcn", "auto"])
def test_a_torch_program_runs_on_graphs_of_any_size(model: str, tmp_path: Path) -> None:
    folder = learned(tmp_path / "f", make_updates(2), **MODELS[model])
    assert main(["export", str(folder.root), "-o", str(tmp_path / "model.pt2")]) == 0
    program, module = ergnn.load(tmp_path / "model.pt2"), ergnn.load(folder.root)
    assert program.classes == module.classes
    own = own_graph(folder)
    for graph in (own, other_graph(own, 29)):
        with torch.no_grad():
            torch.testing.assert_close(program(graph.x, graph.edge_index), module(graph.x, graph.edge_index))


@pytest.mark.parametrize("model", ["gat", "ppr"])
def test_safetensors_hold_weights_and_their_description(model: str, tmp_path: Path) -> None:
    folder = learned(tmp_path / "f", make_updates(2), **MODELS[model])
    weights, text = folder.export(tmp_path / "out")
    metadata = json.loads(text.read_text())
    module = ergnn.load(weights)
    assert module.metadata == metadata == ergnn.load(folder.root).metadata
    assert {"classes", "outputs", "num_features", "feature_names", "version"} <= set(metadata)
    graph = other_graph(own_graph(folder), 29)
    with torch.no_grad():
        own = ergnn.load(folder.root)(graph.x, graph.edge_index)
        torch.testing.assert_close(module(graph.x, graph.edge_index), own, atol=0, rtol=0)


def test_an_older_version_is_loaded(tmp_path: Path) -> None:
    folder = learned(tmp_path / "f", make_updates(2), **MODELS["gcn"])
    assert len(ergnn.load(folder.root, version=1).classes) < len(ergnn.load(folder.root).classes)


def test_what_cannot_be_exported_or_loaded_is_refused(tmp_path: Path) -> None:
    empty = LearnerFolder.create(tmp_path / "empty", quick())
    with pytest.raises(InputError, match="nothing has been learned yet"):
        ergnn.load(empty.root)
    folder = learned(tmp_path / "f", make_updates(2), **MODELS["gcn"])
    with pytest.raises(InputError, match=r"unknown format 'tflite'; choose one of: onnx, safetensors, torch"):
        folder.export(tmp_path / "out", format="tflite")
    with pytest.raises(InputError, match=r"model.pt2: format 'onnx' needs a file that ends with .onnx, or a folder"):
        folder.export(tmp_path / "model.pt2", format="onnx")
    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    (tmp_path / "text.pt2").write_text("no archive")
    for name in ("other.safetensors", "text.pt2"):
        with pytest.raises(InputError, match=f"{name}: cannot be read as a model of ergnn export"):
            ergnn.load(tmp_path / name)
    with pytest.raises(InputError, match=r"onnxruntime.InferenceSession"):
        ergnn.load(tmp_path / "model.onnx")
    with pytest.raises(ErgnnError, match="nowhere"):
        ergnn.load(tmp_path / "nowhere")
    (weights, _) = folder.export(tmp_path / "out")
    module = ergnn.load(weights)
    save_file(dict(module.state_dict()), tmp_path / "cut.safetensors", {"ergnn": json.dumps(module.metadata)})
    with pytest.raises(InputError, match="the weights do not fit their description"):
        ergnn.load(tmp_path / "cut.safetensors")
    assert not list(tmp_path.glob("*.onnx"))
