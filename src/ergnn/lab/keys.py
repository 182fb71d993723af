"""The settings that determine the results of a run, and the hash that identifies it in the store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ergnn.config.errors import InputError
from ergnn.lab.config import DEFAULTS, RunConfig

KEY_SCHEMA = 2
"""Part of every key. Increment it when the meaning or default of an existing setting or of an option of a method,
selector or backbone changes (keys do not contain defaults). Stores stay readable; their runs are not reused."""

WHICH_MEMBERS = ("seeds", "first_seed", "orders")
NOT_DECIDING = ("denominator", "device")
"""Settings that do not change the results (except for rounding)."""

ALWAYS = (
    *("dataset", "backbone", "method", "protocol", "split", "class_order", "head", "edges", "leftover"),
    *("classes_per_task", "epochs", "lr", "weight_decay", "optimizer", "backbone_options"),
)
"""Settings that are part of the key even at their default, because protocols and backbones set them."""


def member_config(config: RunConfig) -> dict[str, Any]:
    """Return the settings of a resolved configuration that determine its results, without seed and class order.

    Options of the method, and settings that are not in :data:`ALWAYS`, are omitted if they have their default value, so
    later versions of the package with more settings still find earlier runs.
    """
    return {
        name: value
        for name, value in config.flat().items()
        if name not in (*WHICH_MEMBERS, *NOT_DECIDING) and (name in ALWAYS or value != DEFAULTS.get(name, ...))
    }


def member_key(config: RunConfig, seed: int, order: int) -> str:
    """Return the SHA-256 of the canonical JSON of a member: settings, seed, class order and key schema."""
    member = {"schema": KEY_SCHEMA, "config": member_config(config), "seed": seed, "order": order}
    return hashlib.sha256(canonical_json(member).encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """Return the same text for equal values: sorted keys, no spaces, integers without a fraction.

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
