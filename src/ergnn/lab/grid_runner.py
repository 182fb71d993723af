"""Run the units that are missing in a store, with an engine, and store them as they finish.

Only this module writes the results of engines, so a unit that was computed twice (after a worker was lost) is stored
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from ergnn.config.errors import ErgnnError, InputError
from ergnn.lab.config import RunConfig, member_key
from ergnn.lab.engines import Engine, LocalEngine, Outcome, Unit
from ergnn.lab.result import StoredRun
from ergnn.lab.run import BATCH, members_of
from ergnn.lab.store import RunStore

STORE = "runs.sqlite"
"""File of the run store in an output folder."""


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


def run_units(
    units: Sequence[Unit],
    store_path: str,
    on_done: Callable[[Outcome], None] | None = None,
    *,
    engine: Engine | None = None,
) -> list[Outcome]:
    """Run units and store their results; a unit that fails does not stop the others.

    Args:
        store_path: file or URL of the store.
        on_done: called with each finished unit.
        engine: computes the units; by default this process.
    """
    outcomes = []
    with RunStore(store_path) as store, closing((engine or LocalEngine())(units)) as computed:
        for outcome in computed:
            error = outcome.error
            if not error:
                try:
                    store.put_all(outcome.unit.config, outcome.results, outcome.origin)
                except ErgnnError as failure:
                    error = str(failure)
            outcomes.append(replace(outcome, error=error, results=()))
            if on_done is not None:
                on_done(outcomes[-1])
    return outcomes


def open_grid(out: str | Path, store: str | None, resume: bool) -> str:
    """Create an output folder and return the path of its store; an error if that has runs and should not be resumed.

    Args:
        out: folder for ``runs.sqlite``.
        store: another file, or the URL of a server, instead of ``runs.sqlite``.
        resume: continue with an existing store.
    """
    Path(out).mkdir(parents=True, exist_ok=True)
    path = str(Path(out) / STORE) if store is None else store
    with RunStore(path) as opened:
        if len(opened) and not resume:
            raise InputError(
                f"{opened.path} contains {len(opened)} finished runs; use --resume to continue, or another "
                f"{'--out' if store is None else '--store'} to start again"
            )
    return path


@dataclass
class GridRunner:
    """Runs configurations into a store, as far as they are missing there.

    Attributes:
        store: file or URL.
        engine, on_done: see :func:`run_units`.
        batch: number of members that are trained together.
        run: False to use stored runs only.
        on_plan: called with the name of a stage and the number of units to run.
        outcomes: of all units that were run.
    """

    store: str
    engine: Engine | None = None
    batch: int = BATCH
    run: bool = True
    on_plan: Callable[[str, int], None] | None = None
    on_done: Callable[[Outcome], None] | None = None
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def failed(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.error]

    def __call__(self, stage: str, configs: Sequence[RunConfig]) -> list[list[StoredRun] | str]:
        """Return the runs of each resolved configuration, or the reason why they are unavailable."""
        with RunStore(self.store) as store:
            units = units_of(store, configs, self.batch) if self.run else []
        if self.on_plan is not None:
            self.on_plan(stage, len(units))
        if units:
            self.outcomes += run_units(units, self.store, self.on_done, engine=self.engine)
        results: list[list[StoredRun] | str] = []
        with RunStore(self.store) as store:
            for config in configs:
                missing = len(store.missing(config))
                error = next((outcome.error for outcome in self.failed if outcome.unit.config == config), "")
                results.append((error or f"{missing} runs are not finished") if missing else store.members(config))
        return results
