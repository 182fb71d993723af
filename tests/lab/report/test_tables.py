"""The table model as text, Markdown and LaTeX, and the output of one run."""

from __future__ import annotations

import copy
import doctest
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ergnn.config.errors import InputError, UnknownNameError
from ergnn.lab.paper import paper_result
from ergnn.lab.report.result_tables import _printed
from ergnn.lab.statistics import MEASURES
from ergnn.pages import table as table_model
from ergnn.pages import tables
from ergnn.pages.table import LEAKY, Table, display_width
from ergnn.pages.tables import RESULT_FIELDS, accuracy_table, measure_table, run_table

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
    "buffer": {"nodes": 6, "bytes": 34_400, "ids": [5, 17, 120, 301, 77, 88]},
    "seconds": 32.14,
    "peak_memory_mb": 1612.4,
    "leaky": False,
    "tasks": [["Case_Based", "Genetic"], ["Neural_Networks", "Probabilistic"], ["Reinforcement", "Rules"]],
    "paper": {"pm": 0.9566, "fm": 0.2114, "table": 2},
    "notes": ["seeded split instead of the public one"],
}

CELLS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z", "M")), max_size=8)


def result(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(RESULT), **changes}


@st.composite
def any_table(draw: st.DrawFn) -> Table:
    columns = draw(st.integers(1, 5))
    row = st.lists(CELLS, min_size=columns, max_size=columns)
    align = draw(st.text("lcr", min_size=columns, max_size=columns))
    return Table(draw(row), draw(st.lists(row, max_size=5)), align)


def test_the_examples_in_the_docstrings_hold() -> None:
    for module, least in ((tables, 1), (table_model, 5)):
        outcome = doctest.testmod(module)
        assert outcome.attempted >= least
        assert outcome.failed == 0


# the table model


def test_text_alignment() -> None:
    table = Table(["a", "bb", "ccc"], [["left", "mid", "9"], ["x", "", "10.5"]], "lcr", title="Title")
    assert table.to_text().splitlines() == [
        "Title",
        " a    │ bb    ccc",
        "──────┼──────────",
        " left │ mid     9",
        " x    │      10.5",
    ]


def test_text_keeps_its_columns_under_wide_and_combining_letters() -> None:
    text = Table(["name", "n"], [["図書館", "1"], ["cafe\u0301", "2"], ["plain", "3"]]).to_text()
    header, _, *rows = text.splitlines()
    at = display_width(header.partition("│")[0])
    assert [display_width(row.partition("│")[0]) for row in rows] == [at] * 3
    assert len({display_width(row) for row in rows}) == 1


@given(any_table())
def test_every_line_of_text_fits_under_the_rule(table: Table) -> None:
    header, rule, *rows = table.to_text().split("\n")
    assert set(rule) <= {"─", "┼"}
    assert len(rows) == len(table.rows)
    assert all(display_width(line) <= len(rule) for line in (header, *rows))
    assert all(line == line.rstrip() for line in (header, *rows))
    for row, line in zip(table.rows, rows, strict=True):
        assert all(cell in line for cell in row)


@given(any_table())
def test_markdown_has_the_cells_it_was_given(table: Table) -> None:
    """Split at the bars that are not escaped, drop the escapes: the cells come back."""
    lines = table.to_markdown().split("\n")
    assert len(lines) == 2 + len(table.rows)
    for line, row in zip([lines[0], *lines[2:]], [table.header, *table.rows], strict=True):
        cells, cell, letters = [], "", iter(line[1:])
        for letter in letters:
            if letter == "\\":
                cell += next(letters)
            elif letter == "|":
                cells.append(cell.strip(" "))
                cell = ""
            else:
                cell += letter
        assert cells == list(row)


@given(any_table())
def test_latex_has_as_many_columns_as_the_table(table: Table) -> None:
    body = table.to_latex().split("\n")
    assert body[0] == rf"\begin{{tabular}}{{{table.align}}}"
    rows = [line for line in body if line.endswith(r" \\")]
    assert len(rows) == 1 + len(table.rows)
    for row in rows:
        assert row.replace(r"\&", "").count("&") == len(table.header) - 1


