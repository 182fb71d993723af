"""Engines compute units, and their results are stored once or rejected with a reason."""

import multiprocessing
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ergnn.cli.main import main
from ergnn.config import imports
from ergnn.config.errors import InputError
from ergnn.lab import engines
from ergnn.lab.config import RunConfig
from ergnn.lab.engines import GridRunner, LocalEngine, Outcome, Unit, run_units
from ergnn.lab.reproduce import Options, reproduce, write_results
from ergnn.lab.run import members_of, run_members
from ergnn.lab.store import RunStore
from lab.tiny import TINY

PLUGIN = """
from ergnn.methods import METHODS
from ergnn.methods.propagated import NearestMean

@METHODS.register("mine")
class Mine(NearestMean):
    pass
"""
FEW = replace(TINY, rows=TINY.rows[:2], datasets=("cora",), common={"epochs": 1}, baselines=())
OPTIONS = Options(seeds=2, class_orders=1, split="seeded")


def twice(units: Sequence[Unit]) -> Generator[Outcome, None, None]:
    """Like a cluster that loses the connection to a worker that is still running."""
    for computed in LocalEngine()(units):
        yield computed
        yield computed


def test_a_grid_goes_into_the_store_that_is_named(store_path: str, tmp_path: Path) -> None:
    runner = GridRunner(tmp_path / "out", store_path)
    write_results(reproduce([FEW], OPTIONS, runner), [FEW], OPTIONS, runner)
    assert (len(runner.outcomes), runner.failed) == (2, [])
    assert (tmp_path / "out" / "report.html").exists()
    assert not (tmp_path / "out" / "runs.sqlite").exists()
    with RunStore(store_path, create=False) as store:
        assert len(store) == 4
    with pytest.raises(InputError, match="contains 4 finished runs; use --resume to continue, or another --store"):
        GridRunner(tmp_path / "out", store_path)
    again = GridRunner(tmp_path / "out", store_path, resume=True)
    reproduce([FEW], OPTIONS, again)
    assert not again.outcomes


def test_units_computed_twice_are_stored_once(tmp_path: Path) -> None:
    runner = GridRunner(tmp_path, engine=twice)
    reproduce([FEW], OPTIONS, runner)
    assert runner.failed == []
    with RunStore(tmp_path / "runs.sqlite") as store:
        assert sorted((run.method, run.seed) for run in store.runs()) == [
            *(("finetune", 0), ("finetune", 1), ("replay", 0), ("replay", 1))
        ]


@pytest.mark.usefixtures("_plugins_are_forgotten")
def test_processes_import_plugins_wait_for_the_next_call_and_end_with_the_engine(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN, encoding="utf-8")
    imports.import_plugin(str(tmp_path / "mine.py"))
    config = RunConfig("cora", method="mine", split="seeded", seeds=2).resolved()
    engine, seen = LocalEngine(2), []
    for name in ("a", "b"):
        with RunStore(tmp_path / name) as store:
            outcomes = run_units([Unit(config, [(seed, 0)]) for seed in range(2)], store, engine=engine)
        assert [outcome.error for outcome in outcomes] == ["", ""]
        seen.append(set(multiprocessing.active_children()))
    assert len(seen[0]) == 2
    assert seen[0] == seen[1]
    del engine
    for worker in seen[0]:
        worker.join(60)
        assert worker.exitcode == 0


def test_a_batch_that_does_not_fit_into_memory_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is computed twice; an error remains if a single member does not fit."""
    config = RunConfig("cora", method="finetune", epochs=1, seeds=7, split="seeded").resolved()
    most, sizes = 3, []

    def limited(*args: Any, batch: int, **options: Any) -> Iterator[Any]:
        for part in run_members(*args, batch=min(batch, most), **options):
            sizes.append(batch)
            yield part
            if batch > most:
                raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(engines, "run_members", limited)
    computed = engines.compute(Unit(config, members_of(config)))
    assert (computed.error, [result.seed for result in computed.results]) == ("", list(range(7)))
    assert sizes == [7, 4, 2]
    monkeypatch.setattr(engines, "run_members", lambda *_, **__: iter_error())
    assert engines.compute(Unit(config, members_of(config))).error == "OutOfMemoryError: CUDA out of memory"


def iter_error() -> Iterator[Any]:
    raise torch.OutOfMemoryError("CUDA out of memory")
    yield


def test_a_store_error_fails_only_its_unit(store_path: str) -> None:
    from lab.test_store import CONFIG, some_result

    def spoilt(units: Sequence[Unit]) -> Generator[Outcome, None, None]:
        yield Outcome(units[0], 0.1, results=[replace(some_result(0), split=None)])  # type: ignore[arg-type]
        yield Outcome(units[1], 0.1, results=[some_result(1)])

    with RunStore(store_path) as store:
        outcomes = run_units([Unit(CONFIG, [(0, 0)]), Unit(CONFIG, [(1, 0)])], store, engine=spoilt)
        assert "not a usable run store" in outcomes[0].error
        assert outcomes[1].error == ""
        assert [run.seed for run in store.runs()] == [1]


def test_a_grid_is_not_shared_by_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["reproduce", "table2", "--out", str(tmp_path)]) == 2
    assert "use --engine ray to run a grid on several machines" in capsys.readouterr().err
