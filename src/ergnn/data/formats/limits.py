"""How large a file may be. Everything is checked before memory is taken for it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, fields
from pathlib import Path

from ergnn.errors import FormatError, InputError

MEGABYTE = 1 << 20
TEXT_UNPACKED = (16 * MEGABYTE, 100)
"""A gz-compressed text may unpack to 16 MB, or to 100 times its size where that is more (bombs reach 1,000 times)."""
ARRAYS_UNPACKED = (32 * MEGABYTE, 50)
"""The same for a file of compressed arrays, all together; those of real graphs are 3 to 6 times the file."""


@dataclass(frozen=True)
class Limits:
    """What a file may hold at most.

    Args:
        nodes: nodes of a file.
        edges: edges of a file.
        features: features a node.
        megabytes: size of a file (unpacked, where it is compressed), and of the arrays that are read from it.
    """

    nodes: int = 10_000_000
    edges: int = 200_000_000
    features: int = 1_000_000
    megabytes: int = 4096

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"the limit on {option.name} is {value!r}; a whole number of at least 1 is needed")

    @property
    def bytes(self) -> int:
        return self.megabytes * MEGABYTE

    @property
    def line(self) -> int:
        """Bytes of one line: 32 a feature, and 64 kB for the rest."""
        return min(self.bytes, 32 * self.features + (1 << 16))

    def check(self, what: str, count: int, where: object) -> None:
        """Refuse more than the limit on ``what``: ``nodes``, ``edges`` or ``features``."""
        most = getattr(self, what)
        if count > most:
            raise FormatError(f"{where}: {count:,} {what}; at most {most:,} are allowed (limit {what!r})")

    def check_bytes(self, size: int, where: object, what: str = "it takes") -> None:
        """Refuse what would take more memory than allowed."""
        if size > self.bytes:
            raise FormatError(
                f"{where}: {what} {-(-size // MEGABYTE):,} MB; at most {self.megabytes:,} are allowed "
                "(limit 'megabytes')"
            )

    def unpacked(self, size: int, rule: tuple[int, int]) -> int:
        """Bytes to which a compressed file of ``size`` bytes may unpack."""
        least, times = rule
        return min(self.bytes, max(least, times * size))


def file_size(path: Path, limits: Limits) -> int:
    """The size of a regular file that is there, not empty, and within the limits."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if not stat.S_ISREG(status.st_mode):
        raise FormatError(f"{path}: not a file" + (", but a folder" if stat.S_ISDIR(status.st_mode) else ""))
    if status.st_size == 0:
        raise FormatError(f"{path}: the file is empty")
    limits.check_bytes(status.st_size, path, "the file has")
    return status.st_size


def shown(value: object, length: int = 60) -> str:
    """A value for a message, however long it is."""
    text = repr(value if not isinstance(value, str) else value[: length + 1])
    return text if len(text) <= length + 2 else text[:length] + "…"
