"""The page against its store, its projection against closed forms, its figures against their data."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ergnn.cli.main import main
from ergnn.config.errors import InputError
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.lab.config import command_of
from ergnn.lab.keys import member_config
from ergnn.lab.report.claims import claims_of
from ergnn.lab.report.page import page_of, write_page
from ergnn.lab.report.projection import class_maps, principal_components, smoothed_features
from ergnn.lab.report.rows import Row, gather, main_rows
from ergnn.lab.report.settings import settings_of
from ergnn.lab.store import RunStore
from ergnn.learning import metrics
from ergnn.learning.metrics import AccuracyMatrix
from ergnn.pages.figures import Point, Series, heat_map, line_chart, spread, ticks
from lab.report.stores import SELECTORS, configurations


@pytest.fixture(scope="module")
def rows(store: Path) -> list[Row]:
    with RunStore(store) as opened:
        return gather(opened.runs())


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
    expected = ["95.66", f"{100 * pm['mean']:.2f} ± {100 * pm['ci95']:.2f}", f"{100 * (pm['mean'] - 0.9566):+.2f}"]
    expected += ["21.14", f"{100 * fm['mean']:.2f} ± {100 * fm['ci95']:.2f}", f"{100 * (fm['mean'] - 0.2114):+.2f}"]
    assert [cell.replace("−", "-") for cell in cells[:6]] == expected
    assert cells[-1] == "2"


def test_unreliable_results_are_marked(page: str, rows: list[Row]) -> None:
    leaky = [row for row in rows if row.is_leaky]
    assert [row.config["selector_options"] for row in leaky] == [{"target": "test"}]
    assert {mark for row in rows for mark, _ in row.badges} == {"LEAKY", "OWN EDGES", "QUICK", "FEW"}
    assert all((("OWN EDGES" in dict(row.badges)) == (row.runs[0].edges == "own")) for row in rows)
    assert re.search(r'ER-GAT · IM \(target=test\)<abbr class="badge leaky"', page)
    assert "IM LEAKY" in page  # in figures, beside its line
    assert "2 epochs per task instead of 200" in page
    assert "seeded split" in page


def test_every_row_has_the_command_that_reproduces_it(page: str, rows: list[Row]) -> None:
    from ergnn.cli.main import make_parser
    from ergnn.cli.run import config_of

    assert len(rows) == len(configurations())
    again = [config_of(make_parser().parse_args(row.command.split()[1:])).resolved() for row in rows]
    assert sorted(map(command_of, again)) == sorted(map(command_of, configurations()))
    assert [member_config(config) for config in again] == [row.config for row in rows]
    for row in rows:
        assert f"<code>{row.command}</code>" in page


def test_rows_of_different_settings_never_share_a_table(rows: list[Row]) -> None:
    settings = settings_of(rows)
    assert [setting.protocol for setting in settings] == ["paper", "clean"]
    assert "shuffled class orders" in settings[1].label
    assert "epochs 2" in settings[0].label
    assert sum(len(setting.rows) for setting in settings) == len(rows)


def test_choices_match_the_store(rows: list[Row]) -> None:
    paper = settings_of(rows)[0]
    page = page_of([run for row in paper.rows for run in row.runs])
    for name in SELECTORS:
        row = next(row for row in main_rows(paper.rows) if row.selector == name and not row.special)
        run = next(run for run in row.runs if run.seed == 0)
        tips = re.findall(r'data-tip="([^"]*) chose node (\d+)"', page)  # one or more selectors, one node
        drawn = {int(node) for names, node in tips if row.short_name in names.split(", ")}
        assert drawn == set(run.buffer_ids)


def test_claims_follow_the_intervals(rows: list[Row]) -> None:
    """Matrices with known FM: replay forgets 0.1 ± 0.01 where no replay forgets 0.4, or the other way round."""
    low = [[0.9, None], [0.8, 0.9]]
    high = [[0.9, None], [0.5, 0.9]]

    def with_matrix(row: Row, entries: list[list[float | None]]) -> Row:
        drop = [np.array(entries, dtype=float) - np.array([[0, 0], [0.01 * k, 0]]) for k in range(len(row.runs))]
        runs = [replace(run, matrix=AccuracyMatrix(m)) for run, m in zip(row.runs, drop, strict=True)]
        return Row(row.config, runs)

    paper = settings_of(rows)[0]
    for plain, replay, verdict in ((high, low, "holds"), (low, high, "fails"), (low, low, "open")):
        changed = [with_matrix(row, plain if row.method == "finetune" else replay) for row in paper.rows]
        (setting,) = settings_of(changed)
        assert claims_of(setting)["Replay forgets less than no replay"]["cora"].verdict == verdict


def test_stand_in_data_are_marked_by_what_was_recorded_not_by_words_of_a_note(rows: list[Row]) -> None:
    def marks(**recorded: Any) -> list[str]:
        row = rows[0]
        return [mark for mark, _ in Row(row.config, [replace(run, **recorded) for run in row.runs]).badges]

    assert "DIGITS" in marks(data="permuted-digits", notes=[])
    assert "DIGITS" not in marks(data="permuted-mnist", notes=["not the digits of scikit-learn"])


def test_paired_difference_uses_common_members_only(rows: list[Row]) -> None:
    one, other = rows[0], rows[1]
    fewer = Row(other.config, other.runs[:1])
    gap = one.paired(fewer, "pm")
    assert gap is not None
    assert gap.n == 1
    expected = metrics.performance_mean(one.runs[0].matrix) - metrics.performance_mean(other.runs[0].matrix)
    assert gap.mean == pytest.approx(expected)
    assert one.paired(Row(other.config, [replace(other.runs[0], seed=99)])) is None


def test_text_from_a_store_cannot_become_markup(rows: list[Row]) -> None:
    run = replace(rows[0].runs[0], notes=["<script>alert(1)</script>"], class_names=["<b>"] * 7)
    page = page_of([run])
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


# ── projection ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", [(6, 9), (9, 4), (3, 3), (1, 5), (5, 1)])
def test_principal_components_are_the_covariance_matrix_s(shape: tuple[int, int]) -> None:
    """Coordinates are uncorrelated, with the covariance's largest eigenvalues as variances."""
    rows = np.random.default_rng(0).normal(size=shape)
    points, part = principal_components(rows)
    assert points.shape == (shape[0], 2)
    centered = rows - rows.mean(axis=0)
    eigenvalues = np.sort(np.linalg.eigvalsh(centered.T @ centered))[::-1]
    largest = np.pad(eigenvalues, (0, 2))[:2]
    np.testing.assert_allclose(points.T @ points, np.diag(largest), atol=1e-9)
    total = eigenvalues.sum()
    assert part == pytest.approx(largest.sum() / total if total > 1e-12 else 0.0)
    assert (points.max(axis=0) >= -points.min(axis=0) - 1e-12).all()


