"""Configurations, and what comes of running them."""

from ergnn.experiments.config import PROTOCOLS, RunConfig, read_config
from ergnn.experiments.run import run

__all__ = ["PROTOCOLS", "RunConfig", "read_config", "run"]
