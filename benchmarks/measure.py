"""Time and memory measurements."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Measurement:
    """Seconds (or MB) of ergnn and of a reference (``peer``), on one machine, in one run.

    Args:
        name: what was measured.
        ours, peer: values in ``unit``; ``peer`` is None if the reference cannot run the case.
        unit: ``s``, ``ms`` or ``MB``.
        threads: CPU threads.
        note: settings, or why the reference is missing.
        repeats: number of repeats; the values are medians.
    """

    name: str
    ours: float
    peer: float | None
    unit: str
    threads: int
    note: str = ""
    repeats: int = 1

    @property
    def ratio(self) -> float | None:
        """The reference's time (or memory) divided by ours."""
        return None if self.peer is None else self.peer / self.ours


def seconds(call: Callable[[], Any], repeats: int = 5, warm_up: int = 1) -> float:
    """Return the median wall-clock seconds of a call, after warm-up calls; synchronizes the GPU."""
    for _ in range(warm_up):
        call()
    times = []
    for _ in range(repeats):
        _wait()
        start = time.perf_counter()
        call()
        _wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def in_fresh_process(function: str, *arguments: Any) -> Any:
    """Run ``module:function(*arguments)`` in a new interpreter, to measure its peak memory; return its JSON result."""
    module, _, name = function.partition(":")
    code = (
        "import sys, json, importlib\n"
        f"f = getattr(importlib.import_module({module!r}), {name!r})\n"
        "print(json.dumps(f(*json.loads(sys.argv[1]))))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[1],  # where `benchmarks` is imported from
    )
    if done.returncode:
        raise RuntimeError(f"{function} failed in its own process:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def machine() -> dict[str, str]:
    """Return facts about this machine."""
    facts = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": _processor(),
        "cores": str(os.cpu_count()),
    }
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def as_json(measurements: list[Measurement], quick: bool = False) -> dict[str, Any]:
    rows = [{**asdict(m), "ratio": m.ratio} for m in measurements]
    return {"machine": machine(), "quick": quick, "measurements": rows}
