"""The table model: one set of cells for terminals, Markdown, LaTeX and HTML; templates of HTML pages and texts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from rich.cells import cell_len

from ergnn import __version__
from ergnn.config.errors import check_choice

FORMATS = {"text": "txt", "markdown": "md", "latex": "tex"}
"""Formats and the suffixes of their files."""
LEAKY = "LEAKY (selector used test labels)"
OWN_EDGES = "OWN EDGES (edges between tasks are left out, which reveals label information)"
NOTHING = "–"
"""Placeholder for a missing number."""


@dataclass(frozen=True)
class Table:
    """Cells under a header; every row is as long as the header.

    Args:
        header: column names.
        rows: cells: strings, or integers, which get separators.
        align: a letter per column, ``l`` or ``r``; columns without one are right, but the first one is left.
        title: a line above the table; its caption in LaTeX.
        id: HTML only: the element's id.
        bars: HTML only: the length, from 0 to 1, of a bar beside the last cell of each row.

    >>> print(Table(["method", "PM"], [["finetune", "94.19"], ["replay", "95.66"]]).to_text())
     method   │    PM
    ──────────┼──────
     finetune │ 94.19
     replay   │ 95.66
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str | int]]
    align: str = ""
    title: str = ""
    id: str = ""
    bars: Sequence[float] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "align", (self.align or "l").ljust(len(self.header), "r"))
        cells = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in self.rows]
        object.__setattr__(self, "rows", cells)

    def render(self, format: str) -> str:
        """Render as ``"text"``, ``"markdown"`` or ``"latex"``; HTML is rendered by the page's template."""
        check_choice("format", format, FORMATS)
        return str(getattr(self, f"to_{format}")())

    def to_text(self) -> str:
        """Render as aligned columns with a rule under the header, for a terminal."""
        widths = [max(map(cell_len, column)) for column in zip(*self._all, strict=True)]
        header, *rows = ([_pad(*cell) for cell in zip(row, widths, self.align, strict=True)] for row in self._all)
        rule = ["─" * width for width in widths]
        lines = [_line(header), _line(rule, gap="──", bar="─┼─", edge="─"), *map(_line, rows)]
        return "\n".join([self.title, *lines] if self.title else lines)

    def to_markdown(self) -> str:
        r"""Render as GitHub-flavored Markdown.

        >>> print(Table(["selector", "FM"], [["mf*", "21.88"]]).to_markdown())
        | selector | FM |
        | :-- | --: |
        | mf\* | 21.88 |
        """
        rows = [[_escape_markdown(cell) for cell in row] for row in self._all]
        rows.insert(1, [":--" if letter == "l" else "--:" for letter in self.align])
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        return "\n".join([f"**{_escape_markdown(self.title)}**", "", *lines] if self.title else lines)

    def to_latex(self) -> str:
        r"""Render as a booktabs ``tabular``, inside a ``table`` if there is a title.

        >>> print(Table(["method", "FM (%)"], [["replay", "-0.50"]]).to_latex())
        \begin{tabular}{lr}
        \toprule
        method & FM (\%) \\
        \midrule
        replay & $-$0.50 \\
        \bottomrule
        \end{tabular}
        """
        escaped = (" & ".join(map(_escape_latex, row)) + r" \\" for row in self._all)
        # LaTeX would read [ or * at the start of a row as an option of the line break before
        header, *rows = (re.sub(r"^[\[*]", r"{\g<0>}", line) for line in escaped)
        lines = [rf"\begin{{tabular}}{{{self.align}}}", r"\toprule", header, r"\midrule", *rows]
        lines += [r"\bottomrule", r"\end{tabular}"]
        if self.title:
            caption = rf"\caption{{{_escape_latex(self.title)}}}"
            lines = [r"\begin{table}", r"\centering", caption, *lines, r"\end{table}"]
        return "\n".join(lines)

    @property
    def _all(self) -> list[Sequence[str]]:
        return [self.header, *self.rows]  # type: ignore[list-item]  # all are strings by now


def duration(seconds: float) -> str:
    """Return a time in the units that fit it.

    >>> duration(3.14), duration(125), duration(7260)
    ('3.1 s', '2 min 05 s', '2 h 01 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def percent(value: float | None, scale: float = 100) -> str:
    """Format a fraction in percent with two decimals, or, with scale 1, as it is with three; never ``-0.00``.

    >>> percent(0.94186), percent(-0.00001), percent(-0.001, 1), percent(None)
    ('94.19', '0.00', '-0.001', '')
    """
    digits = 2 if scale == 100 else 3
    return "" if value is None else f"{round(scale * value, digits) + 0.0:.{digits}f}"


def sort_key(cell: str) -> str:
    """Return the number that a cell starts with, otherwise the cell; empty for a missing number.

    >>> sort_key("1,234.5 ± 0.1"), sort_key("mf* 2"), sort_key(NOTHING)
    ('1234.5', 'mf* 2', '')
    """
    first = cell.partition(" ")[0].replace(",", "").rstrip("%")
    try:
        float(first)
    except ValueError:
        return "" if cell == NOTHING else cell
    return first


def render_page(template: str, package: str = "ergnn.pages", **values: Any) -> str:
    """Render a template of a package, which may extend those of ``ergnn.pages``; a page needs nothing else.

    Text is escaped; a :class:`~ergnn.pages.figures.Drawing` is inserted as an element. Templates of plain text (.txt)
    escape nothing.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in dict.fromkeys((package, "ergnn.pages"))]),
        autoescape=lambda name: not str(name).endswith(".txt"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "commas": "{:,}".format, "sort_key": sort_key}
    environment.filters["minus"] = lambda text: re.sub(r"(?<![\w)])-(?=\d)", "−", text)
    environment.filters["pretty"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False)
    made = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return environment.get_template(template).render(version=__version__, made=made, **values)


def _pad(text: str, width: int, align: str) -> str:
    space = " " * (width - cell_len(text))
    return text + space if align == "l" else space + text


def _line(cells: Sequence[str], gap: str = "  ", bar: str = " │ ", edge: str = " ") -> str:
    first, *others = cells
    return (edge + first + (bar + gap.join(others) if others else "")).rstrip()


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_|<])", r"\\\1", text).replace("\n", "<br>")


_LATEX = {
    **{letter: rf"\{letter}" for letter in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"±": r"$\pm$", "−": "$-$", "·": r"$\cdot$", "…": r"\dots{}", "–": "--"},
}


def _escape_latex(text: str) -> str:
    escaped = "".join(_LATEX.get(letter, letter) for letter in text)
    return re.sub(r"(?<![\w)\-])-(?=\d)", "$-$", escaped)
