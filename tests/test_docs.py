"""README and documentation: commands parse, options exist, and links have targets."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from doc_blocks import PAGES, blocks, name, prose
from ergnn.cli.main import make_parser


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_parses(page: Path) -> None:
    for block in blocks(page):
        for line in block.commands:
            make_parser().parse_args(line)


def options(parser: argparse.ArgumentParser) -> set[str]:
    """Every option of a parser and of the commands below it."""
    below = [a.choices.values() for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return set(re.findall(r"--[\w-]+", parser.format_help())).union(*(options(one) for part in below for one in part))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_option_in_the_text_exists(page: Path) -> None:
    codes = re.findall(r"`([^`\n]+)`", prose(page))
    own = [code for code in codes if not code.startswith("python ")]  # scripts have options of their own
    named = {flag for code in own for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", code)}
    assert named - options(make_parser()) == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_has_a_target(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose(page)):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor and file.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {_anchor(heading) for heading in headings}, f"{page.name} links to {target}"


def _anchor(heading: str) -> str:
    """A heading's name in a link, as GitHub and mkdocs make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
