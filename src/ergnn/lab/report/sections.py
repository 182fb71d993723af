"""A table with its notes and commands, and the files of several: text, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ergnn.config.files import write_file
from ergnn.pages.table import Table

SUFFIXES = {"text": "txt", "markdown": "md", "latex": "tex"}
QUICK_MARK = "QUICK: few seeds and epochs, to check that everything works; do not quote."


@dataclass(frozen=True)
class Section:
    """A title, a table, and the notes and commands below it."""

    title: str
    table: Table | None
    notes: Sequence[str] = ()
    commands: Sequence[tuple[str, str]] = ()

    def render(self, format: str) -> str:
        """Render as ``text``, ``markdown`` or ``latex``."""
        heading = {"text": "", "markdown": "## ", "latex": "% "}[format]
        note = {"text": "", "markdown": "- ", "latex": "% "}[format]
        blocks = [heading + self.title]
        if self.table is not None:
            blocks.append(self.table.render(format))
        if self.notes:
            blocks.append("\n".join(note + line for line in self.notes))
        if self.commands:
            width = max(len(label) for label, _ in self.commands)
            blocks.append(as_code([f"{label:<{width}}  {command}" for label, command in self.commands], format))
        return "\n\n".join(blocks)


def as_code(lines: Sequence[str], format: str) -> str:
    """Return lines to be shown as they are."""
    if format == "markdown":
        lines = ["```", *lines, "```"]
    return "\n".join(f"% {line}" for line in lines) if format == "latex" else "\n".join(lines)


def write_sections(folder: Path, name: str, sections: Sequence[Section], command: str) -> None:
    """Write sections, and the command that computed them, as text, Markdown and LaTeX."""
    for format, suffix in SUFFIXES.items():
        text = "\n\n\n".join(section.render(format) for section in sections)
        text += f"\n\n{as_code([command], format)}\n" if command else "\n"
        write_file(folder / f"{name}.{suffix}", text.encode())
