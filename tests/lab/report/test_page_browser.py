"""The page in a browser: figures are visible, tables sort, and there are no requests and no errors."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ergnn.lab.report.page import write_page
from pages.chromium import Browser, find

pytestmark = pytest.mark.skipif(find() is None, reason="no chromium (or chrome) on the PATH")

TABLE = 'document.querySelector("#tables table.sortable")'


@pytest.fixture(scope="module")
def page(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(store, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def running() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def browser(running: Browser, page: Path) -> Browser:
    running.open(page.as_uri())
    return running


def column(browser: Browser, name: str, number: int) -> list[str]:
    """Sort values of a column, after a click on its head where a name is given."""
    if name:
        browser.evaluate(f"[...{TABLE}.tHead.rows].at(-1).cells[{number}].firstElementChild.click()")
    return list(browser.evaluate(f"[...{TABLE}.tBodies[0].rows].map(r => r.cells[{number}].dataset.v ?? '')"))


def test_every_figure_is_visible(browser: Browser) -> None:
    for kind in ("chart", "matrix"):
        sizes = browser.evaluate(
            f"[...document.querySelectorAll('[data-figure={kind}] svg')].map(s => s.getBoundingClientRect())"
            ".map(box => [box.width, box.height])"
        )
        assert sizes, kind
        assert all(width > 80 and height > 60 for width, height in sizes), (kind, sizes)
    sections = browser.evaluate("[...document.querySelectorAll('nav a')].map(a => a.hash)")
    assert sections == ["#tables", "#cost"]
    assert browser.evaluate("[...document.querySelectorAll('nav a')].every(a => document.querySelector(a.hash))")


def test_no_requests_and_no_console_errors(browser: Browser, page: Path) -> None:
    browser.evaluate("new Promise(done => setTimeout(done, 200))")
    assert browser.requests() == [page.as_uri()]
    assert browser.complaints() == []


def test_tables_sort_on_click(browser: Browser) -> None:
    before = column(browser, "", 2)
    up = column(browser, "PM, ours", 2)
    assert up == sorted(before, key=float)
    down = column(browser, "PM, ours", 2)
    assert down == sorted(before, key=float, reverse=True)
    assert up != down
    state = f"[...{TABLE}.tHead.rows].at(-1).cells[2].getAttribute('aria-sort')"
    assert browser.evaluate(state) == "descending"
    papers = column(browser, "PM, paper", 1)
    filled = [value for value in papers if value]
    assert filled == sorted(filled, key=float)
    assert "" in papers
    assert papers[len(filled) :] == [""] * (len(papers) - len(filled))  # rows the paper has not stay last
    names = column(browser, "row", 0)
    assert names[0].startswith("ER-GAT")
    assert names[-1].startswith("joint")


def test_hovering_and_arrow_keys_show_values(browser: Browser) -> None:
    browser.send("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    cell = "document.querySelector('[data-figure=matrix] rect.cell')"
    browser.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    box = browser.evaluate(f"{cell}.scrollIntoView({{block: 'center'}}), {cell}.getBoundingClientRect().toJSON()")
    browser.evaluate("new Promise(done => setTimeout(done, 100))")
    where = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", **where)
    tip = "document.getElementById('tip')"
    assert browser.evaluate(f"!{tip}.hidden && {tip}.textContent").startswith("task 1 after task 1: ")
    browser.evaluate("document.querySelector('[data-figure=chart] svg').focus({preventScroll: true})")
    told = []
    for _ in range(2):
        browser.send("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight")
        told.append(browser.evaluate(f"{tip}.textContent"))
    assert ["after task 1" in told[0], "after task 2" in told[1]] == [True, True]


def test_theme_follows_the_system_and_the_button(browser: Browser) -> None:
    color = "getComputedStyle(document.body).backgroundColor"
    seen = []
    for scheme in ("light", "dark"):
        browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        seen.append(browser.evaluate(color))
    assert seen[0] != seen[1]
    browser.evaluate("document.getElementById('theme').click()")  # automatic → light, against the system's dark
    assert browser.evaluate(color) == seen[0]
    browser.evaluate("document.getElementById('theme').click()")
    assert browser.evaluate(color) == seen[1]
    browser.evaluate("document.getElementById('theme').click()")


def test_fits_a_phone(browser: Browser) -> None:
    browser.send("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    browser.send("Emulation.clearDeviceMetricsOverride")


def test_print_shows_the_command_of_every_row(browser: Browser) -> None:
    """Printing opens the commands below the tables, and folds them again."""
    folded = "document.querySelectorAll('details.commands:not([open])').length"
    before = browser.evaluate(folded)
    assert before > 0
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert browser.evaluate(folded) == 0
    browser.evaluate("dispatchEvent(new Event('afterprint'))")
    assert browser.evaluate(folded) == before
    assert len(browser.send("Page.printToPDF")["data"]) > 50_000
