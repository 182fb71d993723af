"""Definition and execution of rules, and what rules compare and watch."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import SkipTest

import numpy as np
import torch
from torch import nn

from ergnn.config.errors import InputError, check_choice
from ergnn.config.registry import Registry
from ergnn.data import DATASETS
from ergnn.data.datasets import Dataset
from ergnn.engine.distributed import digest
from ergnn.methods import METHODS, Method
from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.replay import SELECTORS, Selector

KINDS: dict[str, tuple[Registry[Any], type]] = {
    "selector": (SELECTORS, Selector),
    "backbone": (BACKBONES, Backbone),
    "method": (METHODS, Method),
    "dataset": (DATASETS, Dataset),
}
"""Kind → its registry, and the base class of its instances."""


class Broken(Exception):
    """The observation that breaks the rule being checked."""


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)


class Skipped(SkipTest):
    """The rule cannot be checked on this machine; pytest and unittest report a skipped test."""


@dataclass(frozen=True)
class Subject:
    """The object under test: its kind, its name in messages, and its registered name, if any.

    ``shared`` has results that several rules look at.
    """

    kind: str
    label: str
    factory: Callable[..., Any]
    name: str | None = None
    shared: dict[Any, Any] = field(default_factory=dict)

    def make(self, **options: Any) -> Any:
        """Create an instance."""
        made, base = self.factory(**options), KINDS[self.kind][1]
        require(isinstance(made, base), f"{type(made).__name__} does not derive from {base.__name__}.")
        return made


@dataclass(frozen=True)
class Check:
    """One rule, as text, of a kind. Call it with the arguments of :func:`check_selector` and its counterparts."""

    kind: str
    rule: str
    function: Callable[[Subject], None]

    def __str__(self) -> str:
        return self.rule

    def __call__(self, thing: Any, **options: Any) -> None:
        subject = thing if isinstance(thing, Subject) else make_subject(self.kind, thing, options)
        with torch.random.fork_rng(devices=[]):
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
    check_choice("kind", kind, KINDS)
    return [check for check in _CHECKS if check.kind == kind]


def run(kind: str, thing: Any, options: dict[str, Any]) -> None:
    subject, skipped = make_subject(kind, thing, options), None
    for check in checks(kind):
        try:
            check(subject)
        except SkipTest as reason:
            skipped = skipped or reason
    if skipped is not None:
        raise skipped


def make_subject(kind: str, thing: Any, options: dict[str, Any]) -> Subject:
    registry, base = KINDS[kind]
    if isinstance(thing, str):
        name = registry.resolve(thing)
        return Subject(kind, f"{kind} {name!r}", partial(registry.create, name, **options), name)
    if isinstance(thing, base) and kind != "backbone":
        if options:
            raise InputError(f"option {min(options)!r} needs a name or a class; this {kind} is already an instance")
        return Subject(kind, f"{kind} {type(thing).__name__}", lambda: deepcopy(thing))
    if isinstance(thing, nn.Module) or not callable(thing):
        raise InputError(f"check_{kind} got {type(thing).__name__}; pass a name, a class or a factory function")
    return Subject(kind, f"{kind} {getattr(thing, '__name__', thing)}", partial(thing, **options))


@rule("its constructor only stores and checks arguments, and leaky is a bool", "selector", "method")
def _constructor(subject: Subject) -> None:
    with unchanged("Constructing it drew random numbers: the state of a global generator", random_state):
        made = subject.make()
    require(isinstance(made.leaky, bool), f"leaky is {made.leaky!r}.")


@rule("is registered with a help text", *KINDS)
def _registered(subject: Subject) -> None:
    if subject.name is not None:
        require(bool(KINDS[subject.kind][0].help(subject.name).strip()), "help= is empty, and so is the docstring.")


def same(a: Any, b: Any) -> bool:
    """Return whether nested dictionaries, lists and (sparse) tensors are equal bit for bit."""
    return digest(a) == digest(b)


def saved_and_loaded(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def random_state() -> tuple[Any, ...]:
    _, key, position, *_ = np.random.get_state()  # noqa: NPY002 - the global generator is what is watched
    return torch.get_rng_state(), random.getstate(), np.asarray(key).tobytes(), position


@contextmanager
def unchanged(what: str, read: Callable[[], Any]) -> Iterator[None]:
    before = digest(read())
    yield
    require(digest(read()) == before, f"{what} changed.")
