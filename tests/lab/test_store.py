"""The run store: no lost or duplicate rows."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ergnn.cli.main import main
from ergnn.config.errors import InputError
from ergnn.lab.config import RunConfig
from ergnn.lab.keys import canonical_json, member_config, member_key
from ergnn.lab.run import SeedResult, run, run_members
from ergnn.lab.store import RunStore
from ergnn.learning.metrics import AccuracyMatrix

CONFIG = RunConfig(dataset="cora", backbone="sgc", split="seeded", seeds=2, epochs=2)


def some_result(seed: int, order: int = 0, score: float = 0.5) -> SeedResult:
    matrix = AccuracyMatrix([[0.9, None], [score, 0.8]])
    return SeedResult(seed, order, [[0, 1], [2, 3]], matrix, [4, 7], 16, [{"selection": {"tie_rate": 0.5}}])


def write_rows(path: str, first: int, count: int) -> None:
    with RunStore(path) as store:
        for seed in range(first, first + count):
            store.put_all(CONFIG.resolved(), [some_result(seed)])


def test_a_store_returns_the_result_of_the_run(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    config = CONFIG.resolved()
    expected = run(config).to_dict()
    with RunStore(tmp_path / "new" / "runs.sqlite") as store:
        assert store.missing(config) == [(0, 0), (1, 0)]
        with pytest.raises(InputError, match="2 of 2 runs of cora, sgc, replay are not finished, such as seed 0"):
            store.result(config)
        for results in run_members(config, store.missing(config)):
            assert store.put_all(config, results) == 2
            assert store.put_all(config, results) == 0
        found = store.result(config).to_dict()
        runs = store.runs(dataset="cora", seed=[1, 2], epochs=2)
        assert store.missing(replace(config, seeds=3)) == [(2, 0)]
    costs = ("seconds", "train_seconds", "select_seconds", "peak_memory_mb")
    assert {k: v for k, v in found.items() if k not in costs} == {k: v for k, v in expected.items() if k not in costs}
    assert [stored.seed for stored in runs] == [1]
    assert runs[0].config["epochs"] == 2
    assert runs[0].buffer_ids == expected["buffer"]["ids"][1]
    assert runs[0].matrix.to_list() == expected["runs"][1]["matrix"]
    assert runs[0].machine["torch"] == torch.__version__


def test_a_batch_is_stored_atomically(tmp_path: Path) -> None:
    with RunStore(tmp_path / "runs.sqlite") as store:
        bad = replace(some_result(1), history=[{"selection": object()}])
        with pytest.raises(TypeError, match="cannot be stored as JSON"):
            store.put_all(CONFIG.resolved(), [some_result(0), bad])
        with pytest.raises(InputError, match="NOT NULL"):
            store.put_all(CONFIG.resolved(), [some_result(0), replace(some_result(1), split=None)])  # type: ignore[arg-type]
        assert len(store) == 0
        assert store.put_all(CONFIG.resolved(), [replace(some_result(0), seconds=2.5)]) == 1
        assert store.runs()[0].seconds == 2.5


def test_keys_do_not_change() -> None:
    # a key that changes makes every finished run be done again: raise KEY_SCHEMA when that is meant
    config = RunConfig(dataset="cora", backbone="gat", protocol="paper", split="public").resolved()
    assert member_key(config, 3, 0) == "f16dce80e9a1cf2f1844c9f99c9c8beb62bd0b2f377cd81fd74fa12602862936"
    assert member_key(config, 3, 0) != member_key(config, 3, 1)
    assert member_key(replace(config, epochs=100), 3, 0) != member_key(config, 3, 0)


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
    write_rows(str(path), 0, 40)
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
    assert (only["selector"], only["seed"], only["matrix"]) == ("im", 1, [[0.9, None], [0.7, 0.8]])
    out = tmp_path / "runs.csv"
    assert main(["runs", "--store", str(path), "--selector", "im,random", "--csv", str(out)]) == 0
    rows = list(csv.DictReader(out.open(encoding="utf-8")))
    assert [row["seed"] for row in rows] == ["0", "1", "2"]
    assert float(rows[0]["fm"]) == pytest.approx(0.2)
    assert json.loads(rows[0]["config"])["selector"] == "im"
    with RunStore(path) as store, pytest.raises(InputError, match="cannot be filtered by 'color'"):
        store.runs(color="red")