def test_latex_escapes_special_characters() -> None:
    table = Table([r"50% & $x_1$ {a} #1 ~^\ "], [["-0.5 ± 0.1 · M-1 …"], ["[0.1, -0.2]"], ["*"]])
    lines = table.to_latex().splitlines()
    assert lines[2].startswith(r"50\% \& \$x\_1\$ \{a\} \#1 \textasciitilde{}\textasciicircum{}\textbackslash{}")
    assert lines[4] == r"$-$0.5 $\pm$ 0.1 $\cdot$ M-1 \dots{} \\"
    assert lines[5] == r"{[}0.1, $-$0.2] \\", "a bare [ after a line break would be read as its option"
    assert lines[6] == r"{*} \\"


def test_titles_in_markdown_and_latex() -> None:
    table = Table(["a"], [["b"]], title="mf* & co")
    assert table.to_markdown().startswith("**mf\\* & co**\n\n| a |")
    latex = table.to_latex()
    assert latex.startswith("\\begin{table}\n\\centering\n\\caption{mf* \\& co}\n\\begin{tabular}{l}")
    assert latex.endswith("\\end{tabular}\n\\end{table}")


def test_render_by_name() -> None:
    table = Table(["a"], [["b"]])
    assert table.render("text") == table.to_text()
    assert table.render("markdown") == table.to_markdown()
    assert table.render("latex") == table.to_latex()
    with pytest.raises(InputError, match="'html'; choose one of: text, markdown, latex"):
        table.render("html")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], []), "at least one column"),
        ((["a", "b"], [["1", "2"], ["1"]]), "row 1 has 1 cells; the header has 2"),
        ((["a", "b"], [], "l"), "align is 'l'.*each of 2 columns"),
        ((["a"], [], "x"), "align is 'x'.*l, c, r"),
    ],
)
def test_tables_that_are_not_rectangular_are_rejected(arguments, message) -> None:
    with pytest.raises(InputError, match=message):
        Table(*arguments)


# one run


def test_full_text_page() -> None:
    assert run_table(RESULT).splitlines() == [
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
        "         5, 17, 120, 301, 77, 88",
        "Time     32.1 s",
        "Memory   1,612 MB (peak)",
        "",
        "Note     seeded split instead of the public one",
    ]


def test_the_page_is_the_same_from_json() -> None:
    assert run_table(json.loads(json.dumps(RESULT))) == run_table(RESULT)


def test_leaky_runs_are_marked_at_the_top_and_above_their_numbers() -> None:
    assert LEAKY not in run_table(RESULT)
    page = run_table(result(leaky=True))
    assert page.splitlines()[2] == LEAKY
    assert page.count(LEAKY) == 2
    assert page.index(LEAKY, page.index("after task 3")) < page.index("PM performance mean")
    for form in ("text", "markdown", "latex"):
        assert LEAKY in measure_table(result(leaky=True)).render(form)


def test_finetune_shows_no_selector_and_no_buffer() -> None:
    page = run_table(result(method="finetune", selector=None, per_class=None, buffer=None))
    assert page.splitlines()[0] == "cora · gat · finetune"
    assert "Buffer" not in page
    empty = {"nodes": 0, "bytes": 0, "ids": []}
    assert run_table(result(method="finetune", selector=None, per_class=None, buffer=empty)) == page


def test_one_seed_shows_no_spread() -> None:
    single = {"mean": 0.5, "std": 0.0, "ci95": None}
    page = run_table(result(seeds=[0], pm=single, fm={**single, "denominator": "M"}, aa=single, paper=None))
    assert "· 1 seed\n" in page
    assert " PM performance mean         │      50.00              –" in page
    assert "FM forgetting mean (over M) " in page
    assert "diff" not in page


def test_matrices_of_each_seed_are_averaged() -> None:
    runs = np.array([[[0.5, np.nan], [0.25, 1.0]], [[1.0, np.nan], [0.75, 0.5]]])
    rows = accuracy_table(result(matrix=runs.tolist())).rows
    assert rows == [["after task 1", "75.00", ""], ["after task 2", "50.00", "75.00"]]


def test_upper_triangle_is_not_shown_and_gaps_below_it_are_marked() -> None:
    table = accuracy_table(result(matrix=[[0.5, 0.4], [None, 0.9]], metric="micro-f1"))
    assert table.header == ["micro-F1 (%)", "task 1", "task 2"]
    assert table.rows == [["after task 1", "50.00", ""], ["after task 2", "–", "90.00"]]


