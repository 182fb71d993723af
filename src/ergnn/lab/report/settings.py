"""Common settings of the rows of a table: protocol, split, class orders, epochs and other non-default settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ergnn.lab.config import DEFAULTS
from ergnn.lab.report.rows import Row, dataset_order

OF_THE_ROW = (
    *("dataset", "backbone", "method", "input"),
    *("backbone_options", "method_options", "input_options"),
)

SHOWN = ("scenario", "protocol", "edges", "split", "class_order")
"""Settings that every label shows."""


@dataclass
class Setting:
    """Rows that may share a table, for each data set."""

    label: str
    protocol: str
    rows: list[Row] = field(default_factory=list)

    @property
    def id(self) -> str:
        return "".join(letter if letter.isalnum() else "-" for letter in self.label.lower())

    @property
    def datasets(self) -> list[str]:
        return sorted({row.dataset for row in self.rows}, key=dataset_order)

    @property
    def is_image(self) -> bool:
        return self.rows[0].is_image

    @property
    def badges(self) -> list[tuple[str, str]]:
        """Badges that every row of the setting has, shown once in its heading."""
        return [badge for badge in self.rows[0].badges if all(badge in row.badges for row in self.rows)]

    def of(self, dataset: str) -> list[Row]:
        return [row for row in self.rows if row.dataset == dataset]


def settings_of(rows: Sequence[Row]) -> list[Setting]:
    """Group rows by common settings; those with the most rows first, the paper's protocol before others."""
    found: dict[str, Setting] = {}
    for row in rows:
        label = _label(row)
        found.setdefault(label, Setting(label, row.runs[0].protocol)).rows.append(row)
    return sorted(found.values(), key=lambda s: (-len(s.rows), s.protocol != "paper", s.label))


def _label(row: Row) -> str:
    """Format protocol, split and class order, then the settings that the protocol does not determine."""
    given, scenario = row.minimal, row.config.get("scenario")
    order = row.config.get("class_order", "natural")
    edges = [] if row.is_image else [f"{row.runs[0].edges} edges{' (reveal labels)' * row.reveals_labels}"]
    parts = [
        *([f"scenario {scenario}"] if scenario else []),
        f"{row.runs[0].protocol} protocol",
        *edges,
        f"{' and '.join(sorted({run.split for run in row.runs}))} split",
        "shuffled class orders" if order in ("shuffled", "seeded") else f"{order} class order",
    ]
    parts += [
        f"{name.replace('_', ' ')} "
        + (", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value))
        for name, value in given.items()
        if value is not None and name in DEFAULTS and name not in (*OF_THE_ROW, *SHOWN)
    ]
    return " · ".join(parts)
