"""Runs: members side by side equal members alone; seeds, orders and splits are crossed as the configuration says."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ergnn.data import make_stream
from ergnn.experiments import RunConfig, run
from ergnn.experiments.run import make_learner
from ergnn.learner import Learner
from ergnn.metrics import AccuracyMatrix, forgetting_mean, performance_mean

QUICK = RunConfig("cora", "gcn", selector="mf*", split="seeded", seeds=3, epochs=4)


def alone(config: RunConfig, seed: int, order: int = 0) -> tuple[AccuracyMatrix, list[int]]:
    """One member by the public loop: its own stream, its own learner, one task after another."""
    config = config.resolved()
    stream = make_stream(
        config.dataset,
        split="seeded",
        split_seed=seed,
        class_order=config.parsed_class_order(),
        order_seed=order,
        inter_task_edges=config.edges,
    ).stream
    learner: Learner = make_learner(config, seed)
    rows = []
    for task in stream:
        learner.observe(task)
        rows.append([learner.evaluate(seen) for seen in stream[: task.id + 1]])
    buffer = learner.method.buffer
    return AccuracyMatrix(rows), buffer.nodes.tolist() if buffer else []


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
def test_members_side_by_side_are_the_members_alone(settings: dict[str, Any]) -> None:
    config = replace(QUICK, **settings)
    result = run(config)
    for seed, (member, ids) in enumerate(zip(result["runs"], result["buffer"]["ids"], strict=True)):
        matrix, remembered = alone(config, seed)
        assert AccuracyMatrix(member["matrix"]) == matrix
        assert ids == remembered


def test_more_members_than_a_batch_holds_are_all_there_once() -> None:
    result = run(replace(QUICK, backbone="sgc", seeds=12, epochs=1))
    assert result["seeds"] == list(range(12))
    assert [member["seed"] for member in result["runs"]] == list(range(12))
    assert result["pm"]["n"] == 12


def test_seeds_are_crossed_with_class_orders() -> None:
    config = replace(QUICK, class_order="shuffled", orders=2, seeds=2, first_seed=5)
    result = run(config)
    assert [(member["order"], member["seed"]) for member in result["runs"]] == [(0, 5), (0, 6), (1, 5), (1, 6)]
    orders = [member["classes"] for member in result["runs"]]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2] == orders[3]
    assert len({c for classes in orders[2] for c in classes}) == 6
    matrix, _ = alone(config, seed=6, order=1)
    assert AccuracyMatrix(result["runs"][3]["matrix"]) == matrix
    assert result["tasks"] is None, "tasks of different orders have no common name"
    assert any("class orders: 2 shuffled × 2 seed(s)" in note for note in result["notes"])


def test_measures_sum_up_the_members() -> None:
    result = run(replace(QUICK, denominator="M"))
    matrices = [AccuracyMatrix(member["matrix"]) for member in result["runs"]]
    pm = [performance_mean(matrix) for matrix in matrices]
    fm = [forgetting_mean(matrix, "M") for matrix in matrices]
    assert result["pm"]["mean"] == pytest.approx(statistics.mean(pm))
    assert result["pm"]["std"] == pytest.approx(statistics.stdev(pm))
    assert result["fm"]["mean"] == pytest.approx(statistics.mean(fm))
    assert result["fm"]["denominator"] == "M"
    mean = np.mean([matrix.values for matrix in matrices], axis=0)
    assert AccuracyMatrix(result["matrix"]) == AccuracyMatrix(mean)


def test_a_seeded_split_is_drawn_anew_by_each_seed() -> None:
    ids = run(replace(QUICK, selector="mf", seeds=2))["buffer"]["ids"]
    assert ids[0] != ids[1], "MF has no randomness but the split's"


def test_without_the_public_split_a_note_says_what_is_used_instead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ERGNN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = replace(QUICK, split="auto", seeds=1, epochs=1)
    result = run(config)
    assert result["split"] == "seeded"
    assert any(note.startswith("using a seeded split: cora: ") for note in result["notes"])
    asked_for = run(replace(config, split="seeded"))
    assert not any("seeded split" in note for note in asked_for["notes"])
    assert asked_for["runs"] == result["runs"]


def test_the_public_split_is_one_for_all_seeds(data_root: Path) -> None:
    result = run(replace(QUICK, split="public", selector="mf", seeds=2))
    assert result["split"] == "public"
    assert result["buffer"]["ids"][0] == result["buffer"]["ids"][1]


def test_the_papers_number_stands_beside_a_setting_that_the_paper_has() -> None:
    paper = replace(QUICK, seeds=1, epochs=1, selector="mf*", protocol="paper")
    assert run(replace(paper, backbone="gat"))["paper"]["fm"] == 0.2188
    assert run(replace(paper, backbone="gcn"))["paper"] is None
    assert run(replace(paper, backbone="gat", protocol="clean"))["paper"] is None


def test_progress_counts_every_epoch_of_every_member() -> None:
    for method in ("replay", "ewc"):  # side by side, and one after another
        done: list[int] = []
        run(replace(QUICK, method=method, epochs=5), done.append)
        assert sum(done) == 3 * 3 * 5
