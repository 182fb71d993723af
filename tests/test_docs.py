"""README and documentation: commands parse, options exist, links have targets, and blocks run or say why not."""

import argparse
import re
from pathlib import Path

from doc_blocks import MARK, PAGES, SHELL, TEXT, blocks, name, prose
from ergnn.cli.main import make_parser
from ergnn.methods import METHODS


def test_every_command_parses() -> None:
    for page in PAGES:
        for block in blocks(page):
            for line in block.commands:
                make_parser().parse_args(line)


def options(parser: argparse.ArgumentParser) -> set[str]:
    """Every option of a parser and of the commands below it."""
    commands = [a.choices.values() for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    flags = set(re.findall(r"--[\w-]+", parser.format_help()))
    return flags.union(*(options(command) for group in commands for command in group))


def test_every_option_in_the_text_exists() -> None:
    known = options(make_parser()) | {"--" + option.replace("_", "-") for option in METHODS.option_names()}
    for page in PAGES:
        codes = re.findall(r"`([^`\n]+)`", prose(page))
        codes = [code for code in codes if not code.startswith("python ")]  # scripts have options of their own
        named = {flag for code in codes for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", code)}
        assert named <= known, name(page)


def test_every_relative_link_has_a_target() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose(page)):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.exists(), f"{name(page)} links to {target}"
            if anchor and file.suffix == ".md":
                assert anchor in anchors(file), f"{name(page)} links to {target}"


def anchors(page: Path) -> set[str]:
    """The names of a page's headings in links, as GitHub and mkdocs make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_block_runs_or_gives_a_reason() -> None:
    for page in PAGES:
        for block in blocks(page):
            if block.reason is not None:
                assert len(block.reason.split()) >= 2, f"{name(page)}: 'not run: {block.reason}' is no reason"
                continue
            assert block.language in ("python", *SHELL, *TEXT), f"{name(page)}: {block.language!r} is not run"
            if block.language in ("", "text"):
                typed = re.search(r"^(\$ |make |pip |ergnn |python3? )", block.body, re.MULTILINE)
                assert typed is None, f"{name(page)}: {typed[0] if typed else ''}… is a command: call the block bash"


def test_a_mark_has_a_reason_and_a_block_below_it() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for mark in re.finditer(r"^<!-- *not run.*\n", text, re.MULTILINE):
            assert MARK.fullmatch(mark[0]), f"{name(page)}: {mark[0]}"
            assert text[mark.end() :].startswith("```"), f"{name(page)}: {mark[0]} has no block below it"
