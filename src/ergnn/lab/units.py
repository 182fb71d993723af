"""Units of work: some members of a configuration, computed and stored together."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ergnn.config.errors import ErgnnError
from ergnn.lab.config import RunConfig
from ergnn.lab.keys import member_key
from ergnn.lab.result import Member, SeedResult
from ergnn.lab.run import BATCH, StreamCache, members_of, run_members
from ergnn.lab.store import Origin, RunStore

STREAMS = StreamCache()
"""The streams of the last unit: many units have the same."""


@dataclass(frozen=True)
class Unit:
    """Some members of a resolved configuration, computed and stored together."""

    config: RunConfig
    members: Sequence[Member]


@dataclass(frozen=True)
class Outcome:
    """The results of a unit and their origin; ``error`` is empty on success."""

    unit: Unit
    seconds: float
    error: str = ""
    results: Sequence[SeedResult] = ()
    origin: Origin | None = None


def units_of(store: RunStore, configs: Sequence[RunConfig], batch: int = BATCH) -> list[Unit]:
    """Return the unfinished members in fixed batches, each member once.

    Batches are formed before finished members are removed, so that a resumed program uses the same batches as an
    uninterrupted one.
    """
    units: list[Unit] = []
    planned: set[str] = set()
    for config in configs:
        absent = set(store.missing(config))
        members = members_of(config)
        for start in range(0, len(members), batch):
            keys = {member_key(config, *member): member for member in members[start : start + batch]}
            unfinished = [member for key, member in keys.items() if member in absent and key not in planned]
            planned |= keys.keys()
            if unfinished:
                units.append(Unit(config, unfinished))
    return units


def compute(unit: Unit) -> Outcome:
    """Run the members of a unit together in this process; an error becomes part of the result.

    If the memory of a GPU does not suffice, the members are run in smaller batches.
    """
    start, batch = time.perf_counter(), len(unit.members)
    results: list[SeedResult] = []
    try:
        while len(results) < len(unit.members):
            left = unit.members[len(results) :]
            try:
                for finished in run_members(unit.config, left, batch=batch, cache=STREAMS):
                    results += finished
            except torch.OutOfMemoryError:
                if batch == 1:
                    raise
                batch = (batch + 1) // 2
            _free_memory()  # the error, whose traceback holds tensors, is gone
    except (ErgnnError, ImportError) as error:
        return Outcome(unit, time.perf_counter() - start, str(error))
    except Exception as error:  # an error of one row must not stop the others
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # after a fault of the GPU, this ends the process and shows both errors
        return Outcome(unit, time.perf_counter() - start, f"{type(error).__name__}: {error}")
    finally:
        _free_memory()
    return Outcome(unit, time.perf_counter() - start, "", results, Origin.here(str(unit.config.learner.device)))


def _free_memory() -> None:
    """Return cached memory of a GPU, which neither other processes nor new recordings of steps can use."""
    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()
