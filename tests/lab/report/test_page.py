"""The page against its store."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ergnn.cli.main import main
from ergnn.config.errors import InputError
from ergnn.lab.config import command_of
from ergnn.lab.keys import member_config
from ergnn.lab.report.page import report_page, write_page
from ergnn.lab.report.rows import ResultRow, result_rows, settings_of
from ergnn.lab.store import RunStore
from lab.report.stores import configurations


@pytest.fixture(scope="module")
def rows(store: Path) -> list[ResultRow]:
    with RunStore(store) as opened:
        return result_rows(opened.runs())


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
    assert [row.config["selector_options"] for row in leaky] == [{"target": "test"}]
    assert {mark for row in rows for mark, _ in row.badges} == {"LEAKY", "OWN EDGES", "QUICK", "FEW"}
    assert all((("OWN EDGES" in dict(row.badges)) == (row.runs[0].edges == "own")) for row in rows)
    assert re.search(r'ER-GAT · IM \(target=test\)<abbr class="badge leaky"', page)
    assert "· LEAKY" in page  # above its matrix
    assert "2 epochs per task instead of 200" in page
    assert "seeded split" in page


def test_every_row_has_the_command_that_reproduces_it(page: str, rows: list[ResultRow]) -> None:
    from ergnn.cli.main import make_parser
    from ergnn.cli.run import config_of

    assert len(rows) == len(configurations())
    again = [config_of(make_parser().parse_args(row.command.split()[1:])).resolved() for row in rows]
    assert sorted(map(command_of, again)) == sorted(map(command_of, configurations()))
    assert [member_config(config) for config in again] == [row.config for row in rows]
    for row in rows:
        assert f"<code>{row.command}</code>" in page


def test_rows_of_different_settings_never_share_a_table(rows: list[ResultRow]) -> None:
    settings = settings_of(rows)
    assert [setting.protocol for setting in settings] == ["paper", "clean"]
    assert "shuffled class orders" in settings[1].label
    assert "epochs 2" in settings[0].label
    assert sum(len(setting.rows) for setting in settings) == len(rows)


def test_stand_in_data_are_marked_by_what_was_recorded_not_by_words_of_a_note(rows: list[ResultRow]) -> None:
    def marks(**recorded: Any) -> list[str]:
        row = rows[0]
        return [mark for mark, _ in ResultRow(row.config, [replace(run, **recorded) for run in row.runs]).badges]

    assert "DIGITS" in marks(data="permuted-digits", notes=[])
    assert "DIGITS" not in marks(data="permuted-mnist", notes=["not the digits of scikit-learn"])


def test_text_from_a_store_cannot_become_markup(rows: list[ResultRow]) -> None:
    run = replace(rows[0].runs[0], notes=["<script>alert(1)</script>"], class_names=["<b>"] * 7)
    page = report_page([run])
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


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
