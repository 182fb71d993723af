"""The class-incremental table: its grid, a small run, and the script without a store."""

import json
import os
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ergnn import Learner, make_stream
from ergnn.lab.config import RunConfig
from ergnn.lab.engines import GridRunner
from ergnn.lab.grid import CLASS_INCREMENTAL
from ergnn.lab.reproduce import GridCell, Options, cells, reproduce, write_results
from ergnn.lab.run import members_of, streams_of
from ergnn.lab.store import RunStore

EXAMPLES = Path(__file__).parents[2] / "examples" / "class_incremental"
LABELS = ("nearest class mean", "analytic")


def planned(**options: object) -> list[GridCell]:
    return cells(CLASS_INCREMENTAL, Options(datasets=["cora"], **options))  # type: ignore[arg-type]


def test_each_seed_draws_its_split_and_its_class_order() -> None:
    config = planned(seeds=2, first_seed=7)[0].config
    assert members_of(config) == [(7, 7), (8, 8)]
    for seed, preset in zip((7, 8), streams_of(config, members_of(config)), strict=True):
        order = torch.randperm(7, generator=torch.Generator().manual_seed(seed)).tolist()
        assert [list(task.classes) for task in preset.stream] == [order[:2], order[2:4], order[4:]]
        alone = make_stream("cora", split="seeded", split_seed=seed).stream
        assert set(alone[0].train.tolist()) <= set(torch.cat([task.train for task in preset.stream]).tolist())


def test_seeded_orders_are_not_crossed_with_seeds() -> None:
    config = RunConfig("cora", class_order="seeded", seeds=3).resolved()
    assert len(members_of(config)) == 3
    with pytest.raises(ValueError, match="several orders need 'shuffled'"):
        RunConfig("cora", class_order="seeded", orders=2).resolved()


def test_a_small_table_runs_resumes_and_names_its_commands(tmp_path: Path) -> None:
    rows = [row for row in CLASS_INCREMENTAL.rows if row.label.partition(", edges")[0] in LABELS]
    small = replace(CLASS_INCREMENTAL, rows=rows, datasets=("cora",), common={**CLASS_INCREMENTAL.common, "epochs": 2})
    options = Options(seeds=2)
    runner = GridRunner(tmp_path)
    first = reproduce([small], options, runner)
    assert (len(runner.outcomes), runner.failed) == (4, [])
    reproduce([small], options, runner)
    assert len(runner.outcomes) == 4
    sections = write_results(first, [small], options, runner)
    text = sections[0].render("text")
    assert "each with its own class order" in text
    assert text.count("--class-order seeded") == 4
    assert "shuffled class orders" in (tmp_path / "report.html").read_text(encoding="utf-8")
    with RunStore(tmp_path / "runs.sqlite", create=False) as store:
        (analytic, _) = [cell for cell in cells(small, options) if cell.row.label.startswith("analytic")]
        assert store.result(analytic.config).aa.mean > 0.75


@pytest.mark.slow
def test_the_script_computes_accuracies_and_skips_finished_runs(tmp_path: Path) -> None:
    out = tmp_path / "table.jsonl"
    line = [sys.executable, "-W", "ignore", EXAMPLES / "table.py", "--datasets", "cora", "--rows", "analytic"]
    line += ["--edges", "seen", "--seeds", "3", "5", "--out", out]
    for repeated in range(2):
        done = subprocess.run(
            line, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        assert f"{1 - repeated} batches" in done.stdout
    found = [json.loads(text) for text in out.read_text().splitlines()]
    assert [record["seed"] for record in found] == [3, 4]
    for record in found:
        seed = record["seed"]
        orders = {"class_order": "shuffled", "order_seed": seed, "leftover": "last", "edges": "seen"}
        stream = make_stream("cora", split="seeded", split_seed=seed, **orders).stream
        learner = Learner(method="analytic", head="growing", seed=seed)
        for task in stream:
            learner.observe(task)
        right = [learner.predict(task.test) == task.graph.y[task.test] for task in stream]
        assert record["micro"] == pytest.approx(float(torch.cat(right).double().mean()))
        assert record["aa"] == pytest.approx(sum(float(part.double().mean()) for part in right) / 3)
        assert record["bytes"] == 16 * 140


@pytest.mark.slow
def test_trials_in_several_processes_give_the_same_record(tmp_path: Path) -> None:
    line = [sys.executable, "-W", "ignore", EXAMPLES / "against_joint.py", "cora", "--networks", "gcn"]
    line += ["--tuning-seeds", "0", "1", "--seeds", "1", "3", "--epochs", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for jobs in ("1", "2"):
        out = tmp_path / f"{jobs}.jsonl"
        subprocess.run([*line, "--jobs", jobs, "--out", out], check=True, capture_output=True, env=environment)
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "2.jsonl").read_bytes()
    record = json.loads((tmp_path / "1.jsonl").read_text())
    assert {name: len(values) for name, values in record["rows"].items()} == {"analytic": 2, "gcn": 2}
    assert record["chosen"]["gcn"]["trials"] == 24


def test_paired_differences_omit_missing_graphs(tmp_path: Path) -> None:
    rows = {"analytic": [[0.82, 0.8], [0.84, 0.8]], "gcn": [[0.8, 0.8], [0.82, 0.8]], "gat": [[0.9, 0.7], [0.8, 0.7]]}
    best = {"hidden": 16, "dropout": 0.5, "weight_decay": 5e-4, "normalize": True}
    lines = [
        {"dataset": name, "seeds": [0, 1], "chosen": {"gcn": best, "gat": best}, "rows": rows}
        for name in ("dblp", "cora", "dblp")
    ]
    path = tmp_path / "joint.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    script = runpy.run_path(str(EXAMPLES / "differences.py"))
    table = script["differences"](script["read"](path)).splitlines()[2:]
    assert [line.split("|")[1].strip() for line in table] == ["Cora", "DBLP"]
    cells_of = [cell.strip() for cell in table[0].split("|")[2:-1]]
    assert cells_of[2:4] == ["83.0 ± 12.7", "+2.0 ± 0.0"]
    assert cells_of[4].startswith("−2.0 ± ")
    assert cells_of[5:] == ["0.0 ± 0.0", "+10.0 ± 0.0"]
