"""Bind an address and serve a folder; limit how many connections are open, and how long each may take."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from ergnn.config.errors import InputError
from ergnn.config.limits import ServeLimits
from ergnn.folder import LearnerFolder
from ergnn.folder.spool import serving
from ergnn.serve.app import make_app
from ergnn.serve.guard import LOOPBACK
from ergnn.serve.service import Service

LOG = logging.getLogger("ergnn.serve")
SHORTEST_TOKEN = 16
BACKLOG = 2048
"""Connections that wait to be accepted."""
ACCEPTS = 8
"""Connections that are accepted in one turn of the event loop; those that are closed for them take some turns."""
RESERVED = 96
"""Descriptors for files, the database, the writer, and connections that are being accepted or closed."""
FEWEST = 8
SWEEP = 1.0
"""Seconds between checks of the time."""


def serve(
    root: Path, host: str, port: int, token: str | None, limits: ServeLimits, plugins: Sequence[str] = ()
) -> None:
    """Serve a folder until SIGINT or SIGTERM."""
    if not 0 <= port < 2**16:
        raise InputError(f"--port {port}: ports are 0 to {2**16 - 1}")
    if token is None and host not in LOOPBACK:
        raise InputError(
            f"--host {host}: without a token only this machine may connect (127.0.0.1); set one with --token-file or "
            "ERGNN_TOKEN"
        )
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise InputError(f"the token has {len(token)} characters; at least {SHORTEST_TOKEN} are needed")
    LearnerFolder(root)  # refuse a directory without a learner before anything is written to it
    with serving(root), _bound(host, port) as listener:
        config = uvicorn.Config(
            make_app(Service(root, limits, plugins), token),
            http=limited_protocol(Connections(limits.connections, limits.seconds)),
            loop="asyncio",
            lifespan="on",
            backlog=ACCEPTS,
            server_header=False,
            log_level="error",
            access_log=False,  # what clients send is not logged
        )
        name = f"[{host}]" if ":" in host else host
        print(f"ergnn: serving {root} at http://{name}:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(config).run([listener])


class Listener(socket.socket):
    """A socket whose connections wait in a queue of its own size, of which the event loop takes a few at a time."""

    def listen(self, backlog: int = BACKLOG) -> None:
        super().listen(BACKLOG)


def _bound(host: str, port: int) -> Listener:
    """A listening socket; an address that cannot be bound is an error of one line."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = Listener(family, kind, proto)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()  # clients may connect as soon as the address is printed
        return listener
    except OSError as error:
        raise InputError(f"--host {host} --port {port}: cannot be bound ({error})") from None


class Connections:
    """The open connections of a server.

    A client may open connections and send nothing, or half a header. Such a connection is closed when its time is over,
    or earlier, the oldest first, when another one needs its place.

    Args:
        most: maximum number; fewer if the process may not open as many files.
        seconds: time to send the header of a request; with body and response it may take three times as long.
    """

    def __init__(self, most: int, seconds: float) -> None:
        import resource  # unavailable on Windows

        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        unlimited = files == resource.RLIM_INFINITY
        self.most = most if unlimited else max(FEWEST, min(most, files - RESERVED))
        self.seconds, self._warned, self._sweeping = seconds, False, False
        self.since: dict[Any, float] = {}
        """When each connection was opened or its last response ended, in this order."""

    def begin(self, protocol: Any) -> None:
        """Count the time of a connection from now; if there are too many, close the one that is idle for longest."""
        loop = asyncio.get_running_loop()
        if not self._sweeping:
            loop.call_later(SWEEP, self._sweep)
        self._sweeping = True
        self.since.pop(protocol, None)
        self.since[protocol] = loop.time()
        if len(self.since) > self.most:
            if not self._warned:
                text = "%d connections are open, at most %d may be: idle ones are closed"
                LOG.warning(text, len(self.since), self.most)
            self._warned = True
            self._close(next(connection for connection in self.since if not _is_busy(connection)))

    def _close(self, protocol: Any) -> None:
        del self.since[protocol]
        protocol.transport.abort()

    def _sweep(self) -> None:
        """Close connections whose time is over."""
        loop = asyncio.get_running_loop()
        for protocol, since in list(self.since.items()):
            if loop.time() - since > self.seconds * (3 if _is_busy(protocol) else 1):
                self._close(protocol)
        self._warned = self._warned and 2 * len(self.since) > self.most
        self._sweeping = bool(self.since)
        if self._sweeping:
            loop.call_later(SWEEP, self._sweep)


def _is_busy(protocol: Any) -> bool:
    return protocol.cycle is not None and not protocol.cycle.response_complete


def limited_protocol(connections: Connections) -> type:
    """The HTTP protocol of uvicorn, whose instances are counted by ``connections``."""

    class LimitedProtocol(AutoHTTPProtocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            connections.begin(self)

        def on_response_complete(self) -> None:
            if not self.transport.is_closing():
                connections.begin(self)
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            connections.since.pop(self, None)
            super().connection_lost(exc)

    return LimitedProtocol
