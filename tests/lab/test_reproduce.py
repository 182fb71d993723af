"""Tables from stored runs; resumed work; commands that reproduce a row."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ergnn.cli.main import main, make_parser
from ergnn.cli.run import config_of
from ergnn.config.errors import InputError
from ergnn.lab.config import RunConfig, member_key
from ergnn.lab.engines import Unit, run_units, units_of
from ergnn.lab.grid import FIGURE_3, TABLE_2
from ergnn.lab.reproduce import EXPERIMENTS, GridCell, Options, cells, command_of, experiment_sections, paired_tests_of
from ergnn.lab.run import SeedResult
from ergnn.lab.store import RunStore
from ergnn.learning.metrics import AccuracyMatrix
from lab.tiny import OPTIONS, TINY, run_tiny, with_runs

TABLES = ("tiny.txt", "tiny.md", "tiny.tex")
HERE = Path(__file__).parent


def rows_of(path: Path) -> dict[str, tuple[str, float, list[list[float | None]]]]:
    with RunStore(path, create=False) as store:
        return {run.key: (run.finished_at, run.seconds, run.matrix.to_list()) for run in store.runs()}


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny grid, done without interruption."""
    out = tmp_path_factory.mktemp("whole")
    runner = run_tiny(str(out))
    assert (len(runner.outcomes), runner.failed) == (10, [])
    return out


def test_a_killed_run_resumes_and_gives_the_same_tables(whole: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])}
    program = subprocess.Popen(
        [sys.executable, "-m", "lab.tiny", str(tmp_path), "2"], env=environment, stdout=subprocess.PIPE, text=True
    )
    told = [program.stdout.readline() for _ in range(2)]
    program.send_signal(signal.SIGKILL)
    program.wait()
    workers = [int(pid) for pid in told[0].split()]
    assert len(workers) == 2
    deadline = time.monotonic() + 60
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, workers))

    store = tmp_path / "runs.sqlite"
    before, expected = rows_of(store), rows_of(whole / "runs.sqlite")
    assert 8 <= len(before) < len(expected) == 40
    assert len(before) % 4 == 0  # batches are kept whole
    with pytest.raises(InputError, match=rf"contains {len(before)} finished runs; use --resume to continue"):
        run_tiny(str(tmp_path))
    resumed = run_tiny(str(tmp_path), resume=True)
    after = rows_of(store)
    assert len(resumed.outcomes) == (len(expected) - len(before)) // 4
    assert {key: after[key] for key in before} == before  # to the second: nothing was done again
    assert {key: row[2] for key, row in after.items()} == {key: row[2] for key, row in expected.items()}
    for name in TABLES:
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()
    assert not run_tiny(str(tmp_path), resume=True).outcomes


def test_tables_match_the_store(whole: Path) -> None:
    text = (whole / "tiny.txt").read_text(encoding="utf-8")
    results = json.loads((whole / "results.json").read_text(encoding="utf-8"))["experiments"]["tiny"]["rows"]
    with RunStore(whole / "runs.sqlite", create=False) as store:
        (cell,) = [c for c in cells(TINY, OPTIONS) if (c.dataset, c.row.label) == ("citeseer", "ER-GAT MF")]
        stored = store.result(cell.config)
    (row,) = [r for r in results if (r["dataset"], r["row"]) == ("citeseer", "ER-GAT MF")]
    assert row["fm"] == vars(stored.fm)
    assert row["fm"]["n"] == 4
    assert f"{100 * row['fm']['mean']:.2f} ± {100 * row['fm']['ci95']:.2f}" in text
    assert f"{100 * (row['pm']['mean'] - 0.8003):+.2f}" in text
    assert "ER-GAT Nobody is unavailable: unknown selector 'nobody'" in text
    assert "ER-GAT IM, test (leaky)" in text
    assert "too few pairs to show any difference" in text
    assert row["command"] in text
    assert (whole / "tiny.md").read_text(encoding="utf-8").count("| ER-GAT MF |") == 2
    assert (whole / "tiny.tex").read_text(encoding="utf-8").count(r"\toprule") == 2


def test_the_command_under_a_row_gives_its_configuration() -> None:
    options = Options(quick=True, datasets=["cora", "permuted-mnist"], split="seeded")
    for experiment in EXPERIMENTS.values():
        for cell in cells(experiment, options):
            if cell.config is not None:
                words = shlex.split(cell.command)
                assert config_of(make_parser().parse_args(words[1:])).resolved() == cell.config


