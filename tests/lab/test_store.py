"""The run store, on SQLite and PostgreSQL: no lost or duplicate rows, concurrent writers and keys."""

import csv
import json
import multiprocessing
import os
import signal
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.distributed.launch import PRELOADED
from ergnn.cli.main import main
from ergnn.config.errors import InputError
from ergnn.lab.config import RunConfig, canonical_json, member_config, member_key
from ergnn.lab.run import SeedResult, run, run_members
from ergnn.lab.store import SCHEMA_VERSION, RunStore
from ergnn.learning.metrics import AccuracyMatrix

CONFIG = RunConfig(dataset="cora", backbone="sgc", split="seeded", seeds=2, epochs=2).resolved()
ORIGIN = {"code_version": "1.0", "machine": {"host": "somewhere"}, "peak_memory_mb": 12.5}
WRITERS, SHARED = 8, 5


def some_result(seed: int, order: int = 0, score: float = 0.5) -> SeedResult:
    matrix = AccuracyMatrix([[0.9, None], [score, 1 / 3]])
    history = [{"selection": {"tie_rate": 0.1 + 0.2}, "train_seconds": 1e-17, "select_seconds": 0.5}]
    names = ("naïve", "日本", "\x00", "d")
    return SeedResult(
        seed, order, [[0, 1], [2, 3]], matrix, [4, 7], 2**40, history, class_names=names, seconds=0.1, leaky=True
    )


def write_rows(path: str, writer: int, count: int) -> None:
    """``count`` rows of a writer, and the first few of the next one, which that one writes as well."""
    first = writer * count
    with RunStore(path) as store:
        added = sum(
            store.put_all(CONFIG, [some_result(seed % (WRITERS * count), score=seed / 2000)], origin=ORIGIN)
            for seed in range(first, first + count + SHARED)
        )
    assert count - SHARED <= added <= count + SHARED


def write_batches(path: str, turned: bool) -> None:
    """The same batches of rows as somebody else, within each batch from the other end."""
    with RunStore(path) as store:
        for batch in range(40):
            results = [some_result(10 * batch + i) for i in range(10)]
            store.put_all(CONFIG, results[::-1] if turned else results, origin=ORIGIN)


def write_until_killed(path: str) -> None:
    with RunStore(path) as store:
        for batch in range(1000):
            store.put_all(CONFIG, [some_result(10 * batch + i) for i in range(10)], origin=ORIGIN)
            if batch == 5:
                os.kill(os.getpid(), signal.SIGKILL)


