"""Comparison of states, and detection of unwanted changes."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from ergnn.data.datasets.storage import OFFLINE_VARIABLE


class Broken(Exception):
    """The observation that breaks the rule being checked."""


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)


def same(a: Any, b: Any) -> bool:
    """Return whether nested dictionaries, lists and (sparse) tensors are equal bit for bit."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.layout != b.layout or a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.layout == torch.sparse_csr:
            components = ("crow_indices", "col_indices", "values")
            return all(torch.equal(getattr(a, component)(), getattr(b, component)()) for component in components)
        return torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(p, q) for p, q in zip(a, b, strict=True))
    return bool(a == b)


def saved_and_loaded(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def random_state() -> tuple[Any, ...]:
    _, key, position, *_ = np.random.get_state()  # noqa: NPY002 - the global generator is what is watched
    return torch.get_rng_state(), random.getstate(), np.asarray(key).tobytes(), position


@contextmanager
def global_state_restored() -> Iterator[None]:
    state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)  # noqa: NPY002


@contextmanager
def unchanged(what: str, read: Callable[[], Any]) -> Iterator[None]:
    before = deepcopy(read())
    yield
    require(same(before, read()), f"{what} changed.")


@contextmanager
def offline() -> Iterator[list[str]]:
    """Forbid downloads through the environment variable, and record and reject every attempt to reach a host."""
    attempts: list[str] = []

    def refuse(*args: Any, **kwargs: Any) -> Any:
        attempts.append(str(args[:2]))
        raise OSError("no network while a data set is checked")

    with (
        mock.patch.dict(os.environ, {OFFLINE_VARIABLE: "1"}),
        mock.patch("socket.getaddrinfo", refuse),
        mock.patch("socket.socket.connect", refuse),
    ):
        yield attempts
