"""Run configurations (``config``), their execution (``run``) and results (``result``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ergnn.lazy import lazy_names

if TYPE_CHECKING:
    from ergnn.config import PROTOCOLS
    from ergnn.experiments.config import RunConfig, read_config
    from ergnn.experiments.result import RunResult, SeedResult

__all__ = ["PROTOCOLS", "RunConfig", "RunResult", "SeedResult", "read_config"]

__getattr__ = lazy_names(
    __name__,
    {
        "ergnn.config": ("PROTOCOLS",),
        "ergnn.experiments.config": ("RunConfig", "read_config"),
        "ergnn.experiments.result": ("RunResult", "SeedResult"),
    },
)
