"""Choices that a comparison makes for each method: the size of its memory, and its hyper-parameters."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from itertools import product
from random import Random
from typing import Any

MAX_PROBES = 8
"""Sizes to measure at most; bytes are nearly linear in the size, so that two or three are usual."""
FULL = 0.95
"""A memory of this share of the budget is large enough."""

TRAINING = {"lr": (0.002, 0.005, 0.01, 0.02), "weight_decay": (0.0, 3e-5, 5e-4)}
"""Values to try with every method that trains."""
TUNED_TRAINING = {"lr": (5e-4, 0.001, 0.002, 0.005), "weight_decay": (0.0, 3e-5, 5e-4)}
WIDTHS = (64, 128, 256)
"""The same for a preset of networks, and the units per layer that every method that trains may have."""


def largest_within(budget: int, largest: int, smallest: int) -> Generator[int, int, int]:
    """Yield sizes to measure and receive their bytes; return the largest size within the budget, 0 if there is none.

    Bytes must not decrease with the size. The next size is where the line through the last two measurements meets the
    budget, limited to the sizes that are still possible. The search ends early at :data:`FULL` of the budget.

    Args:
        budget: bytes.
        largest: the largest size to consider.
        smallest: bytes of size 1.
    """
    if smallest > budget:
        return 0
    low, low_bytes, high, slope = 1, smallest, largest + 1, max(float(smallest), 1.0)
    for _ in range(MAX_PROBES):
        if high - low <= 1 or low_bytes >= FULL * budget:
            break
        size = min(max(low + int((budget - low_bytes) / slope), low + 1), high - 1)
        measured = yield size
        slope = max((measured - low_bytes) / (size - low), 1.0)
        if measured > budget:
            high = size
        else:
            low, low_bytes = size, measured
    return low


def trial_settings(
    space: Mapping[str, Sequence[Any]], defaults: Mapping[str, Any], count: int, seed: str
) -> list[dict[str, Any]]:
    """Return the settings to try: the defaults (no settings), then random points of the space, each once.

    Args:
        space: values by name.
        defaults: default values; a point that equals them is left out.
        count: number of trials; fewer if the space is smaller.
        seed: the same seed and space give the same points.
    """
    points = [dict(zip(space, values, strict=True)) for values in product(*space.values())] if space else []
    usual = {name: defaults.get(name) for name in space}
    points = [point for point in points if point != usual]
    return [{}, *Random(seed).sample(points, min(count - 1, len(points)))]
