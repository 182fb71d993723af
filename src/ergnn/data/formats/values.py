"""Numbers and times that stand in a file as text."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime, timezone

import numpy as np

from ergnn.data.formats.limits import shown
from ergnn.errors import FormatError

WHOLE = re.compile(r"\s*[+-]?[0-9]{1,19}\s*", re.ASCII)
DATE = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?\s?(Z|[+-]\d\d:?\d\d)?", re.ASCII)


def number(text: str) -> float:
    """A finite number, or ``ValueError``; unlike ``float`` it takes no ``1_000`` and no digits of other scripts."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    try:
        value = float(text)
    except ValueError:
        raise ValueError(text) from None
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def numbers(texts: Sequence[str]) -> list[float]:
    """:func:`number` of each, checked all together where nothing is wrong."""
    joined = "".join(texts)
    if "_" not in joined and joined.isascii():
        try:
            values = list(map(float, texts))
        except ValueError:
            pass
        else:
            if math.isfinite(sum(values)):
                return values
    return [number(text) for text in texts]


def seconds(text: str) -> float:
    """Seconds since 1970 of a date or time in ISO 8601, UTC where it says nothing else; else ``ValueError``."""
    found = DATE.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    day, minute, second, fraction, zone = found.groups()
    zone = "+00:00" if zone in (None, "Z") else zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
    moment = datetime.fromisoformat(f"{day}T{minute or '00:00'}:{second or '00'}{zone}")
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds() + float(f"0.{fraction or 0}")


class Times:
    """A column of times: whole numbers, numbers, or dates, and never numbers and dates together."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.kind = ""
        self.whole = True

    def add(self, text: str, where: str) -> None:
        if not text.strip():
            self.values.append(math.nan)
            self.whole = False
            return
        try:
            value, kind = self._parsed(text)
        except (ValueError, OverflowError):
            raise FormatError(
                f"{where}, column 'time': {shown(text)} is neither a finite number nor a date such as 2024-05-31 or "
                "2024-05-31T12:00:00Z"
            ) from None
        if self.kind and kind != self.kind:
            raise FormatError(f"{where}, column 'time': {shown(text)} is a {kind}; the column began with a {self.kind}")
        self.kind = kind
        self.values.append(value)

    def _parsed(self, text: str) -> tuple[float, str]:
        if WHOLE.fullmatch(text) and -(2**63) <= int(text) < 2**63:
            return int(text), "number"
        try:
            value, kind = number(text), "number"
        except ValueError:
            value, kind = seconds(text), "date"
        self.whole = False
        return value, kind

    def array(self) -> np.ndarray:
        return np.array(self.values, dtype=np.int64 if self.whole else np.float64)
