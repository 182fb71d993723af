"""The limits of a service."""

from __future__ import annotations

from dataclasses import dataclass

from ergnn.config.errors import InputError
from ergnn.config.limits import Limits


@dataclass(frozen=True)
class ServeLimits:
    """Limits on requests.

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
        for name, value in vars(self).items():
            if value <= 0:
                raise InputError(f"the limit {name!r} is {value}; it must be above 0")

    @property
    def tables(self) -> Limits:
        """Limits on the tables of an update."""
        return Limits(self.update_rows, self.update_rows, self.features, self.update_megabytes)
