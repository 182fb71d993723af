"""The pages of the documentation and their code blocks."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELL = ("console", "bash", "sh")
TEXT = ("", "text", "toml", "csv", "json", "bibtex")
"""What is shown and not run: output, drawings, files."""

FENCE = re.compile(r"(?P<before>[^\n]*\n)?^```(?P<language>[\w-]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!-- not run: (?P<reason>\S.*\S) -->\n")


@dataclass(frozen=True)
class Block:
    """A fenced block; ``reason`` says why it is not run, in ``<!-- not run: reason -->`` right above it."""

    language: str
    body: str
    reason: str | None

    @property
    def lines(self) -> list[str]:
        """The lines of a shell block, continued ones joined; where some have a prompt ``$``, only those."""
        lines = re.sub(r"\\\n", " ", self.body).splitlines()
        prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return prompted or lines

    @property
    def commands(self) -> list[list[str]]:
        """What follows ``ergnn`` in a shell block, one list a line."""
        lines = self.lines if self.language in SHELL else []
        words = [shlex.split(line, comments=True) for line in lines if line.startswith("ergnn ")]
        return [line[1:] for line in words]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in their order."""
    out = []
    for found in FENCE.finditer(page.read_text(encoding="utf-8")):
        mark = MARK.fullmatch(found["before"] or "")
        out.append(Block(found["language"], found["body"], mark["reason"] if mark else None))
    return out


def prose(page: Path) -> str:
    """A page without its blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
