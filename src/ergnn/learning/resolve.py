"""Resolve a configuration: full names, defaults of backbone and method, the method and the training settings."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from ergnn.config.errors import InputError
from ergnn.config.learner_config import LearnerConfig
from ergnn.config.registry import FROM_TASKS, REQUIRED, name_of
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
        given = ((name, value, defaults.get(name, ...)) for name, value in options.items())
        options = {name: value for name, value, usual in given if type(value) is not type(usual) or value != usual}
    elif options:
        raise InputError(f"option {min(options)!r} requires a method given by name; this method is an instance")
    kind = METHODS.get(method) if isinstance(method, str) else method
    if config.head not in kind.supported_heads:
        why = ", as it must know the task of a node" if config.head == "growing" else ""
        choices = f"{why}; choose one of: {', '.join(kind.supported_heads)}"
        raise InputError(f"method {name_of(method)!r} does not support head {config.head!r}{choices}")
    backbone = kind.backbone if config.backbone == "auto" else config.backbone
    if isinstance(backbone, str):
        backbone = BACKBONES.resolve(backbone)
        source: Any = BACKBONES.get(backbone)
        for name in FROM_TASKS:
            if name in config.backbone_options:
                raise InputError(f"backbone_options contains {name!r}, which the tasks determine")
    else:
        source = backbone
        if config.backbone_options:
            raise InputError("backbone_options require a backbone given by name; this backbone is an instance")
    usual = {"lr": DEFAULT_LR, "weight_decay": LearnerConfig.weight_decay}
    missing: dict[str, Any] = {
        name: getattr(source, name, usual[name]) for name in usual if getattr(config, name) is None
    }
    return replace(config, backbone=backbone, method=method, network=None, method_options=options, **missing)


def default_options(method: str) -> dict[str, Any]:
    """Return the options of a registered method with the defaults of its constructor."""
    return {option.name: option.default for option in METHODS.options(method) if option.default is not REQUIRED}


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
    values = {field.name: getattr(config, field.name) for field in fields(Training)}
    return Training(**{**values, "best_epoch": bool(config.best_epoch)})
