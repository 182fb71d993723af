"""A small file system that can be filled."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(place: Path, size: int) -> Iterator[Path]:
    """A file system of some bytes; skips the test where mounting one is not permitted."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount on this machine")
    if mounted.returncode:
        pytest.skip(f"a file system cannot be mounted here ({mounted.stderr.strip()})")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(place: Path, leave: int = 0) -> Path:
    """Take all the room there is, to the last byte, and then give some bytes back."""
    filler = place / "filler"
    with open(filler, "wb", buffering=0) as file:
        for chunk in (4096, 1):
            try:
                while file.write(b"x" * chunk):
                    pass
            except OSError:
                continue
        file.truncate(file.tell() - leave)
    return filler
