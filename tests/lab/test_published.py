"""Tables published by others: their numbers, the configurations of their rows, and a small run of each."""

import os
import shlex
from dataclasses import replace
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
from ergnn.lab.published import BEGIN, GRAPHKEEPER, GSIP, HOP_RAL, LGL, PUBLISHED, TUNED
from ergnn.lab.report.experiments import experiment_sections
from ergnn.lab.report.rows import ResultRow
from ergnn.lab.reproduce import GridCell, Options, cells
from ergnn.lab.result import SeedResult
from ergnn.lab.run import StreamCache, check_run, run_members
from ergnn.lab.store import RunStore
from ergnn.learning.metrics import AccuracyMatrix

# A second transcription of the printed tables, independent of the one in the package.
BEGIN_PRINTED = """
bare 91.0 83.4 53.9 44.7
LwF 91.5 85.9 55.0 46.4
EWC 91.2 83.7 56.7 45.2
MAS 91.8 84.3 74.1 56.0
GEM 88.2 83.3 61.8 48.2
TWP 91.0 81.0 56.4 45.0
ER-GNN 89.0 82.9 60.9 45.7
ContinualGNN 91.1 83.2 72.3 53.1
PackNet 93.3 84.5
Piggyback 93.8 84.6
HAT 92.0 83.3
joint 92.6 85.1 79.4 55.6
"""
GSIP_PRINTED = """
fine-tune | 32.6 -96.8 | 31.5 -77.9
SSRM | 35.5 -70.0 | 51.9 -67.7
ER-GNN | 65.5 -46.1 | 47.7 -51.1
ER-GNN + GSIP | 71.3 -37.0 | 61.3 -29.4
SSM | 67.6 -19.8 | 61.0 -13.6
CaT | 88.2 -4.4 | 75.1 -10.9
CaT + GSIP | 89.6 1.8 | 77.0 -10.0
joint | 93.1 | 78.3
"""
OTHERS = {
    "hop-ral": {"fine-tune": 19.8, "EWC": 19.7, "ER-GNN": 20.0, "AL-GNN": 56.7, "joint": 95.7, "HOP-RAL": 96.8},
    "lgl": {"200 cora": 82.7, "500 cora": 88.0, "200 citeseer": 71.2, "500 citeseer": 74.6}
    | {"200 pubmed": 82.6, "500 pubmed": 87.6},
    "graphkeeper": {"fine-tune": (20.9, -81.3), "ER-GNN": (28.7, -66.3), "TPP": (57.1, 0.0), "PDGNN": (65.5, -11.4)}
    | {"DeLoMe": (70.2, -1.0), "joint": 78.0, "GraphKeeper": (80.6, 0.0)},
}
TUNED_PRINTED = """
GCN       96.10 93.99 96.17 85.10 73.14 81.12 83.64 46.29
GraphSAGE 96.78 93.25 96.38 83.88 72.26 79.72 82.43 44.81
GAT       96.60 94.09 96.21 84.46 72.22 80.28 83.70 44.13
"""
needs_data = pytest.mark.skipif(not os.environ.get("ERGNN_DATA"), reason="ERGNN_DATA is not set")


def printed(experiment: Experiment) -> dict[tuple[str, str], tuple[float, ...]]:
    """AP and, if printed, AF in percent by row and data set."""
    return {
        (row.label, dataset): tuple(round(100 * value[name], 1) for name in ("aa", "bwt") if name in value)
        for row in experiment.rows
        for dataset, value in row.published.items()
    }


def test_begins_numbers_are_those_of_its_curves() -> None:
    expected = {}
    for line in BEGIN_PRINTED.strip().splitlines():
        name, *values = line.split()
        places = [(scenario, graph) for scenario in ("task", "class") for graph in ("cora", "citeseer")]
        for (scenario, graph), value in zip(places, values, strict=False):
            expected[f"{name}, {scenario}-incremental", graph] = (float(value),)
    assert printed(BEGIN) == expected


def test_gsips_numbers_are_those_of_its_table_and_fm_is_minus_af() -> None:
    expected = {}
    for line in GSIP_PRINTED.strip().splitlines():
        name, *columns = (part.strip() for part in line.split("|"))
        for graph, values in zip(("cora", "citeseer"), columns, strict=True):
            expected[name, graph] = tuple(map(float, values.split()))
    found: dict[tuple[str, str], set[tuple[float, ...]]] = {}
    for (label, graph), values in printed(GSIP).items():
        found.setdefault((label.partition(", e = ")[0], graph), set()).add(values)
    assert found == {key: {values} for key, values in expected.items()}
    assert all(value.get("fm", 0) == -value.get("bwt", 0) for row in GSIP.rows for value in row.published.values())


@pytest.mark.parametrize("experiment", [HOP_RAL, LGL, GRAPHKEEPER], ids=lambda one: one.name)
def test_the_other_numbers_are_as_printed(experiment: Experiment) -> None:
    found = {f"{label} {dataset}": values for (label, dataset), values in printed(experiment).items()}
    expected = OTHERS[experiment.name]
    assert len(found) == len(expected)
    for words, value in expected.items():
        (match,) = [v for k, v in found.items() if all(word in k for word in words.split()) and _starts(k, words)]
        assert match == (value if isinstance(value, tuple) else (value,)), words


def test_scores_of_tuned_networks_are_as_printed_and_as_large_as_theirs() -> None:
    found = {
        row.label: {name: round(100 * one["score"], 2) for name, one in row.published.items()} for row in TUNED.rows
    }
    for line in TUNED_PRINTED.strip().splitlines():
        name, *values = line.split()
        assert found[f"joint {name}"] == dict(zip(TUNED.datasets, map(float, values), strict=True))
    graphs = {dataset: DATASETS.get(dataset).classes for dataset in TUNED.datasets}
    joint = next(row for row in TUNED.rows if row.label == "joint GAT")
    assert {name: TUNED.settings(joint, name)["classes_per_task"] for name in graphs} == graphs
    options = {name: TUNED.settings(joint, name)["backbone_options"] for name in graphs}
    assert {(one["heads"], one["output"]) for one in options.values()} == {(1, "linear")}


def _starts(name: str, words: str) -> bool:
    return name.startswith(words.split()[0]) or words[0].isdigit() or "AL-GNN" in words


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
        if cell.given is not None:
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
        row = ResultRow(store.members(config))
    assert row.summary("score").mean == result.history[-1]["roc_auc"]
    assert row.summary("micro").mean == pytest.approx((truth == (scores > 0.5)).mean(), abs=1e-6)


def test_printed_numbers_stand_beside_ours_with_sign_and_protocol() -> None:
    (cell,) = [cell for cell in planned(GSIP, seeds=1) if cell.row.label == "fine-tune"]
    matrix = AccuracyMatrix([[1.0], [0.1, 0.9], [0.0, 0.3, 0.8]])
    with RunStore(":memory:") as store:
        store.put_all(cell.config, [SeedResult(0, 0, [[0]] * 3, matrix, [], 0, [])])
        cell = replace(cell, runs=store.members(cell.config))
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
