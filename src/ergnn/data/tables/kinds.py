"""What the columns of a table are: numbers, dates, categories or text."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse

from ergnn.config.errors import FormatError, InputError, listed, truncate
from ergnn.data.tables.node_tables import bad_row
from ergnn.data.tables.values import first_misfit, is_numeric, is_text, is_time, plain

KINDS = ("number", "category", "text", "date", "word", "ignore")
CODED = ("number", "date", "category")
"""Kinds with a column of :attr:`Codes.numbers`."""
MAX_CATEGORIES = 40
"""Texts with at most this many distinct values are categories (as in skrub's ``TableVectorizer``)."""
MIN_COUNT = 5
"""Values of a category that fewer rows have are "other"."""
FEW_VALUES = 10
"""More distinct texts are a category only if one of them is in ``MIN_COUNT`` rows, and are asked about if they nearly
hold numbers or dates."""
MAX_INTEGERS = 10
"""Whole numbers with at most this many distinct values, 20 rows each, are categories."""
ROWS_PER_INTEGER = 20
TEXT_WIDTH = 1 << 12
"""Columns that words and pairs of words of a text column are hashed to."""
MIN_WORDS, WORD_ZEROS = 20, 0.8
"""Columns of counts, of which at least 80 % are zero, are words if there are at least 20 such columns."""
HASH_BITS = 40
"""Bits of the hash of a category: what two 32-bit floats hold exactly."""
MISSING_CODE = np.float32(3e38)
"""Stands for a missing value in :meth:`Codes.to_matrix`."""
DAY = 86_400
NEARLY = 0.8
"""If this share of the values of a text column are numbers, or look like numbers or dates, the user is asked."""
PLAIN = r"^[+-]?[0-9]*\.?[0-9]+([eE][+-]?[0-9]+)?$"
ODD_NUMBER = r"^[$€£]?\s?[+-]?[0-9]{1,3}([,' ]?[0-9]{3})*([.,][0-9]+)?\s?[%$€£°a-zA-Z]{0,8}$"
ODD_DATE = (
    r"^([0-9]{1,2}[./-][0-9]{1,2}[./-]([0-9]{4}|[0-9]{2})|[0-9]{4}[./-][0-9]{1,2}[./-][0-9]{1,2})([T ][0-9:.]+\S*)?$"
)
MAX_UNITS = 3
"""Numbers with more different units are names, such as seats 12A to 12F."""
LARGEST = 1e38
"""Numbers are stored as two 32-bit floats."""


@dataclass(frozen=True)
class ColumnKind:
    """The kind of a column, and why it was chosen."""

    name: str
    kind: str
    why: str


@dataclass(frozen=True, eq=False)
class Codes:
    """The values of a table as numbers, row by row: no value depends on another row.

    Args:
        numbers: ``[n, m]`` float64, one column per column that is not text: numbers, days since 1970, and for
            categories a hash of the value; NaN where a value is missing.
        text: float32 in CSR form: hashed words, of unit length per text column (``TEXT_WIDTH`` columns each), then one
            column per column of words, together of unit length.
        values: the values of each category column by their hash.
    """

    numbers: np.ndarray
    text: scipy.sparse.csr_matrix
    values: Mapping[str, Mapping[float, str]]

    def to_matrix(self) -> Any:
        """Return one float32 matrix, in CSR form if there is text: pairs of columns that sum to numbers, and text."""
        with np.errstate(over="ignore"):
            high = np.nan_to_num(self.numbers).astype(np.float32)
        low = np.where(np.isnan(self.numbers), MISSING_CODE, self.numbers - high).astype(np.float32)
        pairs = np.stack([high, low], 2).reshape(len(high), -1)
        return scipy.sparse.hstack([pairs, self.text], "csr", np.float32) if self.text.shape[1] else pairs

    @classmethod
    def from_matrix(cls, matrix: Any, count: int) -> Codes:
        """Restore the codes of ``count`` numbers and of text; the values of categories are not in a matrix."""
        pairs = matrix[:, : 2 * count]
        pairs = pairs.toarray() if scipy.sparse.issparse(matrix) else pairs
        high, low = pairs[:, ::2].astype(np.float64), pairs[:, 1::2]
        text = scipy.sparse.csr_matrix(matrix[:, 2 * count :])
        return cls(np.where(low == MISSING_CODE, np.nan, high + low), text, {})


def decide_kinds(columns: Mapping[str, Any], told: Mapping[str, str], where: object) -> tuple[ColumnKind, ...]:
    """Decide the kind of each column of a table, unless ``told`` has it (one of :data:`KINDS` by name)."""
    for name, kind in told.items():
        if name not in columns:
            raise InputError(f"{where}: no column {name!r} to read as {kind}; columns are {listed(list(columns))}")
    kinds, words = dict[str, tuple[str, str]](), list[str]()
    for name, column in columns.items():
        values = None if name in told else plain(column)
        kinds[name] = (told[name], "as told") if values is None else _guess(values, name, where)
        if values is not None and kinds[name][0] in ("number", "category") and _is_count(values):
            words.append(name)
    if len(words) >= MIN_WORDS:
        kinds |= dict.fromkeys(words, ("word", f"counts, mostly 0, as in {len(words):,} columns"))
    return tuple(ColumnKind(name, *kind) for name, kind in kinds.items())


def _is_count(values: Any) -> bool:
    """Return whether values are numbers of 0 or more, and mostly 0."""
    if values.null_count or not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        return False
    counts = np.asarray(values)
    return bool((counts >= 0).all() and (counts == 0).sum() >= WORD_ZEROS * len(counts))


def _guess(values: Any, name: str, where: object) -> tuple[str, str]:
    """Return the kind of a column and the reason; a column that nearly holds numbers or dates is refused."""
    rows, kind = len(values) - values.null_count, values.type
    if not rows:
        return "ignore", "no values"
    distinct = len(pc.unique(values.drop_null()))
    if distinct == 1:
        return "ignore", "one value only"
    if is_time(kind):
        return "date", "dates"
    if pa.types.is_boolean(kind):
        return "number", "true or false"
    if pa.types.is_integer(kind) and 2 < distinct <= MAX_INTEGERS and rows >= ROWS_PER_INTEGER * distinct:
        return "category", f"{distinct} distinct whole numbers"
    if not is_text(kind):
        return "number", "numbers"
    if distinct > FEW_VALUES:
        _ask_about(values, name, where)
    most = pc.max(pc.struct_field(pc.value_counts(values.drop_null()), "counts")).as_py()
    if distinct <= MAX_CATEGORIES and rows >= 2 * distinct and (distinct <= FEW_VALUES or most >= MIN_COUNT):
        return "category", f"{distinct} distinct texts"
    if distinct == rows and not pc.any(pc.match_substring_regex(values, r"\S\s+\S")).as_py():
        return "ignore", "every value is one word and different: a name or an id"
    return "text", f"{distinct:,} distinct texts"


def _ask_about(texts: Any, name: str, where: object) -> None:
    """Refuse texts that nearly all look like numbers or dates, but cannot be read as such."""
    odd, dates = (pc.match_substring_regex(texts, pattern) for pattern in (ODD_NUMBER, ODD_DATE))
    units = len(pc.unique(pc.replace_substring_regex(texts.filter(odd), "[^a-zA-Z]", "")))
    numbers = pc.and_(pc.or_(pc.match_substring_regex(texts, PLAIN), odd), units <= MAX_UNITS)
    for what, alike, fits, need in (
        ("numbers", numbers, is_numeric, "numbers such as 1234.5"),
        ("dates", dates, is_time, "dates such as 2024-05-31, all with a time zone or none"),
    ):
        if pc.sum(alike).as_py() >= NEARLY * (len(texts) - texts.null_count):
            row = first_misfit(texts, fits)
            problem = f"nearly all values look like {what}, but {truncate(texts[row].as_py())} cannot be read"
            advice = f"write {need}, and nothing where none is known; or leave the column out (--ignore-column), or"
            told = f"say what it is when the folder is created (--columns {name}=text, category or ignore)"
            raise bad_row(where, row, f"{problem}; {advice} {told}", name)


def encode_values(kinds: Sequence[ColumnKind], columns: Mapping[str, Any], where: object) -> Codes:
    """Convert the values of a table to :class:`Codes`."""
    missing = [kind.name for kind in kinds if kind.kind != "ignore" and kind.name not in columns]
    if missing:
        raise FormatError(f"{where}: no column {truncate(missing[0])}; earlier nodes have {listed(missing)}")
    rows = len(next(iter(columns.values()))) if columns else 0
    numbers, words, values = list[np.ndarray](), list[np.ndarray](), dict[str, dict[float, str]]()
    texts: list[Any] = [scipy.sparse.csr_matrix((rows, 0), dtype=np.float32)]
    for kind in (kind for kind in kinds if kind.kind != "ignore"):
        column = plain(columns[kind.name])
        if kind.kind == "text":
            texts.append(_text(column))
        elif kind.kind == "word":
            words.append(np.nan_to_num(_number(column, kind, where)))
        elif kind.kind == "category":
            codes, values[kind.name] = _category(column)
            numbers.append(codes)
        else:
            numbers.append(_number(column, kind, where))
    if words:
        counts = scipy.sparse.csr_matrix(np.stack(words, 1))
        length = np.sqrt(np.asarray(counts.multiply(counts).sum(1)))
        texts.append(counts.multiply(1 / np.where(length > 0, length, 1.0)))
    stacked = np.stack(numbers, 1) if numbers else np.empty((rows, 0))
    return Codes(stacked, scipy.sparse.hstack(texts, "csr", np.float32), values)


def _number(values: Any, kind: ColumnKind, where: object) -> np.ndarray:
    """Return numbers, or days since 1970; NaN for missing values."""
    is_date = kind.kind == "date"
    fits = is_time if is_date else is_numeric
    if values.null_count == len(values):
        return np.full(len(values), np.nan)
    if not fits(values.type):
        bad = first_misfit(values, fits)
        need = f"{'a date such as 2024-05-31' if is_date else 'a number'} is required, or no value"
        why = f"since the column holds {kind.kind}s ({kind.why})"
        hint = f"to read it otherwise, create the folder with --columns {kind.name}=category"
        raise bad_row(where, bad, f"{truncate(str(values[bad].as_py()))}; {need}, {why}; {hint}", kind.name)
    if is_date:
        zone = values.type.tz if pa.types.is_timestamp(values.type) else None
        return np.asarray(values.cast(pa.timestamp("s", zone), safe=False).cast(pa.int64()).cast(pa.float64())) / DAY
    numbers = np.asarray(values.cast(pa.float64(), safe=False), np.float64)
    for row in np.flatnonzero(np.abs(numbers) > LARGEST):
        problem = f"{numbers[row]}; a finite number up to {LARGEST:g} is required, or no value"
        raise bad_row(where, int(row), problem, kind.name)
    return numbers


def _category(values: Any) -> tuple[np.ndarray, dict[float, str]]:
    """Return a hash per value, NaN for missing values, and the values by their hash."""
    encoded = values.cast(pa.large_string()).dictionary_encode()
    words = encoded.dictionary.to_pylist()
    digests = (hashlib.blake2b(word.encode(), digest_size=HASH_BITS // 8).digest() for word in words)
    hashes = np.array([*(float(int.from_bytes(digest, "little")) for digest in digests), np.nan])
    return hashes[np.asarray(encoded.indices.fill_null(len(words)))], dict(zip(hashes.tolist(), words, strict=False))


def _text(values: Any) -> scipy.sparse.csr_matrix:
    """Hash words and pairs of words (scikit-learn's ``HashingVectorizer``); a missing text is a row of zeros."""
    from sklearn.feature_extraction.text import HashingVectorizer

    texts = values.cast(pa.large_string()).fill_null("").to_pylist()
    return HashingVectorizer(n_features=TEXT_WIDTH, ngram_range=(1, 2), dtype=np.float32).transform(texts)
