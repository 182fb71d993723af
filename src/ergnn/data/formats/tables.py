"""Nodes and edges as they stand in a user's files: ids and labels are the user's own words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from ergnn.data.formats.limits import truncate
from ergnn.errors import FormatError

SPLITS = ("train", "val", "test")
Column = Any
"""Any sequence or array goes in; a built table holds numpy arrays (or ``None`` for a column that is absent)."""
Place = Callable[[int], str]
"""Says where a row came from, e.g. ``nodes.csv, row 7``."""
NUMBER = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.0*|(\.[0-9]+)?e\+([0-9]{1,2}))", re.ASCII)


class Coded(NamedTuple):
    """A column of texts: row ``i`` holds ``words[codes[i]]``; ``None`` among the words means missing."""

    words: list[str | None]
    codes: np.ndarray


@dataclass(frozen=True, eq=False)
class NodeTable:
    """Nodes, one per row. All values are checked, and ids, labels and domains become :func:`canonical` text.

    Args:
        ids: unique; an array of ``str`` objects.
        labels: one class per node, ``None`` (or NaN, or empty text) for a node without one; default: none has one.
        time: one number per node, NaN where unknown; dates are seconds since 1970 (UTC). ``None``: no such column.
        split: ``train``, ``val``, ``test`` or ``None`` per node. ``None``: no such column.
        domain: text or ``None`` per node. ``None``: no such column.
        features: ``[n, f]`` of ``float32``, dense or CSR; by default no features.
        feature_names: one name per feature, where features have names.
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
        ids = _texts(self.ids, "id", where, required=True)
        n = len(ids)
        _check_unique(ids, where)
        self._set("ids", ids)
        labels = np.full(n, None) if self.labels is None else _texts(self.labels, "label", where)
        self._set("labels", _check_length(labels, n, "labels"))
        if self.time is not None:
            self._set("time", _check_length(_times(self.time, where), n, "time"))
        if self.split is not None:
            split = _check_length(_texts(self.split, "split", where), n, "split")
            for part in set(split) - {None, *SPLITS}:
                row = split.tolist().index(part)
                raise FormatError(f"{where(row)}: split is {truncate(part)}; allowed are {', '.join(SPLITS)}, or empty")
            self._set("split", split)
        if self.domain is not None:
            self._set("domain", _check_length(_texts(self.domain, "domain", where), n, "domain"))
        names = None if self.feature_names is None else tuple(self.feature_names)
        self._set("feature_names", names)
        features = np.zeros((n, 0), np.float32) if self.features is None else self.features
        self._set("features", _features(features, n, names, where))
        if names is not None and len(names) != self.num_features:
            raise FormatError(f"{len(names)} feature names for {self.num_features} features")

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
    """Edges, one per row, between ids of nodes (:func:`canonical` text).

    Args:
        source: ids.
        target: ids.
        weight: one finite number per edge. ``None``: no such column.
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
        source = _texts(self.source, "source", where, required=True)
        target = _texts(self.target, "target", where, required=True)
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "target", _check_length(target, len(source), "target"))
        if self.weight is not None:
            weight = np.asarray(self.weight, dtype=np.float64)
            bad = np.flatnonzero(~np.isfinite(weight))
            if bad.size:
                raise FormatError(f"{where(int(bad[0]))}: weight is {weight[bad[0]]}; a finite number is required")
            object.__setattr__(self, "weight", _check_length(weight, len(source), "weight"))
        if self.time is not None:
            object.__setattr__(self, "time", _check_length(_times(self.time, where), len(source), "time"))

    def __len__(self) -> int:
        return len(self.source)


def canonical(value: object) -> str | None:
    """The text of an id or a label, the same whatever file or type it came from; ``None`` if it is missing.

    Surrounding blanks are stripped; integer-valued floats become integers (``1.0`` and ``1e+16`` as pandas writes
    them, but not ``1e5``, which may be a name); booleans become ``True`` and ``False``. Nothing else changes: ``07``
    stays ``07``. ``None``, NaN and empty text are missing.
    """
    if value is None or value != value:
        return None
    text = value if type(value) is str else str(value)
    text = text.strip()
    if "." in text or "+" in text:
        found = NUMBER.fullmatch(text)
        if found is not None and found[4] is None:
            return found[2] if found[2] == "0" else found[1] + found[2]
        if found is not None and (number := Decimal(text)) == number.to_integral_value():
            return f"{number:.0f}"
    elif len(text) in (4, 5) and text.lower() in ("true", "false"):
        return text.capitalize()
    return text or None


def align_features(table: NodeTable, names: Sequence[str] | None, source: object) -> NodeTable:
    """The table with its features in the order of ``names``; missing and unknown names are refused.

    Tables without features, and features without names (lists, sparse text, arrays), are returned as they are.
    """
    if names is None or table.feature_names is None or not table.num_features or table.feature_names == tuple(names):
        return table
    missing = [name for name in names if name not in set(table.feature_names)]
    unknown = [name for name in table.feature_names if name not in set(names)]
    if missing or unknown:
        said = [f"{what}: {listed(found)}" for what, found in (("missing", missing), ("unknown", unknown)) if found]
        raise FormatError(f"{source}: feature columns do not match those of earlier nodes; {'; '.join(said)}")
    place = {name: i for i, name in enumerate(table.feature_names)}
    return replace(table, features=table.features[:, [place[n] for n in names]], feature_names=tuple(names), place=None)


def listed(names: Sequence[object], most: int = 8) -> str:
    """The first few names, for a message."""
    return ", ".join(truncate(name, 30) for name in names[:most]) + (", …" if len(names) > most else "")


def numbered(n: int) -> np.ndarray:
    """The ids of nodes that are only numbered: ``"0"`` to ``"n - 1"``."""
    return np.array([str(i) for i in range(n)] or [None], dtype=object)[:n]


def _row(row: int) -> str:
    return f"row {row + 1}"


def _texts(values: Any, what: str, where: Place, required: bool = False) -> np.ndarray:
    """Canonical text of each value, ``None`` where it is missing; each distinct value is looked at once."""
    if not isinstance(values, Coded):
        given = values.tolist() if isinstance(values, np.ndarray) else list(values)
        texts = [v if v is None or type(v) is str else None if v != v else str(v) for v in given]
        place = {word: i for i, word in enumerate(dict.fromkeys(texts))}
        values = Coded(list(place), np.fromiter(map(place.__getitem__, texts), np.int64, len(texts)))
    words = np.empty(len(values.words), dtype=object)
    words[:] = [canonical(word) for word in values.words]
    for i, word in enumerate(words):
        if (word is None and required) or (word is not None and not _is_plain(word)):
            rows = np.flatnonzero(values.codes == i)
            if rows.size and word is None:
                raise FormatError(f"{where(int(rows[0]))}: {what} is missing")
            if rows.size:
                raise FormatError(
                    f"{where(int(rows[0]))}: {what} is {truncate(word)}; text must be valid Unicode without NUL"
                )
    return words[values.codes]


def _is_plain(text: str) -> bool:
    """Whether text has neither a NUL nor half a surrogate pair, which no file could hold."""
    if text.isascii():
        return "\0" not in text
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _check_unique(ids: np.ndarray, where: Place) -> None:
    if len(set(ids)) == len(ids):
        return
    first: dict[str, int] = {}
    for row, name in enumerate(ids):
        if name in first:
            raise FormatError(f"{where(row)}: id {truncate(name)} occurs again, first in {where(first[name])}")
        first[name] = row


def _times(values: Any, where: Place) -> np.ndarray:
    time = np.asarray(values)
    if time.dtype.kind in "iu" and (time.dtype != np.uint64 or not (time > np.iinfo(np.int64).max).any()):
        return time.astype(np.int64)
    time = time.astype(np.float64)
    bad = np.flatnonzero(np.isinf(time))
    if bad.size:
        raise FormatError(f"{where(int(bad[0]))}: time is {time[bad[0]]}; a finite number is required")
    return time


def _features(values: Any, n: int, names: tuple[str, ...] | None, where: Place) -> Any:
    with np.errstate(over="ignore"):  # what does not fit into 32 bits is refused below
        if scipy.sparse.issparse(values):
            features = _canonical_csr(scipy.sparse.csr_matrix(values, dtype=np.float32))
            entries = features.data
        else:
            features = entries = np.asarray(values, dtype=np.float32)
    if features.ndim != 2:
        raise FormatError(f"features have {features.ndim} dimensions; [nodes, features] is required")
    if features.shape[0] != n:
        raise FormatError(f"features have {features.shape[0]:,} rows; there are {n:,} nodes")
    if not np.isfinite(entries).all():
        if scipy.sparse.issparse(features):
            entry = int(np.flatnonzero(~np.isfinite(entries))[0])
            row, column = int(np.searchsorted(features.indptr, entry, side="right")) - 1, int(features.indices[entry])
        else:
            row, column = (int(i) for i in np.argwhere(~np.isfinite(entries))[0])
        name = column if names is None else truncate(names[column])
        raise FormatError(f"{where(row)}: feature {name} is {features[row, column]}; a finite 32-bit float is required")
    return features


def _canonical_csr(matrix: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
    """The matrix with columns in range, and sorted and unique in each row."""
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise FormatError(f"features are not a CSR matrix ({error})") from error
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def _check_length(values: np.ndarray, n: int, what: str) -> np.ndarray:
    if values.shape != (n,):
        raise FormatError(f"{what} has shape {list(values.shape)}; [{n}] is required")
    return values
