"""Which code gave a result, and on what machine."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ergnn import __version__


@cache
def code_version() -> str:
    """The package's version, and the commit where it runs from a checkout."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__}+{described.stdout.strip()}"


@cache
def machine_facts(device: str = "cpu") -> dict[str, Any]:
    """What a reader of times and memory needs to know."""
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
