"""Runs: members trained together equal single ones; seeds, orders and splits are crossed as configured."""

import json
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ergnn.config.errors import InputError
from ergnn.config.learner_config import LearnerConfig
from ergnn.data import make_stream
from ergnn.lab.config import RunConfig
from ergnn.lab.result import RunResult
from ergnn.lab.run import StreamCache, make_config_stream, make_learner, members_of, peak_memory_mb, run, streams_of
from ergnn.learning.evaluation import evaluate_stream
from ergnn.learning.learner import Learner
from ergnn.learning.metrics import AccuracyMatrix, forgetting_mean, performance_mean
from ergnn.methods.replay import Replay

QUICK = RunConfig("cora", backbone="gcn", split="seeded", seeds=3, epochs=4)


def summary(config: RunConfig) -> dict[str, Any]:
    """The object that ``ergnn run --json`` prints."""
    return run(config).to_dict()


def alone(config: RunConfig, seed: int, order: int = 0) -> tuple[AccuracyMatrix, list[int]]:
    """One member by the public loop: its own stream, its own learner, one task after another."""
    config = config.resolved()
    stream = make_stream(
        config.dataset,
        split="seeded",
        split_seed=seed,
        class_order=config.parsed_class_order(),
        order_seed=order,
        edges=config.edges,
    ).stream
    learner: Learner = make_learner(config.learner, seed)
    matrix = evaluate_stream(learner, stream)
    buffer = learner.method.buffer
    return matrix, buffer.nodes.tolist() if buffer else []


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"backbone": "gat", "selector": "im", "protocol": "paper"},
        {"method": "finetune", "backbone": "sage", "edges": "seen"},
        {"method": "joint", "backbone": "sgc"},
        {"selector": "random", "replay": "ego", "per_class": 2, "loss_scale": "balanced"},
    ],
    ids=str,
)
def test_members_trained_together_equal_single_members(settings: dict[str, Any]) -> None:
    config = replace(QUICK, **settings)
    result = summary(config)
    for seed, (member, ids) in enumerate(zip(result["runs"], result["buffer"]["ids"], strict=True)):
        matrix, remembered = alone(config, seed)
        assert AccuracyMatrix(member["matrix"]) == matrix
        assert ids == remembered


def test_seeds_are_crossed_with_class_orders() -> None:
    config = replace(QUICK, class_order="shuffled", orders=2, seeds=2, first_seed=5)
    result = summary(config)
    assert [(member["order"], member["seed"]) for member in result["runs"]] == [(0, 5), (0, 6), (1, 5), (1, 6)]
    orders = [member["classes"] for member in result["runs"]]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2] == orders[3]
    assert len({c for classes in orders[2] for c in classes}) == 6
    matrix, _ = alone(config, seed=6, order=1)
    assert AccuracyMatrix(result["runs"][3]["matrix"]) == matrix
    assert result["tasks"] is None, "tasks of different orders have no common name"
    assert any("class orders: 2 shuffled × 2 seed(s)" in note for note in result["notes"])


def test_a_missing_public_split_is_explained_in_a_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ERGNN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = replace(QUICK, split="auto", seeds=1, epochs=1)
    result = summary(config)
    assert result["split"] == "seeded"
    assert any(note.startswith("using a seeded split: the public one is missing") for note in result["notes"])
    asked_for = summary(replace(config, split="seeded"))
    assert not any("seeded split" in note for note in asked_for["notes"])
    assert asked_for["runs"] == result["runs"]


def test_the_public_split_is_one_for_all_seeds(data_root: Path) -> None:
    result = summary(replace(QUICK, split="public", selector="mf", seeds=2))
    assert result["split"] == "public"
    assert result["buffer"]["ids"][0] == result["buffer"]["ids"][1]


def test_progress_counts_every_epoch_of_every_member() -> None:
    for method in ("replay", "ewc"):  # side by side, and one after another
        done: list[int] = []
        run(replace(QUICK, method=method, epochs=5), progress=done.append)
        assert sum(done) == 3 * 3 * 5