def in_processes(target: Any, arguments: list[tuple[Any, ...]]) -> list[int | None]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    processes = [context.Process(target=target, args=each) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


@pytest.mark.parametrize("count", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_eight_processes_write_runs_at_the_same_time(store_path: str, count: int) -> None:
    assert in_processes(write_rows, [(store_path, i, count) for i in range(WRITERS)]) == [0] * WRITERS
    total = WRITERS * count
    with RunStore(store_path, create=False) as store:
        assert len(store) == total
        runs = store.runs()
    assert [run.seed for run in runs] == list(range(total))
    assert [run.key for run in runs] == [member_key(CONFIG, seed, 0) for seed in range(total)]


def test_two_writers_of_the_same_batches_never_wait_for_each_other(store_path: str) -> None:
    assert in_processes(write_batches, [(store_path, False), (store_path, True)]) == [0, 0]
    with RunStore(store_path) as store:
        assert [run.seed for run in store.runs()] == list(range(400))


def test_a_killed_writer_leaves_whole_batches(store_path: str) -> None:
    assert in_processes(write_until_killed, [(store_path,)]) == [-signal.SIGKILL]
    with RunStore(store_path) as store:
        assert len(store) == 60
        assert store.put_all(CONFIG, [some_result(59), some_result(60)], origin=ORIGIN) == 1


def test_a_store_returns_the_result_of_the_run(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    config = CONFIG
    expected = run(config).to_dict()
    with RunStore(tmp_path / "new" / "runs.sqlite") as store:
        assert store.missing(config) == [(0, 0), (1, 0)]
        with pytest.raises(InputError, match="2 of 2 runs of cora, sgc, replay are not finished"):
            store.result(config)
        for results in run_members(config, store.missing(config)):
            assert store.put_all(config, results) == 2
        found = store.result(config).to_dict()
        (_, second) = store.runs(dataset="cora")
    costs = ("seconds", "train_seconds", "select_seconds", "peak_memory_mb")
    assert {k: v for k, v in found.items() if k not in costs} == {k: v for k, v in expected.items() if k not in costs}
    assert second.config["epochs"] == 2
    assert second.buffer_ids == expected["buffer"]["ids"][1]
    assert second.matrix.to_list() == expected["runs"][1]["matrix"]
    assert second.machine["torch"] == torch.__version__


def test_both_databases_store_the_same_rows(tmp_path: Path, postgresql: str) -> None:
    rows = []
    for path in (tmp_path / "runs.sqlite", postgresql):
        with RunStore(path) as store:
            assert store.missing(CONFIG) == [(0, 0), (1, 0)]
            assert store.put_all(CONFIG, [], origin=ORIGIN) == 0
            assert store.put_all(CONFIG, [some_result(0), some_result(1)], origin=ORIGIN) == 2
            assert store.put_all(CONFIG, [some_result(0), some_result(1)], origin=ORIGIN) == 0
            assert store.missing(replace(CONFIG, seeds=3)) == [(2, 0)]
            store.put_all(replace(CONFIG, method="finetune"), [some_result(0)], ORIGIN | {"peak_memory_mb": 3.5})
            rows.append([run.to_dict() for run in store.runs()])
            assert [run.seed for run in store.runs(dataset="cora", method="replay", seed=[1, 2])] == [1]
            assert store.runs(dataset="citeseer") == []
            assert store.result(CONFIG).matrices[1].to_list() == [[0.9, None], [0.5, 1 / 3]]
    ours, theirs = ([{k: v for k, v in row.items() if k != "finished_at"} for row in each] for each in rows)
    assert ours == theirs
    assert (ours[1]["buffer_bytes"], ours[1]["history"][0]["train_seconds"]) == (2**40, 1e-17)
    assert (ours[1]["machine"], ours[1]["peak_memory_mb"]) == ({"host": "somewhere"}, 12.5)
    assert ours[0]["peak_memory_mb"] == 3.5
    assert ours[0]["class_names"] == ["naïve", "日本", "\x00", "d"]


def test_a_batch_is_stored_atomically(store_path: str) -> None:
    with RunStore(store_path) as store:
        with pytest.raises(TypeError, match="cannot be stored as JSON"):
            store.put_all(CONFIG, [some_result(0), replace(some_result(1), history=[{"selection": object()}])])
        bad: Any = replace(some_result(1), split=None)
        with pytest.raises(InputError, match=r"(?i)not.null"):
            store.put_all(CONFIG, [some_result(0), bad])
        assert len(store) == 0


def test_keys_do_not_change() -> None:
    # a key that changes makes every finished run be done again: raise KEY_SCHEMA when that is meant
    config = RunConfig(dataset="cora", backbone="gat", protocol="paper", split="public").resolved()
    assert member_key(config, 3, 0) == "f16dce80e9a1cf2f1844c9f99c9c8beb62bd0b2f377cd81fd74fa12602862936"
    assert member_key(config, 3, 0) != member_key(config, 3, 1)
    for other in ({"epochs": 100}, {"scenario": "task"}):
        assert member_key(replace(config, **other).resolved(), 3, 0) != member_key(config, 3, 0)


def test_settings_and_options_at_their_default_do_not_change_keys() -> None:
    plain = RunConfig().resolved()
    given = RunConfig(input="features", batch_size=None, selector="mf-star", per_class=1, loss_scale="sum").resolved()
    assert member_key(given, 0, 0) == member_key(plain, 0, 0)
    assert "per_class" not in member_config(plain)
    for other in ({"batch_size": 5}, {"per_class": 5}, {"selector": "im"}, {"loss_scale": "mean"}):
        assert member_key(plain.with_settings(**other).resolved(), 0, 0) != member_key(plain, 0, 0)
        assert other.items() <= member_config(plain.with_settings(**other).resolved()).items()


def test_keys_omit_settings_that_do_not_affect_results() -> None:
    finetune = RunConfig(method="finetune").resolved()
    for same in ({"seeds": 3, "orders": 2}, {"denominator": "M"}, {"device": "cuda"}):
        assert member_key(finetune.with_settings(**same), 0, 0) == member_key(finetune, 0, 0)
    gem = RunConfig(method="gem").resolved()
    assert member_key(gem.with_settings(per_class=5), 0, 0) != member_key(gem, 0, 0)


@given(st.dictionaries(st.text(max_size=3), st.integers() | st.booleans() | st.floats(-5, 5) | st.none(), max_size=5))
def test_canonical_json_does_not_depend_on_order_or_number_type(settings: dict[str, Any]) -> None:
    turned = dict(reversed(settings.items()))
    floats = {
        k: float(v) if isinstance(v, int) and not isinstance(v, bool) and abs(v) < 2**53 else v
        for k, v in turned.items()
    }
    assert canonical_json(settings) == canonical_json(floats)


def test_values_that_are_not_json_are_rejected() -> None:
    with pytest.raises(InputError, match="cannot be part of a stored configuration"):
        canonical_json({"a": {1, 2}})


def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.sqlite"
    path.write_bytes(b"this is not a data base, it only has the name of one" * 50)
    with pytest.raises(InputError, match="runs\\.sqlite: not a usable run store"):
        RunStore(path)
    assert main(["runs", "--store", str(path)]) == 2
    assert "not a usable run store" in capsys.readouterr().err
    with pytest.raises(InputError, match="no such run store"):
        RunStore(tmp_path / "absent.sqlite", create=False)
    assert not (tmp_path / "absent.sqlite").exists()


def test_damage_after_the_header_is_detected_on_read(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    write_batches(str(path), False)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(InputError, match="runs\\.sqlite"), RunStore(path) as store:
        store.runs()


def test_runs_are_listed_filtered_and_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.sqlite"
    with RunStore(path) as store:
        for selector, score in (("mf*", 0.5), ("im", 0.7)):
            for seed in range(3):
                store.put_all(replace(CONFIG, selector=selector).resolved(), [some_result(seed, score=score)])
    assert main(["runs", "--store", str(path)]) == 0
    listed = capsys.readouterr().out
    assert "6 runs of 2 configurations" in listed
    assert "40.00" in listed
    assert "20.00" in listed
    assert main(["runs", "--store", str(path), "--selector", "im", "--seed", "1", "--json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)
    assert (only["selector"], only["seed"], only["matrix"]) == ("im", 1, [[0.9, None], [0.7, 1 / 3]])
    out = tmp_path / "runs.csv"
    assert main(["runs", "--store", str(path), "--selector", "im,random", "--csv", str(out)]) == 0
    rows = list(csv.DictReader(out.open(encoding="utf-8")))
    assert [row["seed"] for row in rows] == ["0", "1", "2"]
    assert float(rows[0]["fm"]) == pytest.approx(0.2)
    assert json.loads(rows[0]["config"])["selector"] == "im"
    with RunStore(path) as store, pytest.raises(InputError, match="cannot be filtered by 'color'"):
        store.runs(color="red")


def run_statements(path: str, statements: list[str]) -> list[list[tuple[Any, ...]]]:
    if path.startswith("postgresql"):
        import psycopg

        with psycopg.connect(path, autocommit=True) as connection:
            cursors = [connection.execute(statement) for statement in statements]  # type: ignore[call-overload]
            return [cursor.fetchall() if cursor.description else [] for cursor in cursors]
    db = sqlite3.connect(path, isolation_level=None)
    try:
        return [db.execute(statement).fetchall() for statement in statements]
    finally:
        db.close()


def test_another_schema_is_rejected(store_path: str) -> None:
    RunStore(store_path).close()
    run_statements(store_path, ["UPDATE store SET schema = 99"])
    with pytest.raises(InputError, match=f"schema 99; this version of ergnn reads {SCHEMA_VERSION}"):
        RunStore(store_path)


def test_a_missing_store_is_named(postgresql: str, server: str) -> None:
    with pytest.raises(InputError, match="no such run store"):
        RunStore(postgresql, create=False)
    with pytest.raises(InputError, match='database "nowhere" does not exist'):
        RunStore(server.format("nowhere"))
    with pytest.raises(InputError, match=r"cannot be at mysql://…; use a file, or .* postgresql://"):
        RunStore("mysql://somebody@somewhere/runs")


def test_a_password_is_never_shown(postgresql: str) -> None:
    secret = postgresql.replace("ergnn@", "ergnn:hush@")
    with RunStore(secret) as store:
        assert "hush" not in store.path
    with pytest.raises(InputError, match="not a usable run store") as caught:
        RunStore("postgresql://ergnn:hush@localhost:1/runs?connect_timeout=2")
    assert "hush" not in str(caught.value)
