"""Nodes and edges as they stand in a user's files: ids and labels are the user's own words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass
from typing import Any

import numpy as np
import scipy.sparse

from ergnn.data.formats.limits import shown
from ergnn.errors import FormatError

SPLITS = ("train", "val", "test")
Column = Any
"""Any sequence or array goes in; a numpy array it is once a table is built (or ``None``, where it says so)."""
Place = Callable[[int], str]
"""Says where a row came from, e.g. ``nodes.csv, line 7``."""


@dataclass(frozen=True, eq=False)
class NodeTable:
    """Nodes, one a row. What it is built from is checked.

    Args:
        ids: text, none twice; an array of ``str`` objects (numbers are read as their text).
        labels: a class a node as text, ``None`` for a node without one; by default no node has one.
        time: a number a node, NaN where it is not known; dates are seconds since 1970 (UTC). ``None``: no such column.
        split: ``train``, ``val``, ``test`` or ``None`` a node. ``None``: no such column.
        domain: text or ``None`` a node. ``None``: no such column.
        features: ``[n, f]`` of ``float32``, dense or CSR; by default no features.
        feature_names: a name a column, where the file had names.
        place: for messages, where a row came from.
    """

    ids: Column
    labels: Column = None
    time: Column = None
    split: Column = None
    domain: Column = None
    features: Any = None
    feature_names: tuple[str, ...] | None = None
    place: InitVar[Place | None] = None

    def __post_init__(self, place: Place | None) -> None:
        where = place or _row
        ids = _texts(self.ids, "id", where, missing=False)
        n = len(ids)
        _unique(ids, where)
        self._set("ids", ids)
        labels = [None] * n if self.labels is None else self.labels
        self._set("labels", _length(_texts(labels, "label", where), n, "labels"))
        if self.time is not None:
            self._set("time", _length(_times(self.time, where), n, "time"))
        if self.split is not None:
            split = _length(_texts(self.split, "split", where), n, "split")
            for row, part in enumerate(split):
                if part is not None and part not in SPLITS:
                    raise FormatError(
                        f"{where(row)}: split is {shown(part)}; allowed are {', '.join(SPLITS)}, or nothing"
                    )
            self._set("split", split)
        if self.domain is not None:
            self._set("domain", _length(_texts(self.domain, "domain", where), n, "domain"))
        features = np.zeros((n, 0), np.float32) if self.features is None else self.features
        self._set("features", _features(features, n, where))
        if self.feature_names is not None and len(self.feature_names) != self.num_features:
            raise FormatError(f"{len(self.feature_names)} feature names for {self.num_features} features")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def num_features(self) -> int:
        return int(self.features.shape[1])

    @property
    def is_sparse(self) -> bool:
        return scipy.sparse.issparse(self.features)


@dataclass(frozen=True, eq=False)
class EdgeTable:
    """Edges, one a row, between ids of nodes.

    Args:
        source: ids as text.
        target: ids as text.
        weight: a finite number an edge. ``None``: no such column.
        time: as in :class:`NodeTable`.
        place: for messages, where a row came from.
    """

    source: Column
    target: Column
    weight: Column = None
    time: Column = None
    place: InitVar[Place | None] = None

    def __post_init__(self, place: Place | None) -> None:
        where = place or _row
        source = _texts(self.source, "source", where, missing=False)
        target = _texts(self.target, "target", where, missing=False)
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "target", _length(target, len(source), "target"))
        if self.weight is not None:
            weight = np.asarray(self.weight, dtype=np.float64)
            bad = np.flatnonzero(~np.isfinite(weight))
            if bad.size:
                raise FormatError(f"{where(int(bad[0]))}: weight is {weight[bad[0]]}; a finite number is needed")
            object.__setattr__(self, "weight", _length(weight, len(source), "weight"))
        if self.time is not None:
            object.__setattr__(self, "time", _length(_times(self.time, where), len(source), "time"))

    def __len__(self) -> int:
        return len(self.source)


def numbered(n: int) -> np.ndarray:
    """The ids of nodes that are only numbered: ``"0"`` to ``"n - 1"``."""
    return _objects([str(i) for i in range(n)])


def _row(row: int) -> str:
    return f"row {row + 1}"


def _texts(values: Iterable[Any], what: str, where: Place, missing: bool = True) -> np.ndarray:
    """Text of each value; ``None`` only where it may be missing, and never empty text."""
    listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
    texts = [value if value is None or type(value) is str else str(value) for value in listed]
    if not missing and None in texts:
        raise FormatError(f"{where(texts.index(None))}: {what} is missing")
    if "" in texts:
        raise FormatError(f"{where(texts.index(''))}: {what} is empty")
    for row, text in _not_plain(texts):
        raise FormatError(f"{where(row)}: {what} is {shown(text)}; text must be valid Unicode without NUL")
    return _objects(texts)


def _not_plain(texts: list[str | None]) -> Iterable[tuple[int, str]]:
    """Rows whose text holds a NUL or half a surrogate pair, so that no file could hold it."""
    try:
        if b"\0" not in "\n".join(filter(None, set(texts))).encode():
            return
    except UnicodeEncodeError:
        pass
    for row, text in enumerate(texts):
        if text is not None and ("\0" in text or not _encodes(text)):
            yield row, text


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _objects(values: list[Any]) -> np.ndarray:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _unique(ids: np.ndarray, where: Place) -> None:
    if len(set(ids)) == len(ids):
        return
    first: dict[str, int] = {}
    for row, name in enumerate(ids):
        if name in first:
            raise FormatError(f"{where(row)}: id {shown(name)} stands there again, first in {where(first[name])}")
        first[name] = row


def _times(values: Any, where: Place) -> np.ndarray:
    time = np.asarray(values)
    if time.dtype.kind in "iu" and (time.dtype != np.uint64 or not (time > np.iinfo(np.int64).max).any()):
        return time.astype(np.int64)
    time = time.astype(np.float64)
    bad = np.flatnonzero(np.isinf(time))
    if bad.size:
        raise FormatError(f"{where(int(bad[0]))}: time is {time[bad[0]]}; a finite number is needed")
    return time


def _features(values: Any, n: int, where: Place) -> Any:
    if scipy.sparse.issparse(values):
        features = _canonical(scipy.sparse.csr_matrix(values, dtype=np.float32))
        entries = features.data
    else:
        features = entries = np.asarray(values, dtype=np.float32)
        if features.ndim != 2:
            raise FormatError(f"features have {features.ndim} dimensions; [nodes, features] is needed")
    if features.shape[0] != n:
        raise FormatError(f"features have {features.shape[0]:,} rows; there are {n:,} nodes")
    if not np.isfinite(entries).all():
        if scipy.sparse.issparse(features):
            entry = int(np.flatnonzero(~np.isfinite(entries))[0])
            row, column = int(np.searchsorted(features.indptr, entry, side="right")) - 1, int(features.indices[entry])
        else:
            row, column = (int(i) for i in np.argwhere(~np.isfinite(entries))[0])
        raise FormatError(
            f"{where(row)}: feature {column} is {features[row, column]}; features must be finite numbers of 32 bits"
        )
    return features


def _canonical(matrix: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
    """The matrix with its columns in range and rising in every row, each once; one that is so already as it is."""
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise FormatError(f"features are not a matrix in CSR form ({error})") from error
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def _length(values: np.ndarray, n: int, what: str) -> np.ndarray:
    if values.shape != (n,):
        raise FormatError(f"{what} has shape {list(values.shape)}; [{n}] is needed")
    return values
