"""The settings that decide the numbers of a run, and the hash that identifies it in the store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from ergnn.errors import InputError
from ergnn.experiments.config import RunConfig

KEY_SCHEMA = 1
"""Part of every key. Raise it when the meaning or default of an existing setting changes, or of an option of a method,
selector or backbone (keys do not contain their defaults). Stores stay readable; their runs are not reused."""

WHICH_MEMBERS = ("seeds", "first_seed", "orders")
NOT_DECIDING = ("denominator", "device")
"""Settings that do not change the results (except for rounding)."""

ALWAYS = (
    *("dataset", "backbone", "method", "protocol", "split", "class_order", "head", "edges", "leftover"),
    *("classes_per_task", "epochs", "lr", "weight_decay", "optimizer", "backbone_options"),
)
REMEMBERING = ("selector", "per_class", "loss_scale", "beta", "replay", "hops", "selector_options")
READS: dict[str, tuple[str, ...]] = {
    "replay": REMEMBERING,
    "gem": ("per_class", "replay", "hops"),
    "agem": ("per_class", "replay", "hops"),
}
"""The settings for remembering nodes that a method uses; other methods use none."""


def member_config(config: RunConfig) -> dict[str, Any]:
    """Settings that decide the numbers of a resolved configuration, without seed and class order.

    Settings that the method does not use are left out, and so are settings added after the first version of the
    store as long as they have their default: later versions of the package find earlier runs.
    """
    kept: dict[str, Any] = {}
    for f in fields(config):
        if f.name in WHICH_MEMBERS or f.name in NOT_DECIDING:
            continue
        if f.name in REMEMBERING and f.name not in READS.get(config.method, ()):
            continue
        value = getattr(config, f.name)
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        if f.name in ALWAYS or f.name in REMEMBERING or value != default:
            kept[f.name] = value
    return kept


def member_key(config: RunConfig, seed: int, order: int) -> str:
    """SHA-256 of the canonical JSON of a member: settings, seed, class order and key schema."""
    member = {"schema": KEY_SCHEMA, "config": member_config(config), "seed": seed, "order": order}
    return hashlib.sha256(canonical_json(member).encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """The same text for equal values: sorted keys, no spaces, integers without a fraction.

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
    raise InputError(f"{value!r} cannot be part of a stored configuration; use numbers, strings, lists and mappings")
