"""Run configurations: resolved values and TOML files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ergnn.config.errors import UnknownNameError
from ergnn.config.learner_config import PROTOCOLS, LearnerConfig
from ergnn.config.registry import REQUIRED
from ergnn.lab.config import LEARNER_OPTIONS, RUN_OPTIONS, RunConfig, read_config
from ergnn.methods import METHODS


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("setting", "value"),
    [("head", "growing"), ("edges", "seen"), ("optimizer", "sgd"), ("weight_decay", 0.0), ("lr", 0.5)],
)
def test_explicit_settings_override_the_protocol(protocol: str, setting: str, value: Any) -> None:
    config = RunConfig(protocol=protocol, **{setting: value}).resolved().flat()
    plain = RunConfig(protocol=protocol).resolved().flat()
    assert config.pop(setting) == value
    plain.pop(setting)
    assert config == plain


def test_names_are_resolved_and_resolving_is_idempotent() -> None:
    config = RunConfig("CORA", backbone="GraphSAGE", method="er", selector="MF").resolved()
    assert (config.dataset, config.learner.backbone, config.learner.method) == ("cora", "sage", "replay")
    assert config.learner.method_options == {"selector": "mf"}
    assert config.resolved() == config == RunConfig(**config.flat())


def test_the_protocol_counts_where_it_is_replaced() -> None:
    config = replace(RunConfig(epochs=5), protocol="paper")
    assert config.resolved() == RunConfig(protocol="paper", epochs=5).resolved()


def test_a_learner_configuration_can_be_passed_as_an_object() -> None:
    learner = LearnerConfig("gcn", head="growing", method_options={"per_class": 3})
    config = RunConfig("cora", learner=learner, protocol="paper", seeds=2)
    assert config.learner == learner, "nothing is left for the protocol to decide"
    assert replace(config, epochs=3).learner == replace(learner, epochs=3)


def test_every_option_of_a_method_is_a_setting() -> None:
    for method in METHODS:
        run = RunConfig(method=method, head=METHODS.get(method).supported_heads[-1])
        for option in METHODS.options(method):
            if option.default is not REQUIRED:
                assert run.with_settings(**{option.name: option.default}).resolved() == run.resolved()


def test_everything_is_resolved_except_for_values_of_the_data_set() -> None:
    config = RunConfig().resolved().flat()
    assert {name for name, value in config.items() if value is None} <= {
        *("scenario", "first_tasks", "classes_per_task", "normalize", "batch_size", "fanout"),
        *("network", "best_epoch"),  # a preset, whose values are settings of their own; off
    }


def test_a_file_may_set_every_field_with_dashes_or_underscores(tmp_path: Path) -> None:
    lines, tables, values = [], [], {}
    for name, option in {**RUN_OPTIONS, **LEARNER_OPTIONS}.items():
        word = option.choices[0] if option.choices else "word"
        text, values[name] = {
            "int": ("3", 3),
            "float": ("0.5", 0.5),
            "str": (f'"{word}"', word),
            "bool": ("true", True),
            "tuple[int, ...]": ("[5, 5]", [5, 5]),
        }.get(option.type.partition(" | ")[0], ("", {"key": 1}))
        key = name.replace("_", "-")
        lines += [f"{key} = {text}"] if text else []
        tables += [] if text else [f"[{key}]\nkey = 1"]
    (tmp_path / "all.toml").write_text("\n".join(['selector = "mf"', "per-class = 2", *lines, *tables]))
    assert read_config(tmp_path / "all.toml") == {"selector": "mf", "per_class": 2, **values}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_scenario_overrides_the_protocol_and_explicit_settings_override_both(protocol: str) -> None:
    def settings(**given: Any) -> tuple[str, str, str, str]:
        config = RunConfig(protocol=protocol, **given).resolved()
        assert config.resolved() == config
        order, leftover = config.class_order, config.leftover
        assert order is not None
        assert leftover is not None
        return config.learner.head, order, leftover, config.edges or ""

    edges = PROTOCOLS[protocol]["edges"]
    assert settings(scenario="task") == ("per-task", "natural", "context", edges)
    assert settings(scenario="class") == ("growing", "seeded", "last", edges)
    assert settings(scenario="class", orders=3) == ("growing", "shuffled", "last", edges)
    given = {"head": "shared", "class_order": "natural", "leftover": "context", "edges": "seen"}
    assert settings(scenario="class", **given) == ("shared", "natural", "context", "seen")
    assert RunConfig(protocol=protocol).with_settings(scenario="class").resolved().learner.head == "growing"


def test_a_scenario_is_a_setting_of_the_run_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('scenario = "class"\n')
    assert RunConfig(**read_config(tmp_path / "run.toml")) == RunConfig(scenario="class")
    with pytest.raises(UnknownNameError, match="scenario 'nope'; choose one of: blurred, class, domain, task, time"):
        RunConfig(scenario="nope").check()
