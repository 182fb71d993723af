"""From a configuration to what it names: full names, defaults of backbone and method, a method, a training setup."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from typing import Any

from ergnn.config import LearnerConfig
from ergnn.errors import InputError
from ergnn.methods import METHODS, Method
from ergnn.nn.backbones import BACKBONES
from ergnn.replay.selectors import SELECTORS
from ergnn.training import Training

OTHER_LR = 0.005
"""Learning rate of a module that does not say its own."""


def resolve(config: LearnerConfig) -> LearnerConfig:
    """The same configuration with names in full and ``lr`` and ``weight_decay`` filled in.

    Options of the method that equal the default of its constructor are left out, so that equal configurations compare
    equal.
    """
    method, options = config.method, config.method_options
    if isinstance(method, str):
        method = METHODS.resolve(method)
        if isinstance(options.get("selector"), str):
            options = {**options, "selector": SELECTORS.resolve(options["selector"])}
        defaults = default_options(method)
        options = {name: value for name, value in options.items() if not _same(value, defaults.get(name, ...))}
    elif options:
        raise InputError(f"option {min(options)!r} goes with a method's name; this method is already built")
    backbone = config.backbone
    if backbone == "auto":
        backbone = (METHODS.get(method) if isinstance(method, str) else method).backbone
    if isinstance(backbone, str):
        backbone = BACKBONES.resolve(backbone)
        source: Any = BACKBONES.get(backbone)
        for name in ("in_channels", "out_channels"):
            if name in config.backbone_options:
                raise InputError(f"backbone_options names {name!r}, which follows from the tasks")
    else:
        source = backbone
        if config.backbone_options:
            raise InputError("backbone_options go with a backbone's name; this backbone is already built")
    return replace(
        config,
        backbone=backbone,
        method=method,
        lr=getattr(source, "lr", OTHER_LR) if config.lr is None else config.lr,
        weight_decay=getattr(source, "weight_decay", LearnerConfig.weight_decay)
        if config.weight_decay is None
        else config.weight_decay,
        method_options=options,
    )


def default_options(method: str) -> dict[str, Any]:
    """The options of a registered method, at the defaults of its constructor."""
    parameters = signature(METHODS.get(method)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def options_in_effect(config: LearnerConfig) -> dict[str, Any]:
    """All options of a registered method: those given, the others at their defaults."""
    return {**default_options(config.method), **config.method_options} if isinstance(config.method, str) else {}


def make_method(config: LearnerConfig) -> Method:
    """The method of a resolved configuration; unknown options are named with the allowed ones."""
    if not isinstance(config.method, str):
        return config.method
    method: Method = METHODS.create(config.method, **config.method_options)
    return method


def make_training(config: LearnerConfig) -> Training:
    """The training setup of a resolved configuration."""
    assert config.lr is not None
    assert config.weight_decay is not None
    return Training(
        config.epochs,
        config.lr,
        config.weight_decay,
        config.optimizer,
        config.batch_size,
        config.fanout,
        config.with_replacement,
    )


def _same(value: Any, default: Any) -> bool:
    """Whether a value is the default itself; ``True`` is not 1."""
    return type(value) is type(default) and bool(value == default)
