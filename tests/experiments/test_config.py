"""What a configuration says in full, and what a file may say."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from ergnn.errors import InputError, UnknownNameError
from ergnn.experiments import PROTOCOLS, RunConfig, read_config
from ergnn.experiments.config import check_settings
from ergnn.nn.backbones import BACKBONES


@pytest.mark.parametrize("backbone", ["gat", "gcn", "sage", "gin", "sgc", "mlp"])
def test_clean_is_one_head_a_task_all_edges_and_a_light_l2(backbone: str) -> None:
    config = RunConfig(backbone=backbone).resolved()
    assert (config.protocol, config.head, config.edges, config.optimizer) == ("clean", "per-task", "all", "adam")
    assert config.weight_decay == 3e-5
    assert config.lr == BACKBONES.get(backbone).lr


@pytest.mark.parametrize("backbone", ["gat", "gcn", "sage", "gin", "sgc", "mlp"])
def test_paper_is_a_shared_head_own_edges_and_the_backbones_own_l2(backbone: str) -> None:
    config = RunConfig(backbone=backbone, protocol="paper").resolved()
    assert (config.protocol, config.head, config.edges, config.optimizer) == ("paper", "shared", "own", "adam")
    assert config.weight_decay == BACKBONES.get(backbone).weight_decay
    assert config.epochs == 200


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("setting", "value"),
    [("head", "growing"), ("edges", "seen"), ("optimizer", "sgd"), ("weight_decay", 0.0), ("lr", 0.5)],
)
def test_what_is_given_wins_over_the_protocol(protocol: str, setting: str, value: Any) -> None:
    config = RunConfig(protocol=protocol, **{setting: value}).resolved()
    assert getattr(config, setting) == value
    others = {f.name for f in fields(RunConfig)} - {setting}
    plain = RunConfig(protocol=protocol).resolved()
    assert all(getattr(config, name) == getattr(plain, name) for name in others)


def test_names_come_out_in_full_and_a_resolved_configuration_stays_as_it_is() -> None:
    config = RunConfig("CORA", "GraphSAGE", "er", "mf-star").resolved()
    assert (config.dataset, config.backbone, config.method, config.selector) == ("cora", "sage", "replay", "mf*")
    assert config.resolved() == config


def test_nothing_is_left_open_but_what_the_data_set_decides() -> None:
    config = RunConfig().resolved()
    may_be_open = {"classes_per_task", "beta", "batch_size", "fanout", "replay_batch"}
    left = {f.name for f in fields(RunConfig) if getattr(config, f.name) is None}
    assert left <= may_be_open


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"protocol": "mine"}, "unknown protocol 'mine'; choose one of: clean, paper"),
        ({"dataset": "nope"}, "unknown dataset 'nope'"),
        ({"backbone": "nope"}, "unknown backbone 'nope'"),
        ({"method": "nope"}, "unknown method 'nope'"),
        ({"selector": "nope", "method": "finetune"}, "unknown selector 'nope'"),
        ({"head": "nope"}, "unknown head 'nope'; choose one of: growing, per-task, shared"),
        ({"edges": "nope"}, "unknown edges 'nope'; choose one of: all, own, seen"),
        ({"split": "nope"}, "unknown split 'nope'; choose one of: auto, public, seeded"),
        ({"denominator": "nope"}, "unknown denominator 'nope'; choose one of: M, M-1"),
    ],
)
def test_unknown_names_list_the_choices(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        RunConfig(**settings).resolved()


@pytest.mark.parametrize("name", ["per_class", "seeds", "orders", "epochs", "hops"])
def test_counts_are_at_least_one(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is 0; it must be 1 or more"):
        replace(RunConfig(), **{name: 0}).resolved()


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("natural", "natural"), ("shuffled", "shuffled"), ("3,1,0,2", [3, 1, 0, 2]), ("1, 0", [1, 0])],
)
def test_a_class_order_is_a_word_or_a_list(text: str, parsed: str | list[int]) -> None:
    assert RunConfig(class_order=text).parsed_class_order() == parsed


def test_a_file_may_set_every_field_with_dashes_or_underscores(tmp_path: Path) -> None:
    values: dict[str, Any] = {}
    for f in fields(RunConfig):
        kind = str(f.type).removesuffix(" | None")
        values[f.name] = {"int": 3, "float": 0.5, "str": "word"}.get(kind, {"key": 1})
    lines = [
        f"{name.replace('_', '-')} = {value if isinstance(value, int | float) else repr(value)}"
        for name, value in values.items()
        if not isinstance(value, dict)
    ]
    tables = [f"[{name}]\nkey = 1" for name, value in values.items() if isinstance(value, dict)]
    (tmp_path / "all.toml").write_text("\n".join(lines + tables))
    assert read_config(tmp_path / "all.toml") == values
    RunConfig(**values)


def test_a_whole_number_will_do_for_a_float_but_not_the_other_way_round() -> None:
    checked = check_settings({"lr": 1}, "here")
    assert checked == {"lr": 1.0}
    assert isinstance(checked["lr"], float)
    for wrong in (0.5, "2", True, None):
        with pytest.raises(InputError, match=rf"here: seeds is {wrong!r}; it must be of type int"):
            check_settings({"seeds": wrong}, "here")


def test_an_unknown_key_is_named_with_its_source_and_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"run.toml: unknown key 'per-clas'; choose among: .*per_class, "):
        check_settings({"per-clas": 1}, "run.toml")
