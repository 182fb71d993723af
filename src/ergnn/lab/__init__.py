"""Run configurations (``config``), their execution (``run``) and results (``result``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ergnn.config.lazy import lazy_names

if TYPE_CHECKING:
    from ergnn.config.learner_config import PROTOCOLS
    from ergnn.lab.config import RunConfig, read_config
    from ergnn.lab.result import RunResult, SeedResult

__all__ = ["PROTOCOLS", "RunConfig", "RunResult", "SeedResult", "read_config"]

__getattr__ = lazy_names(
    __name__,
    {
        "ergnn.config.learner_config": ("PROTOCOLS",),
        "ergnn.lab.config": ("RunConfig", "read_config"),
        "ergnn.lab.result": ("RunResult", "SeedResult"),
    },
)
