"""The configuration of a learner: names, defaults, checks, and resolved values."""

from dataclasses import fields
from typing import Any

import pytest

from ergnn.config.errors import InputError
from ergnn.config.learner_config import PROTOCOLS, LearnerConfig
from ergnn.config.registry import argument_texts
from ergnn.learning.learner import Learner
from ergnn.learning.resolve import default_options, options_in_effect, resolve
from ergnn.methods import METHODS
from ergnn.nn.backbones import BACKBONES
from ergnn.nn.backbones.convolutional import GCN


def test_every_field_is_documented() -> None:
    texts = argument_texts(LearnerConfig.__doc__ or "")
    assert list(texts) == [f.name for f in fields(LearnerConfig)]


def test_the_short_form_builds_the_configuration() -> None:
    short = Learner("gcn", "replay", selector="mf-star", per_class=3, epochs=4, seed=2)
    options = {"selector": "mf*", "per_class": 3}
    config = LearnerConfig(backbone="gcn", epochs=4, seed=2, method_options=options)
    assert short.config == Learner(config).config == resolve(config)
    assert short.method.per_class == 3  # type: ignore[attr-defined]
    assert Learner().config == Learner(LearnerConfig()).config == resolve(LearnerConfig())


def test_a_configuration_and_settings_beside_it_are_rejected() -> None:
    with pytest.raises(InputError, match="'epochs' is given in addition to a LearnerConfig"):
        Learner(LearnerConfig(), epochs=3)
    with pytest.raises(InputError, match="'method' is given in addition to a LearnerConfig"):
        Learner(LearnerConfig(), "joint")


@pytest.mark.parametrize("backbone", ["gat", "gcn", "mlp"])
def test_missing_values_are_the_backbones_defaults(backbone: str) -> None:
    entry = BACKBONES.get(backbone)
    config = resolve(LearnerConfig(backbone, weight_decay=None))
    assert (config.lr, config.weight_decay) == (entry.lr, entry.weight_decay)
    assert resolve(LearnerConfig(backbone)).weight_decay == LearnerConfig.weight_decay == 3e-5
    assert resolve(config) == config


def test_the_backbone_defaults_to_the_methods() -> None:
    assert resolve(LearnerConfig()).backbone == "gat"
    assert resolve(LearnerConfig(method="ncm")).backbone == METHODS.get("nearest-mean").backbone == "sgc"


@pytest.mark.parametrize("method", METHODS.names())
def test_options_at_their_default_are_omitted(method: str) -> None:
    defaults, head = default_options(method), METHODS.get(method).supported_heads[-1]
    given = LearnerConfig(method=method, head=head, method_options=defaults)
    assert resolve(given) == resolve(LearnerConfig(method=method, head=head))
    assert options_in_effect(resolve(given)) == defaults


def test_protocols_are_named_sets_of_values() -> None:
    assert LearnerConfig.from_protocol("clean") == LearnerConfig()
    paper = LearnerConfig.from_protocol("paper", epochs=3, per_class=2)
    assert (paper.head, paper.weight_decay, paper.epochs, paper.method_options) == ("shared", None, 3, {"per_class": 2})
    assert {name: values["edges"] for name, values in PROTOCOLS.items()} == {"clean": "all", "paper": "own"}
    with pytest.raises(InputError, match="unknown protocol 'mine'; choose one of: clean, paper"):
        LearnerConfig.from_protocol("mine")


def test_flat_settings_round_trip() -> None:
    config = LearnerConfig("gcn", batch_size=8, fanout=(5, 5), method_options={"per_class": 2, "selector": "mf"})
    assert config.settings()["per_class"] == 2
    assert LearnerConfig().with_settings(config.settings()) == config
    hidden = LearnerConfig(method_options={"epochs": 2, "other": 1})
    assert hidden.settings()["epochs"] == 200, "an option of a method may have the name of a field"
    assert LearnerConfig().with_settings(hidden.settings()) == hidden
    with pytest.raises(InputError, match="'per_class' is given both as a setting and in method_options"):
        LearnerConfig().with_settings({"per_class": 1, "method_options": {"per_class": 2}})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head": "hydra"}, "unknown head 'hydra'; choose one of: growing, per-task, shared"),
        ({"optimizer": "lion"}, "unknown optimizer 'lion'; choose one of: adam, adamw, sgd"),
        ({"epochs": 0}, "epochs is 0; it must be 1 or more"),
        ({"epochs": 2.0}, "epochs is 2.0; it must be of type int"),
        ({"epochs": True}, "epochs is True; it must be of type int"),
        ({"lr": 0.0}, "lr is 0.0; it must be above 0, and finite"),
        ({"lr": float("nan")}, "lr is nan; it must be above 0, and finite"),
        ({"lr": "fast"}, "lr is 'fast'; it must be of type float"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0; it must be 0 or more"),
        ({"batch_size": 0}, "batch_size is 0; it must be 1 or more"),
        ({"fanout": "5,x", "batch_size": 2}, "fanout is '5,x'; give whole numbers, one per hop"),
        ({"fanout": (5, 2.5), "batch_size": 2}, "give whole numbers, one per hop"),
        ({"fanout": (5, 5)}, "but batch_size is not set"),
        ({"with_replacement": True}, "with_replacement is set, but no neighbors are sampled"),
        ({"seed": -1}, "seed is -1; it must be 0 to 2147483647"),
        ({"backbone_options": 3}, "backbone_options is 3; it must be a mapping"),
    ],
)
def test_bad_values_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LearnerConfig(**settings)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (LearnerConfig("transformer"), "unknown backbone 'transformer'"),
        (LearnerConfig(method="hope"), "unknown method 'hope'"),
        (LearnerConfig(method="finetune", method_options={"per_class": 7}), "'finetune' has no option 'per_class'"),
        (LearnerConfig(method_options={"per_clas": 7}), "'replay' has no option 'per_clas' .did you mean 'per_class'"),
        (LearnerConfig(method_options={"per_class": "7"}), "per_class is '7'; it must be of type int"),
        (LearnerConfig("gcn", backbone_options={"in_channels": 2}), "'in_channels', which the tasks determine"),
        (LearnerConfig(GCN(6), backbone_options={"hidden": 2}), "this backbone is an instance"),
        (LearnerConfig(method=METHODS.create("joint"), method_options={"x": 2}), "this method is an instance"),
        (LearnerConfig(device="gpu"), "unknown device 'gpu'; choose cpu, cuda or a numbered GPU such as cuda:0$"),
        (LearnerConfig(device="cuda:99"), "device 'cuda:99' is unavailable"),
    ],
)
def test_invalid_learners_are_rejected_before_any_computation(config: LearnerConfig, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Learner(config)
