"""The published numbers, compared with the source of the paper if available."""

import doctest
import os
import re
from pathlib import Path

import pytest

from ergnn.lab import paper
from ergnn.lab.paper import paper_result

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


def test_table_2_is_what_the_paper_prints(source: str) -> None:
    rows = printed_table(source, "Performance")
    assert len(rows) == 13
    for name, *cells in rows:
        for graph, pm, fm in zip(("cora", "citeseer", "reddit"), cells[::2], cells[1::2], strict=True):
            found = paper_result(graph, *key(name))
            assert found is not None, (graph, name)
            assert (f"{100 * found['pm']:.2f}", f"{100 * found['fm']:.2f}", found["table"]) == (pm, fm, 2)


def test_table_3_is_what_the_paper_prints(source: str) -> None:
    rows = [row for row in printed_table(source, "Performance2") if row[0].startswith("ER-")]
    assert len(rows) == 6
    for name, *cells in rows:
        for graph, fm in zip(("cora", "citeseer", "reddit"), cells, strict=True):
            found = paper_result(graph, *key(name))
            assert found is not None, (graph, name)
            assert (found["pm"], f"{100 * found['fm']:.2f}", found["table"]) == (None, fm, 3)


def test_table_4_is_what_the_paper_prints(source: str) -> None:
    rows = printed_table(source, "MNIST")
    assert len(rows) == 4
    for name, fm in rows:
        found = paper_result("permuted-mnist", *key(name))
        assert found is not None, name
        assert (found["pm"], f"{found['fm']:.2f}", found["table"]) == (None, fm, 4)


def test_the_examples_in_the_docstrings_hold() -> None:
    outcome = doctest.testmod(paper)
    assert outcome.attempted >= 3
    assert outcome.failed == 0
