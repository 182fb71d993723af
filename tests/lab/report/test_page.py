"""The page against its store: tables, commands and figures of every stored row, for any configuration."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ergnn.cli.main import main, make_parser
from ergnn.cli.run import config_of
from ergnn.config.errors import InputError
from ergnn.lab.config import command_of, member_config
from ergnn.lab.report.page import report_page, result_table, write_page
from ergnn.lab.report.rows import ResultRow, result_rows, settings_of
from ergnn.lab.result import StoredRun
from ergnn.lab.store import RunStore
from lab.report.stores import configurations


@pytest.fixture(scope="module")
def runs(store: Path) -> list[StoredRun]:
    with RunStore(store, create=False) as opened:
        return opened.runs()


@pytest.fixture(scope="module")
def rows(runs: list[StoredRun]) -> list[ResultRow]:
    return result_rows(runs)


@pytest.fixture(scope="module")
def page(store: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page") / "new folder" / "report.html"
    return write_page(store, out, title="A <title>", command="ergnn reproduce all --quick").read_text(encoding="utf-8")


class _Balance(HTMLParser):
    """Every element that is opened is closed, and ids are unique."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.outside += [
            value for key, value in attrs if key in ("src", "href") and not re.match(r"#|data:,", value or "")
        ]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def changed(run: StoredRun, **settings: Any) -> StoredRun:
    """The same run under other settings."""
    columns = {name: value for name, value in settings.items() if name in ("dataset", "per_class", "head", "backbone")}
    return replace(run, config={**run.config, **settings}, **columns)


def test_page_is_self_contained(page: str) -> None:
    parser = _Balance()
    parser.feed(page)
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    assert parser.outside == []
    assert len(page.encode()) < 2_000_000
    assert not re.search(r"@import|url\(|https?://", page)
    assert "<title>A &lt;title&gt;</title>" in page
    assert "ergnn reproduce all --quick" in page


def test_table_matches_the_store(page: str, store: Path) -> None:
    config = next(c for c in configurations() if member_config(c).get("selector") == "im")
    with RunStore(store) as opened:
        result = opened.result(config).to_dict()
    pm, fm = result["pm"], result["fm"]
    line = re.search(r"<tr>\s*<th[^>]*data-v=\"ER-GAT · IM\">.*?</tr>", page, re.S)
    assert line
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", line[0])
    expected = ["95.66", f"{100 * pm['mean']:.2f} (n = 2)", f"{100 * (pm['mean'] - 0.9566):+.2f}"]
    expected += ["21.14", f"{100 * fm['mean']:.2f} (n = 2)", f"{100 * (fm['mean'] - 0.2114):+.2f}"]
    assert [cell.replace("−", "-") for cell in cells[:6]] == expected
    assert cells[-1] == "2"


def test_unreliable_results_are_marked(page: str, rows: list[ResultRow]) -> None:
    leaky = [row for row in rows if row.is_leaky]
    assert [(row.name, row.first.config["selector_options"]) for row in leaky] == [
        ("ER-GAT · IM (target=test) (leaky)", {"target": "test"})
    ]
    assert all(row.name in page for row in rows)
    for words in ("leaky: LEAKY", "OWN EDGES", "Intervals of fewer than 5 runs are unreliable", "seeded split"):
        assert words in page


def test_every_row_has_the_command_that_reproduces_it(page: str, rows: list[ResultRow]) -> None:
    assert len(rows) == len(configurations())
    again = [config_of(make_parser().parse_args(row.command.split()[1:])).resolved() for row in rows]
    assert sorted(map(command_of, again)) == sorted(map(command_of, configurations()))
    assert [member_config(config) for config in again] == [row.first.config for row in rows]
    for row in rows:
        assert f"<code>{row.command}</code>" in page


def test_rows_of_different_settings_never_share_a_table(rows: list[ResultRow]) -> None:
    settings = settings_of(rows)
    first, second = settings
    assert ("paper protocol" in first, "clean protocol" in second) == (True, True)
    assert "shuffled class orders" in second
    assert "epochs 2" in first
    assert sum(len(group) for groups in settings.values() for group in groups.values()) == len(rows)


