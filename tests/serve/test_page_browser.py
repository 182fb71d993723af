"""The live page in a real browser: wide and narrow, with the keyboard, and when a new version comes."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ergnn.data.tables import read_nodes
from ergnn.folder import LearnerFolder
from folder.growing import make_updates, quick, write_tables
from pages.chromium import Browser, find
from serve.running import SECONDS, Server

pytestmark = pytest.mark.skipif(find() is None, reason="no chromium (or chrome) on the PATH")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("page")
    folder = LearnerFolder.create(place / "learner", quick(epochs=20))
    updates = make_updates(5)
    for nodes, edges in updates[:4]:
        folder.observe(nodes, edges)
    write_tables(place / "fifth", *updates[4])
    server = Server(folder.root)
    yield server
    server.close()


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    browser = Browser()
    open_page(browser, server)
    yield browser
    browser.close()


def wait_for(browser: Browser, expression: str) -> None:
    end = time.monotonic() + SECONDS
    while not browser.evaluate(expression):
        assert time.monotonic() < end, browser.evaluate("document.body.innerText")
        time.sleep(0.05)


def open_page(browser: Browser, server: Server) -> None:
    browser.open(server.url + "/")
    wait_for(browser, "document.readyState === 'complete' && document.getElementById('node') !== null")


def press(browser: Browser, key: str, **more: object) -> None:
    for kind in ("keyDown", "keyUp"):
        browser.send("Input.dispatchKeyEvent", type=kind, key=key, **more)


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_and_loads_nothing_from_elsewhere(
    width: int, scheme: str, browser: Browser, server: Server
) -> None:
    browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    open_page(browser, server)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert all(url.startswith((server.url, "data:")) for url in browser.requests())
    browser.evaluate("document.getElementById('node').value = 'n3'; document.getElementById('ask').requestSubmit()")
    wait_for(browser, "document.querySelectorAll('#answer li').length > 3")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    dark = browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 28)"
    assert dark == (scheme == "dark")
    for selector in ("#ask button", ".rollback", "#node"):
        low = browser.evaluate(f"document.querySelector('{selector}').getBoundingClientRect().height")
        assert low >= 24, selector
    assert browser.complaints() == []


def test_with_the_keyboard_alone(browser: Browser, server: Server) -> None:
    """Tab leads to the box, text and Enter ask, an unknown node is told, Tab leads to the buttons and Enter works."""
    open_page(browser, server)
    focus = "document.activeElement.id || document.activeElement.className"
    for _ in range(40):
        press(browser, "Tab", windowsVirtualKeyCode=9)
        if browser.evaluate(focus) == "node":
            break
    assert browser.evaluate(focus) == "node"
    assert browser.evaluate("document.activeElement.labels[0].textContent") == "Node id"
    browser.send("Input.insertText", text="n5")
    press(browser, "Enter", windowsVirtualKeyCode=13, text="\r")
    wait_for(browser, "document.querySelector('#answer p')?.textContent.startsWith('n5: c')")
    browser.send("Input.insertText", text="00")
    press(browser, "Enter", windowsVirtualKeyCode=13, text="\r")
    wait_for(browser, "document.querySelector('#answer .wrong')?.textContent.includes('is not in the graph')")
    for _ in range(10):
        press(browser, "Tab", windowsVirtualKeyCode=9)
        if browser.evaluate(focus) == "rollback":
            break
    assert browser.evaluate("document.activeElement.getAttribute('aria-label')") == "Roll back to version 3"
    press(browser, "Enter", windowsVirtualKeyCode=13, text="\r")
    wait_for(browser, "document.getElementById('state')?.textContent === 'Serving version 3.'")
    assert server.client.get("/health").json()["version"] == 3
    assert browser.evaluate("document.querySelector('.rollback').textContent") == "Restore"
    browser.evaluate("document.querySelector('.rollback').click()")
    wait_for(browser, "document.getElementById('state')?.textContent === 'Serving version 4.'")
    wrong = [entry for entry in browser.complaints() if "422" not in str(entry)]
    assert wrong == []


def test_a_new_version_is_shown_without_a_reload_by_hand(browser: Browser, server: Server, tmp_path: Path) -> None:
    open_page(browser, server)
    browser.evaluate("document.getElementById('node').focus()")
    root = server.root
    LearnerFolder(root).observe(read_nodes(root.parent / "fifth_nodes.csv"))
    wait_for(browser, "document.getElementById('state').textContent === 'Now serving version 5.'")
    assert browser.evaluate("document.activeElement.id") == "node", "who writes is not disturbed"
    browser.evaluate("document.getElementById('renew').click()")
    wait_for(browser, "document.querySelector('#updates tbody')?.rows.length === 5")
    browser.evaluate("document.activeElement.blur()")
    LearnerFolder(root).rollback()
    wait_for(browser, "document.querySelector('#updates tbody')?.rows.length === 4")