def test_commands_quote_and_keep_types() -> None:
    given = RunConfig(selector="mf*", selector_options={"normalize": True, "distance": "cosine"}, weight_decay=0.0)
    assert "'mf*'" in command_of(replace(given, backbone="gat", selector="cm*")).replace("cm*", "mf*")
    assert config_of(make_parser().parse_args(shlex.split(command_of(given))[1:])) == given


def filled(cell_label: str, gain: float, experiment=TABLE_2) -> GridCell:
    """A row with runs whose FM falls with the gain."""
    dataset, seeds = "cora", 12
    options = Options(datasets=[dataset], split="seeded", protocol="paper", seeds=seeds)
    (row,) = [row for row in experiment.rows if row.label == cell_label]
    (cell,) = cells(replace(experiment, rows=[row]), options)
    results = [
        SeedResult(s, 0, [[0], [1]], AccuracyMatrix([[0.9, None], [0.5 + gain * (1 + s / 100), 0.8]]), [], 0, [])
        for s in range(seeds)
    ]
    return with_runs(cell, results)


def test_significant_differences_are_marked() -> None:
    rows = [
        filled("ER-GAT Random", 0.0),
        filled("ER-GAT MF*", 0.1),
        filled("ER-GAT CM", -0.1),
        filled("ER-GAT MF", 0.2),
    ]
    tests = paired_tests_of(TABLE_2, rows)
    assert len(tests) == 6
    (page,) = experiment_sections(TABLE_2, rows, tests)
    cells_of = {line[0]: line[page.table.header.index("FM ours")].split()[-1] for line in page.table.rows}
    assert cells_of["ER-GAT MF*"] == "†"
    assert cells_of["ER-GAT CM"] == "§¶"
    assert cells_of["ER-GAT MF"] == "†‡"
    assert cells_of["ER-GAT Random"] == "¶"
    assert any("for 3 tests" in note for note in page.notes)


def test_figure_3_has_one_column_per_e() -> None:
    rows = [filled(f"ER-GAT Random, e = {e}", 0.01 * e, FIGURE_3) for e in (1, 20)]
    (page,) = experiment_sections(FIGURE_3, [*rows, filled("joint training", 0.4, FIGURE_3)])
    assert list(page.table.header) == ["FM, %", "e = 1", "e = 20", "joint"]
    mean = rows[1].result.summary("fm").mean
    assert page.table.rows[0][2].startswith(f"{100 * mean:.2f} ±")
    assert page.table.rows[1][:3] == ["joint training", "–", "–"]


def test_units_are_fixed_batches_and_none_is_planned_twice(tmp_path: Path) -> None:
    config = RunConfig(backbone="sgc", seeds=7).resolved()
    result = SeedResult(3, 0, [[0, 1]], AccuracyMatrix([[0.5]]), [], 0, [])
    with RunStore(tmp_path / "runs.sqlite") as store:
        store.put_all(config, [result])
        units = units_of(store, [config, replace(config, seeds=3), replace(config, denominator="M")], batch=3)
    assert [list(unit.members) for unit in units] == [[(0, 0), (1, 0), (2, 0)], [(4, 0), (5, 0)], [(6, 0)]]


def test_one_failure_does_not_stop_the_rest(tmp_path: Path) -> None:
    good = RunConfig(backbone="sgc", split="seeded", seeds=1, epochs=1).resolved()
    bad = replace(good, per_class=10_000)
    with RunStore(tmp_path / "runs.sqlite") as store:
        outcomes = run_units([Unit(bad, [(0, 0)]), Unit(good, [(0, 0)])], store)
        assert "10000" in outcomes[0].error.replace(",", "")
        assert outcomes[1].error == ""
        assert [run.key for run in store.runs()] == [member_key(good, 0, 0)]


def test_table_1_counts_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["reproduce", "table1", "--datasets", "cora,citeseer", "--out", str(tmp_path), "--jobs", "1"]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert (tmp_path / "table1.tex").exists()
    nodes = next(line for line in text.splitlines() if line.strip().startswith("nodes"))
    assert nodes.split("│")[1].split() == ["2,708", "2,708", "3,327", "3,327"]
    edges = next(line for line in text.splitlines() if line.strip().startswith("edges"))
    assert edges.split("│")[1].split() == ["–", "5,278", "–", "4,552"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "0"], "jobs is 0; it must be 1 or more"),
        (["--protocol", "dirty"], "unknown protocol 'dirty'"),
        (["--datasets", "corra"], "unknown dataset 'corra'"),
        (["--address", "auto"], "address is 'auto'; it is an option of the engine ray; this one is local"),
        (["--store", "mysql://me@there/runs"], "a run store cannot be at mysql://…"),
    ],
)
def test_bad_options_are_named(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "table2", "--out", str(tmp_path), *arguments]) == 2
    assert message in capsys.readouterr().err
