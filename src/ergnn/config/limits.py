"""Maximum sizes of files, checked before memory is allocated, and limits on requests."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ergnn.config.errors import FormatError, InputError, check_between

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Maximum sizes of a file.

    Args:
        nodes: nodes per file.
        edges: edges per file.
        features: features per node.
        megabytes: size of the uncompressed file, and of the arrays that are read from it.
    """

    nodes: int = 10_000_000
    edges: int = 200_000_000
    features: int = 1_000_000
    megabytes: int = 4096

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"the limit on {name} is {value!r}; an integer of at least 1 is required")

    @property
    def bytes(self) -> int:
        return self.megabytes * MEGABYTE

    def check(self, what: str, count: int, where: object) -> None:
        """Refuse more than the limit on ``what``: ``nodes``, ``edges`` or ``features``."""
        most = getattr(self, what)
        if count > most:
            raise FormatError(f"{where}: {count:,} {what}; at most {most:,} are allowed (limit {what!r})")

    def check_bytes(self, size: int, where: object, what: str = "it takes") -> None:
        """Refuse more memory than allowed."""
        if size > self.bytes:
            raise FormatError(
                f"{where}: {what} {-(-size // MEGABYTE):,} MB; at most {self.megabytes:,} are allowed "
                "(limit 'megabytes')"
            )

    def check_ratio(self, size: int, packed: int, floor: int, ratio: int, where: object) -> None:
        """Refuse compressed content of ``size`` bytes beyond ``floor`` MB and ``ratio`` times the ``packed`` file."""
        self.check_bytes(size, where, "its uncompressed content takes")
        if size > max(floor * MEGABYTE, ratio * packed):
            raise FormatError(
                f"{where}: expands to {-(-size // MEGABYTE):,} MB or more, from a file of {packed:,} bytes; at most "
                f"{floor} MB or {ratio} times the file are allowed"
            )


@dataclass(frozen=True)
class ServeLimits:
    """Limits on requests of ``ergnn serve``.

    Args:
        predict_rows: maximum number of ids, of nodes and of edges of a prediction.
        update_rows: maximum number of nodes and of edges of an update.
        predict_megabytes: maximum size of any body except updates.
        update_megabytes: maximum size of an update, also uncompressed.
        features: maximum number of features per node.
        connections: maximum number of open connections; beyond it, the one that has been idle for longest is closed.
        concurrent: maximum number of requests handled at the same time.
        queued: maximum number of queued updates.
        seconds: time limit for receiving the header of a request, and for its body and the response.
    """

    predict_rows: int = 10_000
    update_rows: int = 1_000_000
    predict_megabytes: int = 4
    update_megabytes: int = 64
    features: int = 100_000
    connections: int = 1000
    concurrent: int = 256
    queued: int = 100
    seconds: float = 30.0

    def __post_init__(self) -> None:
        check_between(0, inf, **{f"max_{name}": value for name, value in vars(self).items()})

    @property
    def tables(self) -> Limits:
        """Limits on the tables of an update."""
        return Limits(self.update_rows, self.update_rows, self.features, self.update_megabytes)
