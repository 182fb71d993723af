"""One writer at a time."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ergnn.folder.files import FolderError


class BusyError(FolderError):
    """Somebody else is writing."""


@contextmanager
def writing(root: Path) -> Iterator[None]:
    """Hold the folder's lock; the system gives it back when the process ends, however it ends."""
    path = root / "lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise FolderError(f"{root}: cannot be written to ({error.strerror})") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(handle, 200, 0).decode("utf-8", "replace").strip() or "a process that gave no name"
            raise BusyError(
                f"{root}: is being written by {holder}; wait until it is done (reading goes on meanwhile)"
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        try:
            yield
        except OSError as error:
            raise FolderError(f"{root}: could not be written ({error.strerror}); it is as it was before") from None
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)