def test_text_from_a_store_cannot_become_markup(rows: list[ResultRow]) -> None:
    page = report_page([replace(rows[0].runs[0], notes=["<script>alert(1)</script>"])])
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_growth_shows_the_rows_with_the_smallest_e(runs: list[StoredRun]) -> None:
    only = [changed(run, per_class=5) if run.method == "replay" else run for run in runs if run.per_class != 2]
    growth = report_page(only).partition("average accuracy over the tasks seen so far")[2].partition("</svg>")[0]
    for name in ("Random", "MF", "MF*", "IM"):
        assert f">{name}</text>" in growth


def test_growing_heads_are_not_compared_with_the_paper(runs: list[StoredRun]) -> None:
    gat = [run for run in runs if (run.backbone, run.method, run.protocol) == ("gat", "finetune", "paper")]
    (row,) = result_rows(gat)
    assert row.paper is not None
    (growing,) = result_rows([changed(run, head="growing") for run in gat])
    assert growing.paper is None
    assert "30.84" in report_page(gat)
    assert "30.84" not in report_page([changed(run, head="growing") for run in gat])


def test_a_table_has_columns_of_the_paper_for_measures_that_it_prints(rows: list[ResultRow]) -> None:
    gcn = [row for row in rows if row.backbone == "gcn"]
    table = result_table([("GCN", gcn[0], gcn[0].paper), ("other", None, None)], count_runs=True)
    assert table.header == ["%", "PM paper", "PM ours", "diff", "FM paper", "FM ours", "diff", "AA ours", "runs"]
    assert (table.rows[0][1], table.rows[0][-1]) == ("93.62", "2")
    assert list(table.rows[1]) == ["other", *["–"] * 7, "0"]


@pytest.mark.parametrize(("name", "first"), [("t.md", "## cora · "), ("t.tex", "% cora · "), ("t.txt", "cora · ")])
def test_only_tables_are_written_to_text_files(name: str, first: str, store: Path, tmp_path: Path) -> None:
    assert main(["report", "--store", str(store), "-o", str(tmp_path / name)]) == 0
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert text.startswith(first)
    assert "93.62" in text
    assert len(re.findall(r"^.*ER-GAT.*MF.*e = 2", text, re.MULTILINE)) == 2  # the row and its command


def test_figures_are_written_as_files(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "figures"
    arguments = ["--store", str(store), "-o", str(tmp_path / "page.html"), "--figures", str(out)]
    assert main(["report", *arguments]) == 0
    assert f"{out}: 5 files" in capsys.readouterr().out
    kinds = {path.stem.partition("-")[0] for path in out.iterdir()}
    assert kinds == {"growth", "sweep", "matrices"}
    text = "".join(ET.parse(out / "growth-cora-1.svg").getroot().itertext())
    for word in ("no replay", "Random", "MF*", "IM", "AA over the tasks so far (%)", "tasks learned"):
        assert word in text
    assert "ER-GAT · IM (target=test) (leaky)" in "".join(ET.parse(out / "matrices-cora-1.svg").getroot().itertext())


def test_missing_or_empty_store_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such run store"):
        write_page(tmp_path / "none.sqlite", tmp_path / "page.html")
    with RunStore(tmp_path / "empty.sqlite"):
        pass
    with pytest.raises(InputError, match="no finished run"):
        write_page(tmp_path / "empty.sqlite", tmp_path / "page.html")


def test_command_writes_the_page(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.html"
    assert main(["report", "-o", str(out), "--store", str(store), "--title", "Mine"]) == 0
    assert "<h1>Mine</h1>" in out.read_text(encoding="utf-8")
    assert str(out) in capsys.readouterr().out
    assert main(["report", "-o", str(tmp_path), "--store", str(store)]) == 2
    assert "cannot be written" in capsys.readouterr().err
