"""The published numbers, compared with the source of the paper if available."""

import doctest
import os
import re
from pathlib import Path

import pytest

from ergnn.lab import grid
from ergnn.lab.grid import paper_result

ROWS = {
    "DeepWalk": ("deepwalk", "finetune", None),
    "Node2Vec": ("node2vec", "finetune", None),
    "GraphSAGE": ("sage", "finetune", None),
    **{name: (name.lower(), "finetune", None) for name in ("GIN", "GCN", "SGC", "GAT")},
    "FINETUNE": ("mlp", "finetune", None),
    "EWC": ("mlp", "ewc", None),
    "GEM": ("mlp", "gem", None),
    "Ours": ("mlp", "replay", "im"),
}


def plain(latex: str) -> str:
    """A cell without its markup: ``$\\text{ER-GAT-MF}^{\\star}$`` is ``ER-GAT-MF*``."""
    latex = re.sub(r"~?\\cite\{[^}]*\}", "", latex).replace(r"^{\star}", "*").replace(r"\%", "")
    return re.sub(r"\\(?:text|textbf)\{([^}]*)\}", r"\1", latex).strip(" \t$")


def printed_table(source: str, label: str) -> list[list[str]]:
    """The rows of numbers in the table with this label."""
    end = source.index(rf"\label{{{label}}}")
    body = source[source.rindex(r"\begin{tabular}", 0, end) : end]
    rows = [[plain(cell) for cell in line.split("&")] for line in re.findall(r"(.*&.*)\\\\", body)]
    return [row for row in rows if re.fullmatch(r"[\d.]+", row[-1])]


def key(row: str) -> tuple[str, str, str | None]:
    if row in ROWS:
        return ROWS[row]
    _, backbone, selector = row.split("-")
    return backbone.lower(), "replay", selector.lower()


@pytest.fixture(scope="module")
def source() -> str:
    path = os.environ.get("ERGNN_PAPER")
    if not path:
        pytest.skip("ERGNN_PAPER does not name the paper's LaTeX source")
    return Path(path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("number", "label", "graphs"),
    [
        (2, "Performance", ("cora", "citeseer", "reddit")),
        (3, "Performance2", ("cora", "citeseer", "reddit")),
        (4, "MNIST", ("permuted-mnist",)),
    ],
)
def test_tables_are_what_the_paper_prints(number: int, label: str, graphs: tuple[str, ...], source: str) -> None:
    rows = [row for row in printed_table(source, label) if number != 3 or row[0].startswith("ER-")]
    assert len(rows) == {2: 13, 3: 6, 4: 4}[number]
    for name, *cells in rows:
        pairs = zip(cells[::2], cells[1::2], strict=True) if number == 2 else [(None, fm) for fm in cells]
        for graph, (pm, fm) in zip(graphs, pairs, strict=True):
            scale = 1 if number == 4 else 100  # table 4 prints fractions
            expected = {"pm": pm and pytest.approx(float(pm) / scale), "fm": pytest.approx(float(fm) / scale)}
            assert paper_result(graph, *key(name)) == {**expected, "table": number}, (graph, name)


def test_the_examples_in_the_docstrings_hold() -> None:
    outcome = doctest.testmod(grid)
    assert outcome.attempted >= 3
    assert outcome.failed == 0
