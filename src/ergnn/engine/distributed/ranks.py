"""The rank of this process, and its process group."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType

import torch
import torch.distributed as dist

from ergnn.config.errors import ErgnnError, InputError

TIMEOUT = 600.0
"""Seconds after which an unresponsive rank counts as lost (a killed one is detected at once)."""
LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out", "timed out", "timeout")
"""Messages of gloo when another rank is lost."""


class RanksError(ErgnnError, RuntimeError):
    """Ranks were lost, or disagree."""


@dataclass(frozen=True)
class Ranks:
    """This process within its process group.

    Args:
        rank: rank of this process, from 0; only rank 0 prints and writes.
        size: number of ranks.
        device: device of this rank.
    """

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        return self.rank == 0


_current: Ranks | None = None
_failed: list[object] = []
"""Process groups of failed runs, kept until this process ends. The traceback of the error refers to the reducer of
DistributedDataParallel, which would destroy its group while it holds the interpreter lock; the thread of the group may
wait for that lock: a deadlock."""


def current_ranks() -> Ranks | None:
    """Return the process group that this process has joined; None for a single process."""
    return _current


def launched() -> bool:
    """Return whether ``torchrun`` (or an equivalent launcher) started this process as one of several."""
    return _number("WORLD_SIZE", 1) > 1


def launched_first() -> bool:
    """Return whether this process is the one that prints and writes."""
    return _number("RANK", 0) == 0


@contextmanager
def joined(device: str = "cpu", timeout: float = TIMEOUT) -> Iterator[Ranks | None]:
    """Context manager that joins the launched process group; yields None for a single process.

    If a rank is lost or unresponsive, all others raise a :class:`RanksError`.

    Args:
        device: ``cpu``, or ``cuda`` to assign the GPUs of a machine to its ranks in turn.
        timeout: seconds to wait for an unresponsive rank.
    """
    global _current
    if not launched():
        yield None
        return
    if _current is not None:
        raise InputError("this process is already a rank; a process group can be joined only once")
    rank, size = _number("RANK"), _number("WORLD_SIZE")
    own, backend = _place(device)
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise InputError(f"WORLD_SIZE is {size}, but {name} is not in the environment; start with torchrun")
    with _lost(rank, size), _stopped(rank, size):
        dist.init_process_group(backend, rank=rank, world_size=size, timeout=timedelta(seconds=timeout))
        _current = Ranks(rank, size, own)
        try:
            yield _current
        except BaseException:
            _failed.append(dist.group.WORLD)
            raise
        finally:
            _current = None
            dist.destroy_process_group()


def _place(device: str) -> tuple[torch.device, str]:
    """Return the device and backend of this rank: NCCL if each rank has its own GPU, otherwise gloo."""
    wanted = torch.device(device)
    if wanted.type != "cuda":
        return wanted, "gloo"
    if wanted.index is not None:
        raise InputError(f"device is {device!r}; the GPUs of a machine are assigned to its ranks in turn: use cuda")
    count = torch.cuda.device_count()
    if count == 0:
        raise InputError("device is 'cuda', but this machine has no GPU; use cpu")
    own = torch.device("cuda", _number("LOCAL_RANK", 0) % count)
    torch.cuda.set_device(own)
    return own, "nccl" if _number("LOCAL_WORLD_SIZE", 1) <= count and dist.is_nccl_available() else "gloo"


@contextmanager
def _lost(rank: int, size: int) -> Iterator[None]:
    """Convert connection errors to a :class:`RanksError`."""
    try:
        yield
    except RuntimeError as error:
        text = " ".join(str(error).split())
        reason = next((words for words in LOST if words in text), None)
        if isinstance(error, ErgnnError) or not (isinstance(error, dist.DistError) or reason):
            raise
        why = reason or text[:200]
        raise RanksError(f"rank {rank} of {size}: another rank is lost or does not respond ({why})") from error


@contextmanager
def _stopped(rank: int, size: int) -> Iterator[None]:
    """torchrun stops the other ranks when it loses one: raise an error, so that they report the reason."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise RanksError(f"rank {rank} of {size} was terminated, as happens when another rank is lost")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _number(name: str, default: int | None = None) -> int:
    text = os.environ.get(name, "" if default is None else str(default))
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"{name} is {text!r} in the environment; torchrun sets it to a number (RANK, WORLD_SIZE, MASTER_ADDR, "
            "MASTER_PORT)"
        ) from None
