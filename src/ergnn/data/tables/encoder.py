"""Columns of a table as features: numbers are standardized, categories become columns, text keeps its hashed words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from ergnn.data.scale import TEXT_LENGTH, Scale
from ergnn.data.tables.kinds import CODED, MIN_COUNT, TEXT_WIDTH, Codes, ColumnKind

MAX_VALUES = 200
"""Values of a category with a column of their own, the most frequent first; the rest are "other"."""
SHARES = 16
"""Shares of values are rounded to multiples of 1/16: few updates change them."""
CALENDAR = {"month": 12, "weekday": 7}
DAYS_TO_MONDAY = 3
"""1970-01-01 was a Thursday."""


@dataclass(frozen=True)
class FittedColumn(ColumnKind):
    """A column with the parameters of its features.

    Args:
        scale: of numbers and dates.
        values: of a category: the hash, the text and the rounded share of each value that has a column, sorted by text.
        other: of a category: the rounded share of other values.
    """

    scale: Scale | None = None
    values: tuple[tuple[float, str, float], ...] = ()
    other: float = 0.0

    @property
    def names(self) -> list[str]:
        """Names of its features."""
        ends = [f"={text}" for _, text, _ in self.values] + ["=other"] * (self.kind == "category")
        if self.kind == "text":
            ends = [f"#{i}" for i in range(TEXT_WIDTH)]
        elif self.kind in ("word", "number", "date"):
            ends = ["", *[" missing"] * (self.scale is not None and self.scale.missing)]
        if self.kind == "date":
            ends += [f" {unit}={i + 1}" for unit, count in CALENDAR.items() for i in range(count)]
        return [self.name + end for end in ends]

    def features(self, codes: np.ndarray) -> np.ndarray:
        """Return the features of some codes, ``[n, names]``; not for text."""
        if self.kind == "category":
            one = codes[:, None] == np.array([code for code, _, _ in self.values])
            one = np.concatenate([one, ~one.any(1, keepdims=True)], 1).astype(float)
            centered = one - np.array([*(share for _, _, share in self.values), self.other])
            return np.where(np.isnan(codes)[:, None], 0.0, centered)
        assert self.scale is not None
        out = self.scale.apply(codes)
        if self.kind == "date":
            days = np.floor(np.nan_to_num(codes)).astype("datetime64[D]")
            since_january, since_monday = days.astype("datetime64[M]").astype(int), days.astype(int) + DAYS_TO_MONDAY
            for passed, count in zip((since_january, since_monday), CALENDAR.values(), strict=True):
                one = np.eye(count)[passed % count] - 1 / count
                out = np.concatenate([out, np.where(np.isnan(codes)[:, None], 0.0, one)], 1)
        return out

    @property
    def square(self) -> float:
        """The typical sum of its squared features."""
        shares = [*(share for _, _, share in self.values), self.other]
        dates = sum(1 - 1 / count for count in CALENDAR.values()) if self.kind == "date" else 0.0
        text = TEXT_LENGTH**2 * (self.kind == "text")
        return text + dates + (self.scale is not None) + sum(share * (1 - share) for share in shares)

    def describe(self) -> str:
        """Say in a few words what the column becomes."""
        if self.scale is None:
            text = f"words and pairs of words, hashed to {TEXT_WIDTH:,} columns"
            return {"category": f"{len(self.values)} values and other", "text": text}.get(self.kind, "left out")
        words = "signed logarithm, standardized" if self.scale.unit else "standardized"
        parts = ", month and weekday" if self.kind == "date" else ""
        return words + parts + (", missing values marked" if self.scale.missing else "")


@dataclass(frozen=True)
class Encoder:
    """How the columns of a table become features: functions of the set of rows (:meth:`fit`), whatever their order."""

    columns: tuple[FittedColumn, ...]

    @cached_property
    def names(self) -> list[str]:
        """Names of the features; words are last."""
        columns = sorted(self.columns, key=lambda column: column.kind == "word")
        return [name for column in columns for name in column.names]

    @classmethod
    def fit(
        cls, kinds: Sequence[ColumnKind], numbers: np.ndarray, values: Mapping[str, Mapping[float, str]]
    ) -> Encoder:
        """Choose the parameters from the codes of all rows; see :class:`~ergnn.data.tables.kinds.Codes`."""
        columns, codes = [], iter(numbers.T)
        for kind in kinds:
            fitted: dict[str, Any] = {}
            if kind.kind == "category":
                fitted["values"], fitted["other"] = _frequent(next(codes), values.get(kind.name, {}))
            elif kind.kind in CODED:
                fitted["scale"] = Scale.fit(next(codes))
            columns.append(FittedColumn(kind.name, kind.kind, kind.why, **fitted))
        return cls(tuple(columns))

    @property
    def square(self) -> float:
        """The typical squared length of the features of a row; words are scaled together."""
        words = any(column.kind == "word" for column in self.columns)
        return sum(column.square for column in self.columns) + TEXT_LENGTH**2 * words

    @property
    def num_numbers(self) -> int:
        """Number of columns of :attr:`Codes.numbers`."""
        return sum(column.kind in CODED for column in self.columns)

    @property
    def number_scales(self) -> dict[str, list[float]]:
        """Parameters of :class:`Scale` by name, one value per column; empty unless all are numbers, none missing."""
        scales = [asdict(column.scale) for column in self.columns if column.kind == "number" and column.scale]
        if len(scales) < len(self.columns) or any(scale["missing"] for scale in scales):
            return {}
        return {name: [scale[name] for scale in scales] for name in ("center", "scale", "unit")}

    @property
    def is_sparse(self) -> bool:
        """Whether there is text, so that features are stored in CSR form."""
        return any(column.kind in ("text", "word") for column in self.columns)

    def features(self, codes: Codes) -> Any:
        """Return the features of some rows, ``[n, names]`` float32, dense, or in CSR form if there is text."""
        blocks: list[Any] = [np.empty((len(codes.numbers), 0), np.float32)]
        numbers, text = iter(codes.numbers.T), 0
        for column in self.columns:
            if column.kind == "text":
                blocks.append(TEXT_LENGTH * codes.text[:, text : text + TEXT_WIDTH])
                text += TEXT_WIDTH
            elif column.kind in CODED:
                blocks.append(column.features(next(numbers)).astype(np.float32))
        if not self.is_sparse:
            return np.concatenate(blocks, 1)
        blocks.append(TEXT_LENGTH * codes.text[:, text:])
        return scipy.sparse.hstack([scipy.sparse.csr_matrix(block) for block in blocks], "csr", np.float32)

    def describe(self) -> list[list[str]]:
        """Return name, kind, reason and result of each column; all words in one row."""
        rows = [[c.name, c.kind, c.why, c.describe()] for c in self.columns if c.kind != "word"]
        words = [column for column in self.columns if column.kind == "word"]
        if words:
            rows.append([f"{words[0].name} … {words[-1].name}", "word", words[0].why, "words, scaled together"])
        return rows

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, columns: Sequence[Mapping[str, Any]]) -> Encoder:
        def restored(scale: Any, values: Any, **column: Any) -> FittedColumn:
            return FittedColumn(**column, scale=scale and Scale(**scale), values=tuple(map(tuple, values)))

        return cls(tuple(restored(**column) for column in columns))


def _frequent(codes: np.ndarray, values: Mapping[float, str]) -> tuple[tuple[tuple[float, str, float], ...], float]:
    """Return the values that get a column, sorted by text, with their rounded shares, and the share of all others.

    A value gets a column if at least ``MIN_COUNT`` rows have it, and at most ``MAX_VALUES`` get one.
    """
    codes = codes[~np.isnan(codes)]
    distinct, counts = np.unique(codes, return_counts=True)
    pairs = zip(distinct.tolist(), counts.tolist(), strict=True)
    ranked = sorted((-count, values[code], code) for code, count in pairs if count >= MIN_COUNT)[:MAX_VALUES]
    total = max(len(codes), 1)
    other = total - sum(-count for count, _, _ in ranked) if len(codes) else 0
    chosen = [(code, text, round(-SHARES * count / total) / SHARES) for count, text, code in ranked]
    return tuple(sorted(chosen, key=lambda value: value[1])), round(SHARES * other / total) / SHARES
