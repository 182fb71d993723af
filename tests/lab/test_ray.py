"""A grid on a Ray cluster gives the same store as local processes, even if a worker is lost."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ergnn.config.errors import InputError
from ergnn.lab.config import RunConfig
from ergnn.lab.engines import Outcome, RayEngine, Unit, run_units, units_of
from ergnn.lab.store import RunStore

ray = pytest.importorskip("ray", reason="ray is not installed")

BASE = RunConfig(dataset="cora", backbone="gat", split="seeded", seeds=2, epochs=5)
GRID = [
    BASE.with_settings(**settings).resolved()
    for settings in (
        *({"method": method} for method in ("finetune", "joint", "ewc")),
        *({"selector": selector} for selector in ("random", "mf*", "cm")),
    )
]
"""Six configurations of two seeds each: twelve runs."""
TIMES = ("seconds", "peak_memory_mb", "finished_at", "machine")


def rows_of(path: str) -> dict[str, dict[str, Any]]:
    """All that a store holds, by key, less times and the machine (which Ray's workers may not share with us)."""
    with RunStore(path, create=False) as store:
        assert len(store) == 12
        rows = {run.key: run.to_dict() for run in store.runs()}
    for row in rows.values():
        for name in TIMES:
            del row[name]
        row["history"] = [{k: v for k, v in task.items() if not k.endswith("seconds")} for task in row["history"]]
    return rows


def run_grid(path: str, **options: Any) -> list[Outcome]:
    """Run what is missing in a store."""
    with RunStore(path) as store:
        return run_units(units_of(store, GRID), store, **options)


def at_work() -> list[int]:
    """Ray's workers that are at one of our units, of any cluster of ours."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                title = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"ray::_compute"):
                found.append(int(entry.name))
    return found


class Killer:
    """Told of the first finished unit, kills a worker that is in the middle of another."""

    def __init__(self) -> None:
        self.killed: list[int] = []
        self.told: list[Outcome] = []

    def __call__(self, outcome: Outcome) -> None:
        self.told.append(outcome)
        deadline = time.monotonic() + 30
        while not self.killed and time.monotonic() < deadline:
            for worker in at_work()[:1]:
                os.kill(worker, signal.SIGKILL)
                self.killed.append(worker)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The grid, done in this process."""
    path = str(tmp_path_factory.mktemp("here") / "runs.sqlite")
    assert [outcome.error for outcome in run_grid(path)] == [""] * 6
    return rows_of(path)


@pytest.mark.slow
def test_ray_gives_the_same_store_if_a_worker_is_killed(tmp_path: Path, here: dict[str, dict[str, Any]]) -> None:
    path = str(tmp_path / "runs.sqlite")
    killer = Killer()
    outcomes = run_grid(path, on_done=killer, engine=RayEngine(jobs=2))
    assert len(killer.killed) == 1
    assert [outcome.error for outcome in outcomes] == [""] * 6
    assert killer.told == outcomes
    assert rows_of(path) == here
    assert not ray.is_initialized()
    assert run_grid(path) == []


@pytest.mark.slow
def test_a_cluster_that_loses_a_machine_fills_a_store_on_a_server(
    postgresql: str, here: dict[str, dict[str, Any]]
) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    machines = [cluster.add_node(num_cpus=1)]

    def lose_one(outcome: Outcome) -> None:
        while machines:
            cluster.remove_node(machines.pop(), allow_graceful=False)

    try:
        engine = RayEngine(address=cluster.address)
        outcomes = run_grid(postgresql, on_done=lose_one, engine=engine)
    finally:
        cluster.shutdown()
    assert [outcome.error for outcome in outcomes] == [""] * 6
    assert rows_of(postgresql) == here


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cpus": 0.0}, "task_cpus is 0.0; it must be above 0"),
        ({"gpus": -1.0}, "task_gpus is -1.0; it must be 0 or more"),
        ({"jobs": 0}, "jobs is 0; it must be 1 or more"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RayEngine(**options)


def test_a_gpu_by_number_is_rejected() -> None:
    unit = Unit(replace(GRID[0], device="cuda:1"), [(0, 0)])
    with pytest.raises(InputError, match="assigns GPUs itself: use cuda"):
        list(RayEngine()([unit]))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_an_unreachable_cluster_is_named(address: str) -> None:
    with pytest.raises(InputError, match=f"cannot use a Ray cluster at '{address}' .*refused"):
        list(RayEngine(address=address)([Unit(GRID[0], [(0, 0)])]))