def test_smoothing_is_s_squared_x() -> None:
    """Against dense products on a path of four nodes and one alone."""
    edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    x = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
    adjacency = torch.eye(5, dtype=torch.float64)
    adjacency[edges[1], edges[0]] = 1
    root = adjacency.sum(1).rsqrt().diag()
    expected = torch.linalg.matrix_power(root @ adjacency @ root, 2) @ x.double()
    expected = expected / expected.norm(dim=1, keepdim=True)
    for features in (x, x.to_sparse_csr()):
        graph = Graph(features, edges, torch.zeros(5, dtype=torch.long))
        found = smoothed_features(graph, np.array([3, 0, 4]))
        np.testing.assert_allclose(found, expected[[3, 0, 4]].numpy(), rtol=1e-6)


def test_class_maps_show_every_training_node_and_every_kept_one() -> None:
    count = 1200
    y = torch.arange(count) % 2
    x = torch.rand(count, 4, generator=torch.Generator().manual_seed(1))
    graph = Graph(x, torch.empty(2, 0, dtype=torch.long), y)
    task = Task(0, graph, torch.arange(20), torch.arange(20, 30), torch.arange(30, 60), (1, 0))
    first, second = class_maps(task, keep={1199, 1198})
    assert (first.label, second.label) == (1, 0)
    assert set(first.nodes[first.is_training]) == set(range(1, 20, 2))
    assert 1199 in first.nodes
    assert 1198 in second.nodes
    assert len(first.nodes) <= 10 + 251
    assert first.at(0) is None
    np.testing.assert_array_equal(first.at(int(first.nodes[3])), first.points[3])


# ── figures ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_labels_are_ordered_and_do_not_overlap() -> None:
    wanted = [50.0, 50.0, 51.0, 10.0, 97.0, 98.0]
    placed = spread(wanted, gap=10, low=5, high=100)
    ordered = sorted(placed)
    assert min(np.diff(ordered)) >= 10 - 1e-9
    assert ordered[0] >= 5
    assert ordered[-1] <= 100
    assert np.argsort(wanted, kind="stable").tolist() == np.argsort(placed, kind="stable").tolist()
    assert placed[3] == 10.0  # nobody is near


@pytest.mark.parametrize(("low", "high"), [(0, 37), (-3.2, 1.1), (92.1, 95.8), (0, 1e-3)])
def test_ticks_are_round_and_cover(low: float, high: float) -> None:
    found = ticks(low, high)
    assert found[0] <= low + 1e-12
    assert found[-1] >= high - 1e-12
    assert 3 <= len(found) <= 8
    step = found[1] - found[0]
    np.testing.assert_allclose(np.diff(found), step)
    assert round(step / 10 ** np.floor(np.log10(step) + 1e-9)) in (1, 2, 5, 10)


def test_line_chart_draws_points_where_their_values_are() -> None:
    points = [Point(1, 10.0, 1.0, "a"), Point(2, 30.0, 1.0, "b"), Point(3, 20.0, 1.0, "c")]
    svg = line_chart([Series("one", "c-mf", points)], label="l", x_name="x", y_name="y", x_ticks=[1, 2, 3])
    xs, ys = (
        np.array([float(v) for v in re.findall(rf'<circle[^>]* {axis}="([\d.]+)"', svg)]) for axis in ("cx", "cy")
    )
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert (ys[2] - ys[1]) / (ys[0] - ys[1]) == pytest.approx(0.5, abs=0.01)
    assert svg.count('class="bar"') == 3


@pytest.mark.parametrize("value", [0.0, 42.0, 100.0])
def test_line_chart_of_equal_values_is_drawn(value: float) -> None:
    svg = line_chart(
        [Series("", "c-mf", [Point(1, value), Point(2, value)])], label="", x_name="x", y_name="y", x_ticks=[1, 2]
    )
    assert svg.count("<circle") == 2
    assert f">{value:g}</text>" in svg
    assert 'class="lead"' not in svg  # no name, no tick beside the line


def test_heat_map_is_deeper_for_larger_values_and_skips_what_was_not_measured() -> None:
    matrix = np.array([[0.9, np.nan], [0.5, 0.7]])
    svg = heat_map(matrix, low=0.5, high=1.0, label="l", tips=[["a", ""], ["b", "<c>"]])
    depth = {tip: float(opacity) for opacity, tip in re.findall(r'fill-opacity="([\d.]+)" data-tip="([^"]*)"', svg)}
    assert depth["a"] > depth["&lt;c&gt;"] > depth["b"]
    assert len(depth) == 3
    assert re.findall(r">(\d+\.\d)<", svg) == ["90.0", "50.0", "70.0"]
