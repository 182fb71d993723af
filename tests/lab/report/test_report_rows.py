"""The page shows and describes every stored row, for any configuration."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ergnn.cli.main import main
from ergnn.config.errors import UnknownNameError
from ergnn.lab.paper import paper_result
from ergnn.lab.report.page import report_page
from ergnn.lab.report.rows import ResultRow, result_rows
from ergnn.lab.report.tables import _printed, page_table, result_table
from ergnn.lab.result import StoredRun
from ergnn.lab.statistics import MEASURES
from ergnn.lab.store import RunStore
from ergnn.pages.figure_files import converter
from ergnn.pages.table import with_interval


@pytest.fixture(scope="module")
def runs(store: Path) -> list[StoredRun]:
    with RunStore(store, create=False) as opened:
        return opened.runs()


def changed(run: StoredRun, **settings: Any) -> StoredRun:
    """The same run under other settings."""
    columns = {name: value for name, value in settings.items() if name in ("dataset", "per_class", "head", "backbone")}
    return replace(run, config={**run.config, **settings}, **columns)


def table_rows(page: str) -> list[str]:
    """Names in the tables of results; the tables of time and memory have every row anyway."""
    tables = re.findall(r'<table class="sortable" id="table.*?</table>', page, re.S)
    return re.findall(r'<th scope="row" data-v="([^"]*)"', "".join(tables))


def test_replay_rows_with_more_nodes_per_class_are_shown_without_e_1(runs: list[StoredRun]) -> None:
    only = [changed(run, per_class=5) if run.method == "replay" else run for run in runs if run.per_class != 2]
    page, rows = report_page(only), result_rows(only)
    assert sorted(table_rows(page)) == sorted(row.name for row in rows)
    growth = page.partition('<section id="figure2"')[2].partition("</section>\n")[0]
    for name in ("Random", "MF", "MF*", "IM"):
        assert f">{name}</text>" in growth, "figure 2 shows the rows with the smallest e"
    assert "FM − Random" in page


def test_every_row_is_in_a_table_or_in_figure_3(runs: list[StoredRun]) -> None:
    page = report_page(runs)
    figure_3 = page.partition('<section id="figure3"')[2].partition("<h2>")[2].partition("<h2>")[0]
    swept = re.findall(r"<li><span>([^<]*)</span>", figure_3)
    assert "ER-GAT · MF*, e = 2" in swept
    row = next(row for row in result_rows(runs) if row.per_class == 2)
    assert re.findall(rf"{re.escape(with_interval(row.fm))}</td>", figure_3.replace("−", "-"))
    assert {*table_rows(page), *swept} == {row.name for row in result_rows(runs)}


def test_growing_heads_are_not_compared_with_the_paper(runs: list[StoredRun]) -> None:
    gat = [run for run in runs if (run.backbone, run.method, run.protocol) == ("gat", "finetune", "paper")]
    (row,) = result_rows(gat)
    assert row.paper is not None
    (growing,) = result_rows([changed(run, head="growing") for run in gat])
    assert growing.paper is None
    assert "30.84" in report_page(gat)
    assert "30.84" not in report_page([changed(run, head="growing") for run in gat])


def test_text_and_page_have_the_same_numbers(runs: list[StoredRun]) -> None:
    rows: list[ResultRow] = [row for row in result_rows(runs) if row.runs[0].protocol == "paper" and row.per_class == 1]
    names = [row.name for row in rows]
    text, page = result_table(names, rows), page_table("id", "cora", rows, {}, 100)
    assert text.header == ["%", "PM paper", "PM ours", "diff", "FM paper", "FM ours", "diff", "AA ours"]
    assert page.groups == [("", 1), ("PM (%)", 3), ("FM (%)", 3), ("AA (%)", 1), ("", 1)]
    for short, long in zip(text.rows, page.rows, strict=True):
        assert short == long[:-1]
    for form in ("text", "markdown", "latex"):
        assert "93.62" in text.render(form)


@pytest.mark.parametrize(("name", "first"), [("t.md", "**cora"), ("t.tex", r"\begin{table}"), ("t.txt", "cora · ")])
def test_only_tables_are_written_to_text_files(name: str, first: str, store: Path, tmp_path: Path) -> None:
    assert main(["report", "--store", str(store), "-o", str(tmp_path / name)]) == 0
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert text.startswith(first)
    assert "93.62" in text
    assert len(re.findall(r"^.*ER-GAT.*MF.*e = 2", text, re.MULTILINE)) == 1


def test_figures_are_written_as_files(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, suffixes = tmp_path / "figures", {".svg", ".pdf"} if converter() else {".svg"}
    arguments = ["--store", str(store), "-o", str(tmp_path / "page.html"), "--figures", str(out)]
    assert main(["report", *arguments]) == 0
    assert f"{out}: {7 * len(suffixes)} files" in capsys.readouterr().out
    kinds = {path.stem.partition("-")[0] for path in out.iterdir()}
    assert kinds == {"growth", "sweep", "matrices", "forgetting"}
    assert {path.suffix for path in out.iterdir()} == suffixes
    text = "".join(ET.parse(out / "growth-cora-1.svg").getroot().itertext())
    for word in ("no replay", "Random", "MF*", "IM", "AA over the tasks so far (%)", "tasks learned"):
        assert word in text
    assert "ER-GAT · IM (target=test) · LEAKY" in "".join(ET.parse(out / "matrices-cora-1.svg").getroot().itertext())


def test_the_papers_numbers_are_those_of_the_measures_that_it_reports() -> None:
    paper = paper_result("cora", "gat", "finetune", None, None)
    assert [_printed(paper, name) for name in MEASURES] == [paper["pm"], paper["fm"], None, None, None]
    assert _printed(None, "pm") is None
    with pytest.raises(UnknownNameError, match="unknown measure 'fwt'; choose one of: aa, af, bwt, fm, pm"):
        _printed(paper, "fwt")
