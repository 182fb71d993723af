"""Features row by row, as they are read: numbers, lists, or sparse text; dense or CSR at the end."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse

from ergnn.data.formats.limits import Limits, shown
from ergnn.data.formats.values import number, numbers
from ergnn.errors import FormatError

INDEX = re.compile(r"[0-9]{1,18}", re.ASCII)
PLAIN = re.compile(r"(?:[0-9]{1,18}:-?[0-9]{1,30}(?:\.[0-9]{1,30})?(?: |\Z))*", re.ASCII)
"""The usual form, whose numbers are finite."""


class DenseRows:
    """Rows of as many numbers each."""

    def __init__(self, limits: Limits, where: object, width: int | None = None) -> None:
        self.limits, self.where, self.width = limits, where, width
        self.values = array("f")
        self.rows = 0

    def add(self, values: Sequence[float], where: str) -> None:
        if self.width is None:
            self.width = len(values)
            self.limits.check("features", self.width, where)
        if len(values) != self.width:
            raise FormatError(f"{where}: {len(values):,} features; {self.width:,} are needed")
        self.rows += 1
        self.limits.check_bytes(4 * self.rows * self.width, self.where, "features take")
        self.values.extend(values)

    def matrix(self) -> np.ndarray:
        return np.frombuffer(self.values, dtype=np.float32).reshape(self.rows, self.width or 0)


class SparseRows:
    """Rows of ``index:value`` pairs; as many features as are asked for, or up to the largest index."""

    def __init__(self, limits: Limits, width: int | None = None) -> None:
        self.limits, self.width = limits, width
        self.index, self.values, self.ends = array("q"), array("f"), array("q", [0])

    def add(self, text: str, where: str) -> None:
        most = self.limits.features if self.width is None else self.width
        if PLAIN.fullmatch(text):
            words = text.replace(":", " ").split()
            self._extend(list(map(int, words[::2])), list(map(float, words[1::2])), most, where)
        else:
            self._extend(*_pairs(text, where), most, where)

    def _extend(self, index: list[int], values: list[float], most: int, where: str) -> None:
        if index and max(index) >= most:
            raise FormatError(
                f"{where}, column 'features': index {max(index)} is out of range; 0 to {most - 1} are allowed"
            )
        if len(set(index)) < len(index):
            twice = next(i for i in index if index.count(i) > 1)
            raise FormatError(f"{where}, column 'features': index {twice} stands there twice")
        self.index.extend(index)
        self.values.extend(values)
        self.ends.append(len(self.index))

    def matrix(self) -> scipy.sparse.csr_matrix:
        width = self.width if self.width is not None else max(self.index, default=-1) + 1
        parts = (
            np.frombuffer(self.values, dtype=np.float32),
            np.frombuffer(self.index, dtype=np.int64),
            np.frombuffer(self.ends, dtype=np.int64),
        )
        out = scipy.sparse.csr_matrix(parts, shape=(len(self.ends) - 1, width), copy=True)
        out.sort_indices()
        return out


class FeatureColumn:
    """One column with all features of a node: a list such as ``[0.1, 2]``, or sparse text such as ``3:0.5 17:1``.

    What the first node that has anything there has decides; sparse text may be empty (all features are zero).
    """

    def __init__(self, limits: Limits, where: object, width: int | None = None) -> None:
        self.limits, self.where, self.width = limits, where, width
        self.rows: DenseRows | SparseRows | None = None
        self.empty = 0

    def add(self, value: str | Sequence[float], where: str) -> None:
        if isinstance(value, str) and not value.lstrip().startswith("["):
            self._add_text(value, where)
        else:
            self._add_list(_listed(value, where) if isinstance(value, str) else value, where)

    def _add_text(self, text: str, where: str) -> None:
        if self.rows is None and not text.strip():
            self.empty += 1
            return
        if self.rows is None:
            self.rows = self._sparse()
        if not isinstance(self.rows, SparseRows):
            raise FormatError(f"{where}, column 'features': {shown(text)}; nodes before it have lists")
        self.rows.add(text, where)

    def _add_list(self, values: Sequence[float], where: str) -> None:
        if self.rows is None:
            if self.empty:
                raise FormatError(f"{where}, column 'features': a list; nodes before it have none")
            self.rows = DenseRows(self.limits, self.where, self.width)
        if not isinstance(self.rows, DenseRows):
            raise FormatError(f"{where}, column 'features': a list; nodes before it have sparse text")
        self.rows.add(values, where)

    def _sparse(self) -> SparseRows:
        rows = SparseRows(self.limits, self.width)
        for _ in range(self.empty):
            rows.add("", "")
        return rows

    def matrix(self) -> Any:
        return (self._sparse() if self.rows is None else self.rows).matrix()


def _pairs(text: str, where: str) -> tuple[list[int], list[float]]:
    """Indices and values one by one, for text that is not in the plain form."""
    index, values = [], []
    for entry in text.split():
        key, colon, value = entry.partition(":")
        if not colon or not INDEX.fullmatch(key):
            raise FormatError(
                f"{where}, column 'features': {shown(entry)}; sparse features are written index:value, "
                "with indices from 0"
            )
        try:
            values.append(number(value))
        except ValueError:
            raise FormatError(
                f"{where}, column 'features': {shown(entry)} has no finite number after the colon"
            ) from None
        index.append(int(key))
    return index, values


def _listed(text: str, where: str) -> list[float]:
    inner = text.strip()
    if not inner.endswith("]"):
        raise FormatError(f"{where}, column 'features': the list {shown(text)} has no closing bracket")
    inner = inner[1:-1]
    if not inner.strip():
        return []
    entries = inner.split(",")
    try:
        return numbers(entries)
    except ValueError as error:
        raise FormatError(f"{where}, column 'features': {shown(str(error.args[0]))} is not a finite number") from None
