"""Any order of changes, against plain dictionaries and against learning at once; see :mod:`folder.histories`."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from ergnn.folder import Settings
from folder.growing import quick
from folder.histories import Audit, check

NETWORK = quick(epochs=1, per_class=2)
SOLVED = [
    Settings.from_settings(options)
    for options in (
        {"scale": "rows"},
        {"feature_map": "hops"},
        {"feature_map": "ppr", "sketch": 5, "lam": 0.1},
        {"map_options": {"max_edges": 30}},  # which the graph exceeds after a few updates
        {"feature_map": "hops", "map_options": {"num_hops": 1}, "sketch": 3},
    )
]


@pytest.mark.parametrize("number", range(6))
def test_any_changes_equal_learning_at_once_and_leave_no_byte(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, labels = [*SOLVED, NETWORK][number], 0
    if number == 4:
        monkeypatch.setattr("ergnn.analytic.ridge.LOO_ROWS", 20)
        labels = 60
    audit = Audit(tmp_path / "d", number, settings, labels)
    for _ in range(10):
        audit.step()
    if number == 0:
        check(audit.folder, audit.whole)  # with a learner in memory


@pytest.mark.slow
def test_200_folders_with_ten_changes_each(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(200):
        settings = NETWORK if seed % 5 == 4 else SOLVED[seed // 5 % len(SOLVED)]
        audit = Audit(tmp_path / "d", seed, settings, 2300 if seed % 16 == 3 else 0)  # above the rows of leave-one-out
        counts.update(audit.step() for _ in range(10))
        counts["folders with labels above 2,048"] += len(audit.whole.label) > 2048
        shutil.rmtree(tmp_path / "d")
        if seed % 40 == 39:
            print(f"{seed + 1} folders: {dict(counts)}", flush=True)
    assert min(counts.values()) >= 5
