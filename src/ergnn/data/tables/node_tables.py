"""Tables of nodes and edges; ids and labels are the user's own, as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from ergnn.config.errors import FormatError, truncate
from ergnn.data.graph import SPLITS as SPLITS
from ergnn.data.tables.columns import check_known

Column = Any
"""Any sequence or array is accepted; a built table has numpy arrays, or ``None`` for a missing column."""
WHOLE = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.0*|(\.[0-9]+)?e\+([0-9]{1,2}))", re.ASCII)
UNUSUAL = (*"\0\t\n\v\f\r\x1c\x1d\x1e\x1f .+", "true", "false")
"""Every ASCII text that is not canonical contains one of these."""
NOT_TEXT = re.compile("[\0\ud800-\udfff]")
"""NUL and halves of surrogate pairs, which no text file can contain."""


class EncodedText(NamedTuple):
    """A dictionary-encoded column of texts: row ``i`` holds ``values[codes[i]]``; ``None`` means missing."""

    values: Sequence[str | None]
    codes: np.ndarray

    def decode(self) -> np.ndarray:
        """The text of every row, as an array of objects."""
        return np.array(self.values, dtype=object)[self.codes]


@dataclass(frozen=True, eq=False)
class NodeTable:
    """Nodes, one per row. All values are checked; ids, labels and domains become :func:`canonical` text.

    Args:
        ids: unique; an array of ``str`` objects.
        labels: one class per node; ``None``, NaN and empty text mean no label. Default: no labels.
        time: one number per node, NaN where unknown; dates are seconds since 1970 (UTC). Default: no such column.
        split: ``train``, ``val``, ``test`` or ``None`` per node. Default: no such column.
        domain: text or ``None`` per node. Default: no such column.
        features: ``[n, f]`` of ``float32``, dense or CSR. Default: no features.
        feature_names: one name per feature. Default: features have no names.
        columns: Arrow columns by name, of any kind, that an :class:`~ergnn.data.tables.encoder.Encoder` turns into
            features; ``features`` then holds them if all are numbers. Default: no such columns.
        partial_columns: whether columns that are left out are missing values; otherwise a folder refuses them.
        where: names the table in messages.
    """

    ids: Column
    labels: Column = None
    time: Column = None
    split: Column = None
    domain: Column = None
    features: Any = None
    feature_names: tuple[str, ...] | None = None
    columns: Mapping[str, Any] | None = None
    partial_columns: bool = False
    where: str = "the update"

    def __post_init__(self) -> None:
        where = self.where
        columns: dict[str, Any] = {"time": _times(self.time, where)}
        for name, what in {"ids": "id", "labels": "label", "split": "split", "domain": "domain"}.items():
            given = getattr(self, name)
            columns[name] = None if given is None else _encode(given, what, where, name == "ids").decode()
        ids, first = columns["ids"], dict[str, int]()
        for row, name in enumerate(ids):
            if first.setdefault(name, row) != row:
                raise bad_row(where, row, f"id {truncate(name)} occurs again, first in row {first[name] + 1}")
        n = len(ids)
        columns["labels"] = np.full(n, None) if self.labels is None else columns["labels"]
        for name, values in columns.items():
            if values is not None and values.shape != (n,):
                raise FormatError(f"{name} has shape {list(values.shape)}; [{n}] is required")
            object.__setattr__(self, name, values)
        for part in set(() if self.split is None else self.split) - {None, *SPLITS}:
            row = self.split.tolist().index(part)
            raise bad_row(where, row, f"split is {truncate(part)}; allowed are {', '.join(SPLITS)}, or empty")
        names = None if self.feature_names is None else tuple(self.feature_names)
        features = np.zeros((n, 0), np.float32) if self.features is None else self.features
        object.__setattr__(self, "feature_names", names)
        object.__setattr__(self, "features", _features(features, n, names, where))
        if names is not None and len(names) != self.num_features:
            raise FormatError(f"{len(names)} feature names for {self.num_features} features")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def num_features(self) -> int:
        return int(self.features.shape[1])

    @property
    def is_sparse(self) -> bool:
        return scipy.sparse.issparse(self.features)


class EdgeTable:
    """Edges, one per row, between ids of nodes (:func:`canonical` text). All values are checked.

    Args:
        source: ids.
        target: ids.
        weight: one number per edge. Default: all are 1.
        where: names the table in messages.
        ignored: names of other columns, which are not read.

    Attributes:
        ends: sources and targets, each dictionary-encoded.
        weight: weights as ``float32``; ``None`` if all are 1.
    """

    def __init__(
        self,
        source: Column,
        target: Column,
        weight: Column = None,
        where: str = "edges",
        ignored: Sequence[str] = (),
    ) -> None:
        self.ignored, self.where = tuple(ignored), where
        columns = {"source": source, "target": target}
        self.ends = tuple(_encode(values, what, where, required=True) for what, values in columns.items())
        weights = np.ones(len(self), np.float32) if weight is None else np.asarray(weight, np.float32)
        for name, given in {"target": self.ends[1].codes, "weight": weights}.items():
            if given.shape != (len(self),):
                raise FormatError(f"{name} has shape {list(given.shape)}; [{len(self)}] is required")
        self.weight = None if (weights == 1).all() else weights

    @cached_property
    def source(self) -> np.ndarray:
        """Ids of the nodes that edges leave, as an array of objects."""
        return self.ends[0].decode()

    @cached_property
    def target(self) -> np.ndarray:
        """Ids of the nodes that edges enter."""
        return self.ends[1].decode()

    def __len__(self) -> int:
        return len(self.ends[0].codes)


def canonical(value: object) -> str | None:
    """Return the text of an id or a label, which does not depend on its file or type; ``None`` if it is missing.

    Surrounding blanks are stripped; integer-valued floats become integers (``1.0`` and ``1e+16`` as pandas writes
    them, but not ``1e5``, which may be a name); booleans become ``True`` and ``False``. Nothing else changes: ``07``
    stays ``07``. ``None``, NaN and empty text are missing.
    """
    if value is None or value != value:
        return None
    text = (value if type(value) is str else str(value)).strip()
    if "." in text or "+" in text:
        match = WHOLE.fullmatch(text)
        if match is not None and match[4] is None:
            return match[2] if match[2] == "0" else match[1] + match[2]
        if match is not None and (number := Decimal(text)) == number.to_integral_value():
            return f"{number:.0f}"
    elif len(text) in (4, 5) and text.lower() in ("true", "false"):
        return text.capitalize()
    return text or None


def align_features(table: NodeTable, names: Sequence[str] | None, source: object) -> NodeTable:
    """Return the table with its features in the order of ``names``; missing and unknown names are refused.

    Tables without features, and features without names (lists, sparse text, arrays), are returned unchanged.
    """
    if names is None or table.feature_names is None or not table.num_features or table.feature_names == tuple(names):
        return table
    check_known(table.feature_names, names, names, source)
    index = {name: i for i, name in enumerate(table.feature_names)}
    order = [index[name] for name in names]
    return replace(table, features=table.features[:, order], feature_names=tuple(names))


def bad_row(where: object, row: int, problem: str, column: str | None = None) -> FormatError:
    """The error of a row of a table, counted from 0, or of its value in a column."""
    return FormatError(f"{where}, row {row + 1}{'' if column is None else f', column {truncate(column)}'}: {problem}")


def _encode(values: Any, what: str, where: str, required: bool) -> EncodedText:
    """Dictionary-encode a column with canonical texts; each distinct value is checked once."""
    if not isinstance(values, EncodedText):
        given = values.tolist() if isinstance(values, np.ndarray) else list(values)
        texts = [v if v is None or type(v) is str else None if v != v else str(v) for v in given]
        index = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        values = EncodedText(list(index), np.fromiter(map(index.__getitem__, texts), np.int64, len(texts)))
    distinct, codes = values
    joined = "|".join(filter(None, distinct)).lower()
    usual = joined.isascii() and not any(mark in joined for mark in UNUSUAL)
    if usual and "" not in distinct and None not in distinct:
        return values
    distinct = [canonical(text) for text in distinct]
    wrong = [i for i, text in enumerate(distinct) if (required if text is None else NOT_TEXT.search(text))]
    for row in np.flatnonzero(np.isin(codes, wrong)):
        text = distinct[codes[row]]
        problem = "missing" if text is None else f"{truncate(text)}; text must be valid Unicode without NUL"
        raise bad_row(where, int(row), f"{what} is {problem}")
    return EncodedText(distinct, codes)


def _times(values: Any, where: str) -> np.ndarray | None:
    if values is None:
        return None
    time = np.asarray(values)
    if time.dtype.kind in "iu" and (time.dtype != np.uint64 or not (time > np.iinfo(np.int64).max).any()):
        return time.astype(np.int64)
    time = time.astype(np.float64)
    for row in np.flatnonzero(np.isinf(time)):
        raise bad_row(where, int(row), f"time is {time[row]}; a finite number is required")
    return time


def _features(values: Any, n: int, names: tuple[str, ...] | None, where: str) -> Any:
    """Check that features are finite; sort and merge the entries of sparse rows."""
    sparse = scipy.sparse.issparse(values)
    with np.errstate(over="ignore"):  # what does not fit into 32 bits is refused below
        features: Any = scipy.sparse.csr_matrix(values, dtype=np.float32) if sparse else np.asarray(values, np.float32)
    if features.ndim != 2 or features.shape[0] != n:
        raise FormatError(f"features have shape {list(features.shape)}; [{n}, features] is required")
    if sparse:
        try:
            features.check_format(full_check=True)
        except ValueError as error:
            raise FormatError(f"features are not a CSR matrix ({error})") from error
        if not features.has_canonical_format:
            features = features.copy()
            features.sum_duplicates()
    entries = features.data if sparse else features.reshape(-1)
    for at in np.flatnonzero(~np.isfinite(entries)):
        row, column = divmod(int(at), features.shape[1])
        if sparse:
            row, column = int(np.searchsorted(features.indptr, at, side="right")) - 1, int(features.indices[at])
        name = column if names is None else truncate(names[column])
        raise bad_row(where, row, f"feature {name} is {entries[at]}; a finite 32-bit float is required")
    return features
