"""The page of ``ergnn inspect`` in a real browser, wide and narrow."""

from collections.abc import Iterator

import pytest

from ergnn.folder import LearnerFolder
from ergnn.folder.page import folder_page
from folder.growing import make_updates, quick
from pages.chromium import Browser, find

pytestmark = pytest.mark.skipif(find() is None, reason="no chromium (or chrome) on the PATH")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    place = tmp_path_factory.mktemp("page")
    folder = LearnerFolder.create(place / "learner", quick(method="replay"))
    for update in make_updates(4):
        folder.observe(*update)
    (place / "page.html").write_text(folder_page(folder.inspect()), encoding="utf-8")
    browser = Browser()
    browser.open((place / "page.html").as_uri())
    yield browser
    browser.close()


@pytest.mark.parametrize("width", [1280, 400])
def test_charts_fill_their_cards_and_the_page_fits(width: int, browser: Browser) -> None:
    browser.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    for kind in ("matrix", "confusion"):
        card, chart, beside = browser.evaluate(
            f"['', ' svg', ' .measures'].map(part => document.querySelector('[data-figure={kind}]' + part))"
            ".map(found => found ? found.getBoundingClientRect().width : 0)"
        )
        beside = beside if width > 600 else 0
        assert chart > 150, kind
        assert card - 100 < chart + beside < card, kind


def test_text_is_on_the_left_and_nothing_complains(browser: Browser) -> None:
    aligned = "getComputedStyle(document.querySelector('#{} tbody td:nth-child({})')).textAlign"
    assert browser.evaluate(aligned.format("updates", 2)) == "left"
    assert browser.evaluate(aligned.format("updates", 4)) == "right"
    assert browser.evaluate(aligned.format("log", 2)) == "left"
    assert browser.evaluate("[...document.querySelectorAll('nav a')].every(a => document.querySelector(a.hash))")
    assert browser.complaints() == []
