"""Resolve a configuration: full names, defaults of backbone and method, the method and the training settings."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from typing import Any

from ergnn.config.errors import InputError
from ergnn.config.learner_config import LearnerConfig
from ergnn.engine.training import Training
from ergnn.methods import METHODS, Method
from ergnn.nn.backbones import BACKBONES
from ergnn.replay.selectors import SELECTORS

DEFAULT_LR = 0.005
"""Learning rate of modules that do not define one."""


def resolve(config: LearnerConfig) -> LearnerConfig:
    """Return the configuration with full names and with values for ``lr``, ``weight_decay`` and ``network``.

    Options that equal a default of the method's constructor are omitted, so equivalent configurations compare equal.
    """
    method, options = config.method, config.method_options
    if isinstance(method, str):
        method = METHODS.resolve(method)
        if isinstance(options.get("selector"), str):
            options = {**options, "selector": SELECTORS.resolve(options["selector"])}
        defaults = default_options(method)
        options = {name: value for name, value in options.items() if not _same(value, defaults.get(name, ...))}
    elif options:
        raise InputError(f"option {min(options)!r} requires a method given by name; this method is an instance")
    kind = METHODS.get(method) if isinstance(method, str) else method
    if config.head not in kind.supported_heads:
        name = method if isinstance(method, str) else type(method).__name__
        why = ", as it must know the task of a node" if config.head == "growing" else ""
        heads = ", ".join(kind.supported_heads)
        raise InputError(f"method {name!r} does not support head {config.head!r}{why}; choose one of: {heads}")
    backbone = config.backbone
    if backbone == "auto":
        backbone = kind.backbone
    if isinstance(backbone, str):
        backbone = BACKBONES.resolve(backbone)
        source: Any = BACKBONES.get(backbone)
        for name in ("in_channels", "out_channels"):
            if name in config.backbone_options:
                raise InputError(f"backbone_options contains {name!r}, which the tasks determine")
    else:
        source = backbone
        if config.backbone_options:
            raise InputError("backbone_options require a backbone given by name; this backbone is an instance")
    return replace(
        config,
        backbone=backbone,
        method=method,
        lr=getattr(source, "lr", DEFAULT_LR) if config.lr is None else config.lr,
        weight_decay=getattr(source, "weight_decay", LearnerConfig.weight_decay)
        if config.weight_decay is None
        else config.weight_decay,
        network=None,
        method_options=options,
    )


def default_options(method: str) -> dict[str, Any]:
    """Return the options of a registered method with the defaults of its constructor."""
    parameters = signature(METHODS.get(method)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def options_in_effect(config: LearnerConfig) -> dict[str, Any]:
    """Return all options of a registered method: the given ones, and defaults for the others."""
    return {**default_options(config.method), **config.method_options} if isinstance(config.method, str) else {}


def make_method(config: LearnerConfig) -> Method:
    """Create the method of a resolved configuration."""
    if not isinstance(config.method, str):
        return config.method
    method: Method = METHODS.create(config.method, **config.method_options)
    return method


def make_training(config: LearnerConfig) -> Training:
    """Return the training settings of a resolved configuration."""
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
        bool(config.best_epoch),
    )


def _same(value: Any, default: Any) -> bool:
    """Return whether a value equals the default, including its type; ``True`` is not 1."""
    return type(value) is type(default) and bool(value == default)
