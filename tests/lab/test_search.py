"""Sizes within a budget against a linear scan; trials are drawn once, by seed."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from ergnn.lab.compare import FULL, MAX_PROBES, Condition, Entry, fit_memory, trial_settings


def searched(size_bytes: Callable[[int], int], budget: int, largest: int) -> tuple[int, int]:
    """The size that the search returns, and how many sizes it measured."""
    entry = Entry(Condition("cora", "class", "all"), "replay", None, budget=budget, sizes=("per_class", largest))
    search, probes = fit_memory(entry), -1  # the smallest size is no probe
    try:
        size = next(search)["per_class"]
        while True:
            probes += 1
            assert 1 <= size <= largest
            size = search.send(size_bytes(size))["per_class"]
    except StopIteration as end:
        return end.value["per_class"], probes


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 500), st.integers(1, 90), st.integers(0, 5_000), st.integers(1, 300))
def test_linear_memory_is_filled_with_few_probes(fixed: int, slope: int, budget: int, largest: int) -> None:
    def size_bytes(size: int) -> int:
        return fixed + slope * size

    found, probes = searched(size_bytes, budget, largest)
    best = max((size for size in range(1, largest + 1) if size_bytes(size) <= budget), default=1)
    assert probes <= 4
    assert found == best or (found < best and size_bytes(found) >= FULL * budget)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=60), st.integers(0, 4_000))
def test_any_growing_memory_stays_within_the_budget(steps: list[int], budget: int) -> None:
    totals = [sum(steps[: i + 1]) for i in range(len(steps))]
    found, probes = searched(lambda size: totals[size - 1], budget, len(steps))
    assert probes <= MAX_PROBES
    assert found == 1 if totals[0] > budget else totals[found - 1] <= budget


def test_trials_start_with_the_defaults_and_repeat_nothing() -> None:
    space = {"lam": (1.0, 2.0, 3.0), "hops": (1, 2)}
    tried = trial_settings(space, {"lam": 2.0, "hops": 2, "epochs": 9}, 4, "ewc")
    assert tried[0] == {}
    assert len(tried) == 4
    points = [tuple(point.items()) for point in tried[1:]]
    assert len(set(points)) == 3
    assert all(point["lam"] in space["lam"] and point["hops"] in space["hops"] for point in tried[1:])
    assert {"lam": 2.0, "hops": 2} not in tried
    assert trial_settings(space, {"lam": 2.0, "hops": 2, "epochs": 9}, 4, "ewc") == tried
    assert len(trial_settings(space, {}, 99, "ewc")) == 7
    assert trial_settings({}, {}, 4, "ewc") == [{}]
