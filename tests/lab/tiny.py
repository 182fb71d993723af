"""A grid that runs in seconds; as a script: OUT JOBS."""

import multiprocessing
import sys
from collections.abc import Sequence
from dataclasses import replace

from ergnn.lab.engines import GridRunner, LocalEngine
from ergnn.lab.grid import Experiment, GridRow
from ergnn.lab.reproduce import GridCell, Options, reproduce, write_results
from ergnn.lab.result import SeedResult
from ergnn.lab.store import RunStore

ROWS = (
    GridRow("GAT", {"backbone": "gat", "method": "finetune"}),
    GridRow("ER-GAT Random", {"backbone": "gat", "selector": "random"}),
    GridRow("ER-GAT MF", {"backbone": "gat", "selector": "mf"}),
    GridRow("ER-GAT IM, test", {"backbone": "gat", "selector": "im", "selector_options": {"target": "test"}}),
    GridRow("ER-GAT Nobody", {"backbone": "gat", "selector": "nobody"}),
    GridRow("joint", {"backbone": "gat", "method": "joint"}, block="bounds"),
)
TINY = Experiment(
    "tiny", "Tiny", ROWS, datasets=("cora", "citeseer"), common={"epochs": 1}, baselines=("ER-GAT Random",)
)
OPTIONS = Options(seeds=2, class_orders=2)


def with_runs(cell: GridCell, results: Sequence[SeedResult]) -> GridCell:
    """The cell with these results as its finished runs."""
    with RunStore(":memory:") as store:
        store.put_all(cell.config, results)
        return replace(cell, runs=list(store.finished(cell.config).values()))


def run_tiny(out: str, jobs: int = 1, resume: bool = False, options: Options = OPTIONS) -> GridRunner:
    def tell(_: object) -> None:
        print(" ".join(str(child.pid) for child in multiprocessing.active_children()), flush=True)

    runner = GridRunner(out, resume=resume, engine=LocalEngine(jobs), on_done=tell)
    write_results(reproduce([TINY], options, runner), [TINY], options, runner, command="ergnn reproduce tiny")
    return runner


if __name__ == "__main__":
    run_tiny(sys.argv[1], int(sys.argv[2]))
