"""Code version and machine of a result."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from ergnn import __version__


@cache
def code_version() -> str:
    """Return the version of the package, with the commit if it runs from its own checkout."""
    package = Path(__file__).resolve().parents[1]
    try:
        if Path(_git("rev-parse", "--show-toplevel", at=package)).resolve() / "src" / "ergnn" != package:
            return __version__  # installed inside an unrelated repository
        return f"{__version__}+{_git('describe', '--always', '--dirty', at=package)}"
    except (OSError, subprocess.SubprocessError):
        return __version__


def _git(*args: str, at: Path) -> str:
    done = subprocess.run(["git", *args], cwd=at, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


@cache
def machine_facts(device: str = "cpu") -> dict[str, Any]:
    """Return facts about the machine that are needed to interpret times and memory."""
    import torch

    cuda = torch.device(device).type == "cuda"
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if cuda else "cpu",
    }