def test_a_result_summarizes_its_members_each_on_a_split_of_its_own() -> None:
    result = run(replace(QUICK, per_class=2, selector="mf", denominator="M"))
    assert isinstance(result, RunResult)
    assert {member.data for member in result.members} == {"cora"}
    assert result.config.learner.method_options == {"per_class": 2, "selector": "mf"}
    assert (result.pm.n, result.fm.n, result.aa.n) == (3, 3, 3)
    shown = result.to_dict()
    assert (shown["pm"], shown["aa"]) == (vars(result.pm), vars(result.aa))
    assert shown["fm"] == {**vars(result.fm), "denominator": "M"}
    assert [AccuracyMatrix(part["matrix"]) for part in shown["runs"]] == result.matrices
    pm, fm = [performance_mean(m) for m in result.matrices], [forgetting_mean(m, "M") for m in result.matrices]
    assert (result.pm.mean, result.pm.std) == pytest.approx((statistics.mean(pm), statistics.stdev(pm)))
    assert result.fm.mean == pytest.approx(statistics.mean(fm))
    assert AccuracyMatrix(shown["matrix"]) == AccuracyMatrix(np.mean([m.values for m in result.matrices], axis=0))
    ids = shown["buffer"]["ids"]
    assert ids[0] != ids[1], "MF has no randomness but the split's"
    assert (shown["selector"], shown["per_class"], shown["method_options"]["replay"]) == ("mf", 2, "live")
    json.loads(json.dumps(shown, allow_nan=False))


def test_a_custom_stream_runs_with_several_seeds() -> None:
    stream = make_stream("cora", split="seeded").stream
    config = LearnerConfig("gcn", epochs=4, method_options={"per_class": 2})
    result = run(stream, config, seeds=[0, 3])
    assert (result.config.dataset, result.seeds, result.to_dict()["protocol"]) == ("cora", [0, 3], None)
    for seed, matrix in zip(result.seeds, result.matrices, strict=True):
        assert matrix == evaluate_stream(Learner(replace(config, seed=seed)), stream)
    assert run(stream, config, seeds=1).matrices == result.matrices[:1]
    json.loads(json.dumps(result.to_dict(), allow_nan=False))


def test_seeds_do_not_share_a_method_object() -> None:
    stream = make_stream("cora", split="seeded").stream
    config = LearnerConfig("gcn", Replay(per_class=2), epochs=2)
    result = run(stream, config, seeds=2)
    assert [len(member.buffer_ids) for member in result.members] == [12, 12]
    assert len(config.method.buffer) == 0  # type: ignore[union-attr,arg-type]


def test_settings_in_addition_to_a_configuration_are_rejected() -> None:
    with pytest.raises(InputError, match="a RunConfig already contains learner, seeds and denominator"):
        run(QUICK, seeds=3)
    with pytest.raises(InputError, match=r"seeds is \[\]; at least one is needed"):
        run(make_stream("cora", split="seeded").stream, seeds=[])


def test_the_module_that_only_unix_has_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.setattr(Path, "exists", lambda path: False)
    assert peak_memory_mb() > 10


def test_streams_share_equal_graphs_and_each_is_what_it_would_be_alone() -> None:
    settings = {"method": "finetune", "backbone": "gcn", "split": "0.1/0.1/0.2", "class_order": "shuffled"}
    for edges, graphs in (("all", 1), ("own", 2)):
        config = RunConfig("cora", scenario="class", edges=edges, orders=2, seeds=2, **settings).resolved()
        streams = [preset.stream for preset in streams_of(config, members_of(config))]
        assert len({id(stream[0].graph) for stream in streams}) == graphs
        assert len({id(stream[0].graph.x) for stream in streams}) == 1
        for (seed, order), stream in zip(members_of(config), streams, strict=True):
            for task, alone in zip(stream, make_config_stream(config, seed, order).stream, strict=True):
                assert torch.equal(task.graph.edge_index, alone.graph.edge_index)
                assert all(torch.equal(getattr(task, part), getattr(alone, part)) for part in ("train", "val", "test"))


def test_a_cache_keeps_the_streams_of_the_last_members() -> None:
    cache, settings = StreamCache(), {"scenario": "class", "split": "seeded", "seeds": 2, "method": "finetune"}
    configs = [RunConfig("cora", epochs=epochs, **settings).resolved() for epochs in (1, 2)]
    members = members_of(configs[0])
    first, second = (cache.get(config, members) for config in configs)
    for preset, again in zip(first, second, strict=True):
        assert again.stream[0].graph.x is preset.stream[0].graph.x
        assert again.stream[0].graph is not preset.stream[0].graph  # caches per graph do not grow
    for changed, some in (
        ({"edges": "own"}, members),
        ({"first_tasks": 1}, members),
        ({"split": "0.1/0.1/0.1"}, members),
        ({}, members[:1]),
    ):
        config = configs[0].with_settings(**changed).resolved()
        presets, expected = cache.get(config, some), streams_of(config, some)
        assert [len(preset.stream) for preset in presets] == [len(preset.stream) for preset in expected]
        for preset, other in zip(presets, expected, strict=True):
            assert torch.equal(preset.stream[0].train, other.stream[0].train)
            assert torch.equal(preset.stream[0].graph.edge_index, other.stream[0].graph.edge_index)
