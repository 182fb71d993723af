"""The peer learns what we learn, and figures are kept and compared as they were measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from ergnn.bench.command import bench, bench_table, load, save
from ergnn.bench.graphs import bag_of_words_graph, corafull_like, synthetic_stream
from ergnn.bench.measure import Measurement, in_fresh_process, seconds
from ergnn.bench.plain import PlainLearner, plain_model
from ergnn.cli import main
from ergnn.data import make_stream
from ergnn.errors import InputError, UnknownNameError
from ergnn.learner import Learner
from ergnn.nn.objective import make_objective
from ergnn.replay.selectors import SELECTORS


def test_a_ratio_is_the_peers_time_in_ours() -> None:
    assert Measurement("a", 2.0, 30.0, "s", 1).ratio == 15.0
    assert Measurement("a", 2.0, None, "s", 1).ratio is None


def test_seconds_is_the_median_of_the_repeats_that_count() -> None:
    calls: list[int] = []
    assert seconds(lambda: calls.append(1), repeats=3, warm_up=2) >= 0.0
    assert len(calls) == 5


def test_figures_survive_a_file_and_stand_beside_the_next(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    save([Measurement("step", 1.0, 20.0, "ms", 1)], file)
    assert load(file)["measurements"][0]["ratio"] == 20.0
    text = bench_table([Measurement("step", 2.0, 20.0, "ms", 1)], load(file)).to_text()
    assert "10.0 ×" in text
    assert "20.0 ×" in text


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text("{}")
    with pytest.raises(InputError, match="has no 'measurements'"):
        load(file)
    file.write_text("not json")
    with pytest.raises(InputError, match="cannot be read"):
        load(file)


def test_an_unknown_case_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnknownNameError, match="influence"):
        bench(["speed"], [1])
    assert main(["bench", "step", "--threads", "none"]) == 2
    assert "--threads is 'none'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["gat", "gcn", "sage", "gin", "sgc"])
def test_the_peer_is_the_same_function_of_its_parameters(name: str) -> None:
    task = make_stream("cora", split="seeded").stream[0]
    learner = Learner(name, "finetune", head="shared")
    learner._begin(task)
    peer = plain_model(name, task.graph.num_features, 2).eval()
    ours = [*learner.model.convs.parameters(), *learner.model.heads.parameters()]
    with torch.no_grad():
        for p, q in zip(peer.parameters(), ours, strict=True):
            assert p.shape == q.shape
            p.copy_(q)
    examples = learner.examples(task.graph, task.test[:50], 0)
    objective = make_objective([learner.model], [examples])
    expected = peer(task.graph.dense_x(), task.graph.edge_index)[task.test[:50]]
    torch.testing.assert_close(objective.logits(objective.parameters()), expected, rtol=1e-4, atol=1e-5)


def test_the_peers_influence_ranks_nodes_as_ours() -> None:
    task = make_stream("cora", split="seeded", inter_task_edges="own").stream[0]
    learner = Learner("gat", "finetune", head="shared", epochs=40)
    learner.observe(task)
    peer = PlainLearner("gat", task.graph.num_features, 2)
    with torch.no_grad():
        for p, q in zip(
            peer.model.parameters(),
            [*learner.model.convs.parameters(), *learner.model.heads.parameters()],
            strict=True,
        ):
            p.copy_(q)
    examples = learner.method.examples(learner, task, 0)
    context = learner.selection_context(task, 0, examples, 1, False)
    ours = SELECTORS.create("im", tolerance=1e-6).score(context)
    theirs = peer.influence(task, iterations=200)
    assert torch.corrcoef(torch.stack([ours, theirs]))[0, 1] > 0.999


def test_a_synthetic_graph_has_the_shape_that_was_asked_for() -> None:
    graph = corafull_like().validate()
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (19_793, 8_710, 70)
    assert graph.num_edges == pytest.approx(126_842, rel=0.01)
    small = bag_of_words_graph(400, 1200, 100, 4)
    source, target = small.edge_index
    assert (small.y[source] == small.y[target]).float().mean() > 0.6
    assert torch.equal(small.edge_index, bag_of_words_graph(400, 1200, 100, 4).edge_index)
    assert len(synthetic_stream(small, test=20)) == 2


def test_a_fresh_process_reports_its_result_or_its_error() -> None:
    assert in_fresh_process("ergnn.bench.measure:machine")["torch"] == torch.__version__
    with pytest.raises(RuntimeError, match="corafull_stream failed"):
        in_fresh_process("ergnn.bench.cases:corafull_stream", "one", 1)


def test_the_command_measures_prints_and_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    assert main(["bench", "step", "--quick", "--json", str(file)]) == 0
    assert "step: gat on Cora" in capsys.readouterr().out
    rows = json.loads(file.read_text())["measurements"]
    assert len(rows) == 5
    assert all(row["ours"] > 0 and row["peer"] > 0 for row in rows)
