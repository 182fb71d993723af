"""Benchmarks: the reference computes the same function, and results are saved and compared."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.cases import CASES
from benchmarks.command import bench_table, load, measurements_of, save
from benchmarks.graphs import bag_of_words_graph, corafull_like, synthetic_stream
from benchmarks.measure import Measurement, in_fresh_process
from benchmarks.plain import PlainLearner, plain_model
from ergnn.data import make_stream
from ergnn.engine.objective import make_objective
from ergnn.learning.learner import Learner
from ergnn.learning.observing import begin
from ergnn.replay.selectors import SELECTORS


def test_saved_results_are_compared_with_a_new_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    save([Measurement("step", 1.0, 20.0, "ms", 1)], file)
    assert load(file)["measurements"][0]["ratio"] == 20.0
    text = bench_table([Measurement("step", 2.0, 20.0, "ms", 1)], load(file)).to_text()
    assert "10.0 ×" in text
    assert "20.0 ×" in text
    measured = [Measurement("a", 2.0, None, "MB", 2, "note", 3), Measurement("size: 1,000 nodes", 1.0, 1.25, "ms", 1)]
    save(measured, file)
    assert measurements_of(load(file)) == measured
    plot = tmp_path / "figures.svg"
    assert main(["--show", str(file), "--format", "markdown", "--plot", str(plot)]) == 0
    assert "| size: 1,000 nodes | 1 | 1.00 ms | 1.25 ms | 1.25 × |" in capsys.readouterr().out
    assert "<svg" in plot.read_text()


def test_every_case_is_listed_and_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    readme = (Path(__file__).parents[2] / "benchmarks" / "README.md").read_text(encoding="utf-8")
    for name, function in CASES.items():
        assert f"{name:<10} {function.__doc__.splitlines()[0]}" in listed
        assert f"| `{name}` |" in readme


def test_results_are_saved_after_each_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "figures.json"

    def one(threads: int, quick: bool) -> list[Measurement]:
        return [Measurement("one", 1.0, 2.0, "s", threads)]

    def other(threads: int, quick: bool) -> list[Measurement]:
        kept = json.loads(file.read_text())
        assert (kept["quick"], len(kept["measurements"])) == (True, 2 * threads - 1)
        return [Measurement("other", 3.0, 2.0, "s", threads)]

    monkeypatch.setitem(CASES, "one", one)
    monkeypatch.setitem(CASES, "other", other)
    assert main(["one", "other", "--quick", "--threads", "1,2", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["measurements"]
    assert [(row["name"], row["threads"]) for row in rows] == [("one", 1), ("other", 1), ("one", 2), ("other", 2)]


@pytest.mark.parametrize("name", ["gat", "gcn", "sage", "gin", "sgc"])
def test_reference_is_the_same_function_of_its_parameters(name: str) -> None:
    task = make_stream("cora", split="seeded").stream[0]
    learner = Learner(name, "finetune", head="shared")
    begin(learner, task)
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


def test_reference_influence_ranks_nodes_as_ours() -> None:
    task = make_stream("cora", split="seeded", edges="own").stream[0]
    learner = Learner("gat", "finetune", head="shared", epochs=40)
    learner.observe(task)
    peer = PlainLearner("gat", task.graph.num_features, 2)
    with torch.no_grad():
        for p, q in zip(
            peer.model.parameters(), [*learner.model.convs.parameters(), *learner.model.heads.parameters()], strict=True
        ):
            p.copy_(q)
    examples = learner.method.examples(learner, task)
    context = learner.selection_context(task, examples, 1, False)
    ours = SELECTORS.create("im", tolerance=1e-6).score(context)
    theirs = peer.influence(task, iterations=200)
    assert torch.corrcoef(torch.stack([ours, theirs]))[0, 1] > 0.999


def test_synthetic_graph_has_the_requested_shape() -> None:
    graph = corafull_like().validate()
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (19_793, 8_710, 70)
    assert graph.num_edges == pytest.approx(126_842, rel=0.01)
    small = bag_of_words_graph(400, 1200, 100, 4)
    source, target = small.edge_index
    assert (small.y[source] == small.y[target]).float().mean() > 0.6
    assert torch.equal(small.edge_index, bag_of_words_graph(400, 1200, 100, 4).edge_index)
    assert len(synthetic_stream(small, test=20)) == 2


def test_a_fresh_process_reports_its_result_or_its_error() -> None:
    assert in_fresh_process("benchmarks.measure:machine")["torch"] == torch.__version__
    with pytest.raises(RuntimeError, match="corafull_stream failed"):
        in_fresh_process("benchmarks.cases.large:corafull_stream", "one", 1)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "coverage" else pytest.mark.slow) for name in CASES]
)
def test_a_case_measures_something(name: str) -> None:
    measured = CASES[name](torch.get_num_threads(), True)
    assert measured
    assert all(m.ours > 0 and (m.peer is None or m.peer > 0) for m in measured)
    assert len({m.name for m in measured}) == len(measured)
