"""Charts against their data, and as files."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from ergnn.config.errors import InputError
from ergnn.pages.figures import Drawing, Point, Series, dot_plot, heat_map, line_chart, panels, spread, ticks


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
    svg = line_chart([Series("one", "c-mf", points)], label="l", x_name="x", y_name="y", x_ticks=[1, 2, 3]).content
    xs, ys = (
        np.array([float(v) for v in re.findall(rf'<circle[^>]* {axis}="([\d.]+)"', svg)]) for axis in ("cx", "cy")
    )
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert (ys[2] - ys[1]) / (ys[0] - ys[1]) == pytest.approx(0.5, abs=0.01)
    assert svg.count('class="bar"') == 3


def test_heat_map_is_deeper_for_larger_values_and_skips_what_was_not_measured() -> None:
    matrix = np.array([[0.9, np.nan], [0.5, 0.7]])
    svg = heat_map(matrix, low=0.5, label="l", tips=[["a", ""], ["b", "<c>"]]).content
    depth = {tip: float(opacity) for opacity, tip in re.findall(r'fill-opacity="([\d.]+)" data-tip="([^"]*)"', svg)}
    assert depth["a"] > depth["&lt;c&gt;"] > depth["b"]
    assert len(depth) == 3
    assert re.findall(r">(\d+\.\d)<", svg) == ["90.0", "50.0", "70.0"]


def test_dots_lie_where_their_values_are_on_a_root_scale() -> None:
    rows = [Series("one", "c-mf", [Point(0, -4.0, None, "a"), Point(0, 1.0, None, "b")])]
    svg = dot_plot(rows, label="l", x_name="x", x_ticks=[-16, 0, 4], scale="root").content
    zero = float(re.findall(r'class="zero" d="M([\d.]+) ', svg)[0])
    worse, better = (float(x) - zero for x in re.findall(r'<circle[^>]* cx="([\d.]+)"', svg))
    assert worse == pytest.approx(-2 * better, abs=0.2)
    assert better > 0


# files


@pytest.fixture
def drawing() -> Drawing:
    points = [Point(1, 10.0, 1.0, "a < b"), Point(2, 30.0, 1.0)]
    chart = line_chart([Series("one & two", "c-mf alt", points)], label="l", x_name="x", y_name="y", x_ticks=[1, 2])
    return panels([("first|remark", chart), ("second", chart)], label="<both>", title="Title")


def test_an_svg_file_has_all_texts_and_no_style_variables(drawing: Drawing, tmp_path: Path) -> None:
    """Programs other than browsers do not know variables; every class that is drawn has a rule."""
    drawing.save(tmp_path / "figure.svg")
    root = ET.parse(tmp_path / "figure.svg").getroot()
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [words[0], *words[1:3], words.count("one & two")] == ["Title", "first", "remark", 2]
    assert "var(" not in (tmp_path / "figure.svg").read_text()
    style = next(root.iter("{http://www.w3.org/2000/svg}style")).text
    assert style is not None
    used = {name for element in root.iter() for name in element.get("class", "").split()}
    assert {"label", "line", "c-mf", "alt", "mark", "grid"} <= used
    assert {name for name in used if f".{name}" not in style} == set()


def test_other_formats_are_converted_or_name_the_program(
    drawing: Drawing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"figure\.pdf: a figure as \.pdf needs the program rsvg-convert"):
        drawing.save(tmp_path / "figure.pdf")
    with pytest.raises(InputError, match=r"figure\.gif: a figure is written as one of: \.svg, \.png, \.pdf"):
        drawing.save(tmp_path / "figure.gif")
    program = tmp_path / "rsvg-convert"
    program.write_text('#!/bin/sh\necho "$1"\nexec /bin/cat\n')
    program.chmod(0o755)
    drawing.save(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_text() == "--format=png\n" + drawing._repr_svg_()
