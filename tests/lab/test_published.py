"""Tables published by others: their numbers, the configurations of their rows, and a small run of each."""

import os
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from ergnn import make_stream
from ergnn.cli.main import main, make_parser
from ergnn.cli.run import config_of
from ergnn.data.datasets import DATASETS, PublicSplitUnavailable, load_graph
from ergnn.lab.config import RunConfig
from ergnn.lab.grid import Experiment
from ergnn.lab.published import GSIP, PUBLISHED, TUNED
from ergnn.lab.report.rows import ResultRow
from ergnn.lab.reproduce import GridCell, Options, cells, experiment_sections
from ergnn.lab.result import SeedResult
from ergnn.lab.run import StreamCache, check_run, run_members
from ergnn.lab.store import RunStore
from ergnn.learning.metrics import AccuracyMatrix
from lab.tiny import with_runs

needs_data = pytest.mark.skipif(not os.environ.get("ERGNN_DATA"), reason="ERGNN_DATA is not set")


def test_fm_is_minus_the_printed_change_and_joint_networks_learn_all_classes_at_once() -> None:
    values = [value for experiment in PUBLISHED for row in experiment.rows for value in row.published.values()]
    changes = [(value["fm"], value["bwt"]) for value in values if "bwt" in value]
    assert changes
    assert all(fm == -bwt for fm, bwt in changes)
    joint = next(row for row in TUNED.rows if row.label == "joint GAT")
    for name in TUNED.datasets:
        settings = TUNED.settings(joint, name)
        assert settings["classes_per_task"] == DATASETS.get(name).classes
        assert (settings["backbone_options"]["heads"], settings["backbone_options"]["output"]) == (1, "linear")
    assert joint.published["tolokers"] == {"score": 0.837}


def planned(experiment: Experiment, **options: object) -> list[GridCell]:
    return cells(experiment, Options(datasets=experiment.datasets[:1], **options))  # type: ignore[arg-type]


@needs_data
@pytest.mark.parametrize(
    "experiment",
    [  # the first data set of graphkeeper takes long to load
        pytest.param(one, id=one.name, marks=pytest.mark.slow if one.name == "graphkeeper" else ()) for one in PUBLISHED
    ],
)
def test_every_row_resolves_or_is_not_implemented_and_its_command_gives_its_configuration(
    experiment: Experiment,
) -> None:
    for cell in planned(experiment):
        assert cell.reason == ("" if cell.row.settings else "not implemented"), cell.row.label
        if cell.config is not None:
            assert config_of(make_parser().parse_args(shlex.split(cell.command)[1:])).resolved() == cell.config
            assert cell.config.seeds == experiment.settings(cell.row, cell.dataset).get("seeds", 10)


@needs_data
def test_the_validation_split_learns_train_and_test_nodes_and_scores_validation_nodes() -> None:
    public = load_graph("cora", split="public").graph.public_split
    stream = make_stream("cora", split="validation", classes_per_task=1).stream
    learned, scored = (torch.cat([getattr(task, name) for task in stream]).sort()[0] for name in ("train", "test"))
    assert learned.equal(torch.cat([public.train, public.test]).sort()[0])
    assert scored.equal(public.val.sort()[0])
    assert sum(task.val.numel() for task in stream) == 0


@needs_data
def test_the_tuned_split_is_that_of_its_file_and_folds_are_those_of_the_seeds() -> None:
    with np.load(Path(os.environ["ERGNN_DATA"]) / "tuned_splits" / "amazon-photo_split.npz") as ids:
        stream = make_stream("amazon-photo", split="tuned", classes_per_task=1, split_seed=3).stream
        for name, key in (("train", "train"), ("val", "valid"), ("test", "test")):
            nodes = torch.cat([getattr(task, name) for task in stream]).sort()[0]
            assert nodes.tolist() == sorted(ids[key].tolist())
    folds = [make_stream("chameleon", split="folds", split_seed=seed).stream for seed in (2, 12, 3)]
    alone = make_stream("chameleon", split="public", dataset_options={"fold": 2}).stream
    assert folds[0][0].train.equal(folds[1][0].train)
    assert folds[0][0].train.equal(alone[0].train)
    assert not folds[0][0].train.equal(folds[2][0].train)
    for split in ("tuned", "folds"):
        with pytest.raises(PublicSplitUnavailable, match=r"Cora.* was|for Cora"):
            make_stream("cora", split=split)


def test_two_competing_classes_are_also_scored_by_the_area_under_the_curve() -> None:
    config = RunConfig("cora", scenario="class", method="nearest-mean", classes_per_task=1, first_tasks=2, seeds=1)
    config = config.with_settings(split="20/30/rest").resolved()
    ((result,),) = run_members(config)
    ((preset, learner),) = [check_run(config, StreamCache(), (0, 0))]
    for task in preset.stream:
        learner.observe(task)
    nodes = torch.cat([task.test for task in preset.stream])
    truth = (preset.stream[0].graph.y[nodes] == learner.classes().max()).numpy()
    scores = learner.predict_proba(nodes)[:, int(learner.classes().argmax())].numpy()
    assert result.history[-1]["roc_auc"] == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)
    with RunStore(":memory:") as store:
        store.put_all(config, [result])
        row = ResultRow(list(store.finished(config).values()))
    assert row.summary("score").mean == result.history[-1]["roc_auc"]
    assert row.summary("micro").mean == pytest.approx((truth == (scores > 0.5)).mean(), abs=1e-6)


def test_printed_numbers_stand_beside_ours_with_sign_and_protocol() -> None:
    (cell,) = [cell for cell in planned(GSIP, seeds=1) if cell.row.label == "fine-tune"]
    matrix = AccuracyMatrix([[1.0], [0.1, 0.9], [0.0, 0.3, 0.8]])
    cell = with_runs(cell, [SeedResult(0, 0, [[0]] * 3, matrix, [], 0, [])])
    results = [cell, *(c for c in planned(GSIP, seeds=1) if c.row.label == "SSRM")]
    (page,) = experiment_sections(GSIP, results)
    assert list(page.table.header) == ["%", "AA paper", "AA ours", "diff", "BWT paper", "BWT ours", "diff"]
    assert list(page.table.rows[0][1:]) == ["32.60", "36.67", "+4.07", "-96.80", "-80.00", "+16.80"]
    assert list(page.table.rows[1][1:]) == ["35.50", "–", "–", "-70.00", "–", "–"]
    text = page.render("markdown")
    assert "which reveals label information" in text
    assert "Unknown: memory per class" in text
    assert "SSRM is unavailable: not implemented" in text


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", [experiment.name for experiment in PUBLISHED])
def test_every_command_writes_its_table(name: str, tmp_path: Path) -> None:
    assert main(["reproduce", name, "--quick", "--seeds", "1", "--out", str(tmp_path), "--jobs", "1"]) == 0
    assert (tmp_path / f"{name}.md").exists()
