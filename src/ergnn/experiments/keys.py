"""Which settings decide a run's numbers, and the hash by which a finished run is found again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ergnn.errors import InputError
from ergnn.experiments.config import DEFAULTS, RunConfig

KEY_SCHEMA = 2
"""Part of every key: raised when the meaning or the default of an existing setting changes, or that of an option of a
method, selector or backbone, as keys do not hold defaults."""

WHICH_MEMBERS = ("seeds", "first_seed", "orders")
NOT_DECIDING = ("denominator", "device")
"""Settings that decide how results are shown or where they are computed, not what they are (but for rounding)."""

ALWAYS = (
    *("dataset", "backbone", "method", "protocol", "split", "class_order", "head", "edges", "leftover"),
    *("classes_per_task", "epochs", "lr", "weight_decay", "optimizer", "backbone_options"),
)
"""Settings that are kept at their default, too, as protocols and backbones decide them."""


def member_config(config: RunConfig) -> dict[str, Any]:
    """All that decides the numbers of a resolved configuration's members, but for seed and class order.

    Options of the method and settings that are not :data:`ALWAYS` kept are left out at their default: a later version
    of the package, with more of them, finds earlier runs again.
    """
    return {
        name: value
        for name, value in config.flat().items()
        if name not in (*WHICH_MEMBERS, *NOT_DECIDING) and (name in ALWAYS or value != DEFAULTS.get(name, ...))
    }


def member_key(config: RunConfig, seed: int, order: int) -> str:
    """SHA-256 of the canonical JSON of a member: its settings, seed, class order and the store's schema."""
    member = {"schema": KEY_SCHEMA, "config": member_config(config), "seed": seed, "order": order}
    return hashlib.sha256(canonical_json(member).encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """One text for equal values: keys sorted, no spaces, whole numbers without a fraction.

    >>> canonical_json({"b": 1.0, "a": (0.5, None)})
    '{"a":[0.5,null],"b":1}'
    """
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _canonical(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value is None or isinstance(value, str | int | float):
        return value
    raise InputError(f"{value!r} cannot be part of a stored configuration; use numbers, texts, lists and mappings")