def test_matrix_that_is_not_square_is_rejected() -> None:
    with pytest.raises(InputError, match=r"shape \[1, 2\]"):
        run_table(result(matrix=[[0.5, 0.5]]))


@given(st.integers(1, 40), st.integers(1, 30), st.floats(0, 1), st.floats(0, 0.5))
def test_the_page_fits_80_columns(tasks: int, nodes: int, score: float, spread: float) -> None:
    matrix = np.tril(np.full((tasks, tasks), score)).tolist()
    summary = {"mean": score, "std": spread, "ci95": spread}
    ids = [[10**6 + node for node in range(nodes * tasks)] for _ in range(3)]
    page = run_table(
        result(
            matrix=matrix,
            pm=summary,
            fm={**summary, "denominator": "M-1"},
            aa=summary,
            tasks=[[f"a class with a long name {i}" for i in range(5)]] * tasks,
            buffer={"nodes": nodes * tasks, "bytes": 10**9, "ids": ids},
            notes=["a long note " * 20],
        )
    )
    assert max(map(display_width, page.splitlines())) <= 80


def test_many_tasks_show_the_first_and_the_last() -> None:
    matrix = np.tril(np.arange(1, 530).reshape(23, 23) / 1000)
    table = accuracy_table(result(matrix=matrix.tolist()))
    assert table.header[1:] == ["task 1", "task 2", "task 3", "task 4", "…", "task 21", "task 22", "task 23"]
    assert [row[0].split()[-1] for row in table.rows] == ["1", "2", "3", "4", "…", "21", "22", "23"]
    assert set(table.rows[4][1:]) == {""}
    assert [row[5] for row in table.rows] == [""] * 8
    assert table.rows[-1][1] == f"{100 * matrix[22, 0]:.2f}"
    assert table.rows[-1][-1] == f"{100 * matrix[22, 22]:.2f}"


def test_stored_nodes_of_several_seeds_show_the_first_seed() -> None:
    kept = {"nodes": 2, "bytes": 900, "ids": [[11, 12], [21, 22], [31, 32]]}
    page = run_table(result(buffer=kept))
    assert "Buffer   2 nodes, 900 B\n         seed 3: 11, 12\n" in page
    assert "21" not in page.partition("Buffer")[2]


def test_large_buffers_are_truncated() -> None:
    page = run_table(result(buffer={"nodes": 1000, "bytes": 5e9, "ids": list(range(1000))}))
    assert "1,000 nodes, 5.0 GB" in page
    assert "39 and 960 more" in " ".join(page.split())


def test_unknown_memory_and_missing_extras_are_omitted() -> None:
    bare = {name: RESULT[name] for name in RESULT_FIELDS} | {"peak_memory_mb": None}
    page = run_table(bare)
    assert "Memory" not in page
    assert "Note" not in page
    assert "Case_Based" not in page
    assert "diff" not in page


@pytest.mark.parametrize("name", RESULT_FIELDS)
def test_a_missing_field_is_named(name: str) -> None:
    partial = result()
    del partial[name]
    with pytest.raises(InputError, match=f"no field '{name}'"):
        run_table(partial)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.04, "0.0 s"), (59.9, "59.9 s"), (61, "1 min 01 s"), (3600, "1 h 00 min")]
)
def test_times_are_formatted_in_a_suitable_unit(seconds: float, shown: str) -> None:
    assert f"Time     {shown}\n" in run_table(result(seconds=seconds))


def test_selection_time_is_shown_as_a_fraction_of_training() -> None:
    shown = run_table(result(seconds=32.1, train_seconds=20.0, select_seconds=1.0))
    assert "selection took 5 % of the training time" in shown
    assert "selection took" not in run_table(result(seconds=32.1))


def test_the_papers_numbers_are_those_of_the_measures_that_it_reports() -> None:
    paper = paper_result("cora", "gat", "finetune", None, None)
    assert paper is not None
    assert [_printed(paper, name) for name in MEASURES] == [paper["pm"], paper["fm"], None, None, None]
    assert _printed(None, "pm") is None
    with pytest.raises(UnknownNameError, match="unknown measure 'fwt'; choose one of: aa, af, bwt, fm, pm"):
        _printed(paper, "fwt")
