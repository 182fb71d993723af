"""Run the units that are missing in a store, with an engine, and store them as they finish.

Only this module writes the results of engines, so a unit that was computed twice (after a worker was lost) is stored
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ergnn.config.errors import ErgnnError, InputError
from ergnn.lab.config import RunConfig, member_key
from ergnn.lab.engines import Engine, LocalEngine, Outcome, Unit
from ergnn.lab.result import StoredRun
from ergnn.lab.run import BATCH, members_of
from ergnn.lab.store import RunStore


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


class GridRunner:
    """Runs configurations into the store of an output folder, as far as they are missing there.

    Args:
        out: folder, which is created.
        store: another file, or the URL of a server, instead of ``runs.sqlite``.
        resume: continue with a store that has runs; otherwise it is an error.
        engine: computes the units; by default this process.
        batch: number of members that are trained together.
        run: False to use stored runs only.
        on_plan: called with the name of a stage and the number of units to run.
        on_done: called with each finished unit.

    Attributes:
        outcomes: of all units that were run.
    """

    def __init__(
        self,
        out: str | Path,
        store: str | None = None,
        resume: bool = False,
        *,
        engine: Engine | None = None,
        batch: int = BATCH,
        run: bool = True,
        on_plan: Callable[[str, int], None] | None = None,
        on_done: Callable[[Outcome], None] | None = None,
    ) -> None:
        self.out, self.engine, self.batch, self.run = Path(out), engine, batch, run
        self.on_plan, self.on_done = on_plan, on_done
        self.outcomes: list[Outcome] = []
        self.out.mkdir(parents=True, exist_ok=True)
        self.store = str(self.out / "runs.sqlite") if store is None else store
        with RunStore(self.store) as opened:
            if len(opened) and run and not resume:
                raise InputError(
                    f"{opened.path} contains {len(opened)} finished runs; use --resume to continue, or another "
                    f"{'--out' if store is None else '--store'} to start again"
                )

    @property
    def failed(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.error]

    def __call__(
        self, stage: str, configs: Sequence[RunConfig], store: str | None = None
    ) -> list[tuple[str, list[StoredRun]]]:
        """Return the runs of each resolved configuration, or the reason why there are none, and an empty list.

        Args:
            store: another file of the output folder, instead of the store.
        """
        path = self.store if store is None else str(self.out / store)
        with RunStore(path) as opened:
            units = units_of(opened, configs, self.batch) if self.run else []
        if self.on_plan is not None:
            self.on_plan(stage, len(units))
        if units:
            self.outcomes += run_units(units, path, self.on_done, engine=self.engine)
        results: list[tuple[str, list[StoredRun]]] = []
        with RunStore(path) as opened:
            for config in configs:
                missing = len(opened.missing(config))
                error = next((outcome.error for outcome in self.failed if outcome.unit.config == config), "")
                reason = (error or f"{missing} runs are not finished") if missing else ""
                results.append((reason, [] if reason else opened.members(config)))
        return results
