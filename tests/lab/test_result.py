"""The text output of one run."""

import copy
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ergnn.lab.result import measure_table, run_text
from ergnn.learning.metrics import AccuracyMatrix
from ergnn.pages.table import LEAKY

RESULT: dict[str, Any] = {
    "dataset": "cora",
    "backbone": "gat",
    "method": "replay",
    "selector": "im",
    "per_class": 1,
    "protocol": "paper",
    "split": "public",
    "head": "shared",
    "edges": "own",
    "seeds": [3, 4, 5],
    "pm": {"mean": 0.9458, "std": 0.0052, "ci95": 0.0065},
    "fm": {"mean": 0.1173, "std": 0.02, "ci95": 0.0248, "denominator": "M-1"},
    "aa": {"mean": 0.87, "std": 0.01, "ci95": 0.0124},
    "matrix": [[0.982, None, None], [0.831, 0.93, None], [0.79, 0.86, 0.962]],
    "buffer": {"nodes": 6, "bytes": 34_400},
    "seconds": 32.14,
    "train_seconds": 20.0,
    "select_seconds": 1.0,
    "peak_memory_mb": 1612.4,
    "leaky": False,
    "reveals_labels": False,
    "metric": "accuracy",
    "scenario": None,
    "tasks": [["Case_Based", "Genetic"], ["Neural_Networks", "Probabilistic"], ["Reinforcement", "Rules"]],
    "paper": {"pm": 0.9566, "fm": 0.2114, "table": 2},
    "notes": ["seeded split instead of the public one"],
}


def result(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(RESULT), **changes}


def test_full_text_page() -> None:
    assert run_text(RESULT).splitlines() == [
        "cora · gat · replay · im, 1 node per class",
        "protocol paper · public split · shared head · own edges · 3 seeds",
        "",
        " accuracy (%) │ task 1  task 2  task 3",
        "──────────────┼───────────────────────",
        " after task 1 │  98.20",
        " after task 2 │  83.10   93.00",
        " after task 3 │  79.00   86.00   96.20",
        "",
        " task 1  Case_Based, Genetic",
        " task 2  Neural_Networks, Probabilistic",
        " task 3  Reinforcement, Rules",
        "",
        " %                             │   mean ± std   95 % interval  paper   diff",
        "───────────────────────────────┼───────────────────────────────────────────",
        " PM performance mean           │ 94.58 ± 0.52  [93.93, 95.23]  95.66  -1.08",
        " FM forgetting mean (over M-1) │ 11.73 ± 2.00   [9.25, 14.21]  21.14  -9.41",
        " AA average accuracy           │ 87.00 ± 1.00  [85.76, 88.24]      –      –",
        "",
        "Buffer   6 nodes, 34.4 kB",
        "Time     32.1 s",
        "         selection took 5 % of the training time",
        "Memory   1,612 MB (peak)",
        "",
        "Note     seeded split instead of the public one",
    ]


def test_leaky_runs_are_marked_at_the_top_and_above_their_numbers() -> None:
    assert LEAKY not in run_text(RESULT)
    page = run_text(result(leaky=True))
    assert page.splitlines()[2] == LEAKY
    assert page.count(LEAKY) == 2
    assert page.index(LEAKY, page.index("after task 3")) < page.index("PM performance mean")
    for form in ("text", "markdown", "latex"):
        assert LEAKY in measure_table(result(leaky=True)).render(form)


def test_one_seed_shows_no_spread() -> None:
    single = {"mean": 0.5, "std": 0.0, "ci95": None}
    page = run_text(result(seeds=[0], pm=single, fm={**single, "denominator": "M"}, aa=single, paper=None))
    assert "· 1 seed\n" in page
    assert " PM performance mean         │      50.00              –" in page
    assert "FM forgetting mean (over M) " in page
    assert "diff" not in page


def test_the_upper_triangle_is_not_shown() -> None:
    table = AccuracyMatrix([[0.5, 0.4], [0.3, 0.9]], "micro-f1").table()
    assert table.header == ["micro-F1 (%)", "task 1", "task 2"]
    assert table.rows == [["after task 1", "50.00", ""], ["after task 2", "30.00", "90.00"]]


@given(st.integers(1, 40), st.integers(1, 30), st.floats(0, 1), st.floats(0, 0.5))
def test_the_page_fits_80_columns(tasks: int, nodes: int, score: float, spread: float) -> None:
    matrix = np.tril(np.full((tasks, tasks), score)).tolist()
    summary = {"mean": score, "std": spread, "ci95": spread}
    page = run_text(
        result(
            matrix=matrix,
            pm=summary,
            fm={**summary, "denominator": "M-1"},
            aa=summary,
            tasks=[[f"a class with a long name {i}" for i in range(5)]] * tasks,
            buffer={"nodes": nodes * tasks, "bytes": 10**9},
            notes=["a long note " * 20],
        )
    )
    assert max(map(cell_len, page.splitlines())) <= 80


def test_many_tasks_show_the_first_and_the_last() -> None:
    matrix = np.tril(np.arange(1, 530).reshape(23, 23) / 1000)
    table = AccuracyMatrix(matrix).table()
    assert table.header[1:] == ["task 1", "task 2", "task 3", "task 4", "…", "task 21", "task 22", "task 23"]
    assert [row[0].split()[-1] for row in table.rows] == ["1", "2", "3", "4", "…", "21", "22", "23"]
    assert set(table.rows[4][1:]) == {""}
    assert [row[5] for row in table.rows] == [""] * 8
    assert table.rows[-1][1] == f"{100 * matrix[22, 0]:.2f}"
    assert table.rows[-1][-1] == f"{100 * matrix[22, 22]:.2f}"
