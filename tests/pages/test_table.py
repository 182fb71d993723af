"""The table model as text, Markdown and LaTeX."""

import doctest

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ergnn.pages import figures, table
from ergnn.pages.table import Table

CELLS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z", "M")), max_size=8)


@st.composite
def any_table(draw: st.DrawFn) -> Table:
    columns = draw(st.integers(1, 5))
    row = st.lists(CELLS, min_size=columns, max_size=columns)
    align = draw(st.text("lr", min_size=columns, max_size=columns))
    return Table(draw(row), draw(st.lists(row, max_size=5)), align)


def test_the_examples_in_the_docstrings_hold() -> None:
    for module, least in ((table, 5), (figures, 4)):
        outcome = doctest.testmod(module)
        assert outcome.attempted >= least
        assert outcome.failed == 0


def test_text_alignment() -> None:
    table = Table(["a", "bb", "ccc"], [["left", "mid", "9"], ["x", "", "10.5"]], "llr", title="Title")
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
    at = cell_len(header.partition("│")[0])
    assert [cell_len(row.partition("│")[0]) for row in rows] == [at] * 3
    assert len({cell_len(row) for row in rows}) == 1


@given(any_table())
def test_every_line_of_text_fits_under_the_rule(table: Table) -> None:
    header, rule, *rows = table.to_text().split("\n")
    assert set(rule) <= {"─", "┼"}
    assert len(rows) == len(table.rows)
    assert all(cell_len(line) <= len(rule) for line in (header, *rows))
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


def test_integers_have_separators() -> None:
    assert Table(["a", "b"], [[12345, "12345"]]).rows == [["12,345", "12345"]]
