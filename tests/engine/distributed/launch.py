"""Run a function on several ranks: processes connected by gloo, as started by ``torchrun``."""

import multiprocessing
import os
import pickle
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from ergnn.config.errors import ErgnnError

PRELOADED = ["ergnn.lab.run", "ergnn.lab.store", "torch_geometric.datasets"]
"""Modules that are imported once, not by each process; the last one is slow to import."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def on_ranks(function: Callable[..., Any], *arguments: Any, size: int = 2) -> list[Any]:
    """What the function gives on each rank; the message of its error as an ErgnnError; or an exit code if it died."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    port, pipes, processes = free_port(), [], []
    for rank in range(size):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_rank, args=(theirs, rank, size, port, function, arguments), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    given: list[Any] = []
    for pipe, process in zip(pipes, processes, strict=True):
        try:
            given.append(pickle.loads(pipe.recv_bytes()))
        except EOFError:
            process.join()
            given.append(process.exitcode)
        process.join()
    return given


def _rank(
    pipe: Connection, rank: int, size: int, port: int, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in own.items()}, MASTER_ADDR="127.0.0.1")
    try:
        given = function(*arguments)
    except ErgnnError as error:
        given = ErgnnError(str(error))
    pipe.send_bytes(pickle.dumps(given))  # by value: multiprocessing would share the memory of a process that ends
