"""Definition and execution of rules, and the rules for everything that is registered."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import SkipTest

from torch import nn

from ergnn.config.errors import InputError
from ergnn.config.registry import Registry
from ergnn.data import DATASETS
from ergnn.data.datasets import Dataset
from ergnn.methods import METHODS, Method
from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.replay import SELECTORS, Selector
from ergnn.testing.watching import Broken, global_state_restored, require

KINDS: dict[str, tuple[Registry[Any], type]] = {
    "selector": (SELECTORS, Selector),
    "backbone": (BACKBONES, Backbone),
    "method": (METHODS, Method),
    "dataset": (DATASETS, Dataset),
}
"""Kind → its registry, and the base class of its instances."""


class Skipped(SkipTest):
    """The rule cannot be checked on this machine; pytest and unittest report a skipped test."""


@dataclass(frozen=True)
class Subject:
    """The object under test: its label, its factory, its registered name, if any, and what several rules look at."""

    label: str
    make: Callable[..., Any]
    registry: Registry[Any]
    name: str | None = None
    shared: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """One rule of a contract. Call it with the arguments of :func:`check_selector` and its counterparts.

    Attributes:
        kind: ``selector``, ``backbone``, ``method`` or ``dataset``.
        rule: text of the rule, also its string representation.
    """

    kind: str
    rule: str
    function: Callable[[Subject], None]

    def __str__(self) -> str:
        return self.rule

    def __call__(self, thing: Any, **options: Any) -> None:
        self.apply(make_subject(self.kind, thing, options))

    def apply(self, subject: Subject) -> None:
        with global_state_restored():
            try:
                self.function(subject)
            except SkipTest:
                raise
            except Exception as error:
                reason = str(error) if isinstance(error, Broken) else f"It raised {type(error).__name__}: {error}"
                raise AssertionError(f"{subject.label} breaks the rule {self.rule!r}. {reason}") from error


_CHECKS: list[Check] = []


def rule(rule: str, *kinds: str) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    def add(function: Callable[[Subject], None]) -> Callable[[Subject], None]:
        _CHECKS.extend(Check(kind, rule, function) for kind in kinds)
        return function

    return add


def checks(kind: str) -> list[Check]:
    """Return the rules of a kind, ordered so that the first broken one is the most informative.

    ``@pytest.mark.parametrize("check", checks("selector"), ids=str)`` creates one test per rule.
    """
    if kind not in KINDS:
        raise InputError(f"unknown kind {kind!r}; choose one of: {', '.join(KINDS)}")
    return [check for check in _CHECKS if check.kind == kind]


def run(kind: str, thing: Any, options: dict[str, Any]) -> None:
    subject, skipped = make_subject(kind, thing, options), None
    for check in checks(kind):
        try:
            check.apply(subject)
        except SkipTest as reason:
            skipped = skipped or reason
    if skipped is not None:
        raise skipped


def make_subject(kind: str, thing: Any, options: dict[str, Any]) -> Subject:
    registry, base = KINDS[kind]
    if isinstance(thing, str):
        name = registry.resolve(thing)
        return Subject(f"{kind} {name!r}", partial(registry.create, name, **options), registry, name)
    if isinstance(thing, base) and kind != "backbone":
        if options:
            raise InputError(f"option {min(options)!r} needs a name or a class; this {kind} is already an instance")
        return Subject(f"{kind} {type(thing).__name__}", lambda: deepcopy(thing), registry)
    if isinstance(thing, nn.Module) or not callable(thing):
        raise InputError(f"check_{kind} got {type(thing).__name__}; pass a name, a class or a factory function")
    return Subject(f"{kind} {getattr(thing, '__name__', thing)}", partial(thing, **options), registry)


@rule("is registered with a help text", *KINDS)
def _registered(subject: Subject) -> None:
    if subject.name is not None:
        require(bool(subject.registry.help(subject.name).strip()), "help= is empty, and so is the docstring.")
