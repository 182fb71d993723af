"""Connections: how many are open, and how long each may take.

A client may open connections and send nothing, or half a header. Such a connection is closed when its time is over, or
earlier, the oldest first, when another one needs its place.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import Any

LOG = logging.getLogger("ergnn.serve")
RESERVED = 64
"""Descriptors for files, the database and the writer."""
FEWEST = 8
ACCEPTS = 16
"""Connections that are accepted in one turn of the event loop; those that are closed for them take a turn to close."""
SWEEP = 1.0
"""Seconds between checks of the time."""


class Connections:
    """The open connections of a server.

    Args:
        most: maximum number; fewer if the process may not open as many files.
        seconds: time to send the header of a request; a request with its response may take twice as long.
    """

    def __init__(self, most: int, seconds: float) -> None:
        import resource  # unavailable on Windows

        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        unlimited = files == resource.RLIM_INFINITY
        self.most = most if unlimited else max(FEWEST, min(most, files - RESERVED))
        self.seconds, self._warned = seconds, False
        self._open: dict[Any, tuple[Any, float]] = {}
        self._arriving = self._accepted = 0

    def accept(self, listener: Listener) -> tuple[socket.socket, Any]:
        """Accept a connection; ``BlockingIOError`` if there is none, or no room in this turn of the event loop."""
        if self._accepted >= ACCEPTS:
            raise BlockingIOError
        try:
            connection, address = listener.accept_any()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM) or not self._close_idle():
                raise
            raise BlockingIOError from None
        if not self._accepted:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._accepted += 1
        if len(self._open) + self._arriving >= self.most and not self._close_idle():
            connection.close()
            raise BlockingIOError
        self._arriving += 1
        return connection, address

    def _next_turn(self) -> None:
        self._accepted = 0

    def _close_idle(self) -> bool:
        """Close the connection that has been idle for longest."""
        self._warn()
        idle = [
            (since, id(protocol), protocol) for protocol, (_, since) in self._open.items() if not _is_busy(protocol)
        ]
        if idle:
            protocol = min(idle)[2]
            del self._open[protocol]
            protocol.transport.abort()
        return bool(idle)

    def _warn(self) -> None:
        if not self._warned:
            LOG.warning("%d connections are open, at most %d may be: idle ones are closed", len(self._open), self.most)
        self._warned = True

    def opened(self, protocol: Any) -> None:
        self._arriving = max(0, self._arriving - 1)
        if not self._open:
            asyncio.get_running_loop().call_later(SWEEP, self._sweep)
        self._open[protocol] = (_state(protocol), asyncio.get_running_loop().time())

    def closed(self, protocol: Any) -> None:
        self._open.pop(protocol, None)

    def _sweep(self) -> None:
        """Close connections whose time is over."""
        loop = asyncio.get_running_loop()
        for protocol, (state, since) in list(self._open.items()):
            if _state(protocol) != state:
                self._open[protocol] = (_state(protocol), loop.time())
            elif loop.time() - since > self.seconds * (2 if _is_busy(protocol) else 1):
                protocol.transport.abort()
        self._warned = self._warned and 2 * len(self._open) > self.most
        if self._open:
            loop.call_later(SWEEP, self._sweep)


def _is_busy(protocol: Any) -> bool:
    return protocol.cycle is not None and not protocol.cycle.response_complete


def _state(protocol: Any) -> tuple[int, bool]:
    """Changes whenever a request begins or its response ends."""
    return id(protocol.cycle), _is_busy(protocol)


class Listener(socket.socket):
    """A listening socket that leaves it to ``connections`` whether a connection is accepted."""

    connections: Connections

    def accept(self) -> tuple[socket.socket, Any]:
        return self.connections.accept(self)

    def accept_any(self) -> tuple[socket.socket, Any]:
        return super().accept()


def limited_protocol(connections: Connections) -> type:
    """The HTTP protocol of uvicorn, whose instances are counted by ``connections``."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class LimitedProtocol(AutoHTTPProtocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            connections.opened(self)

        def connection_lost(self, exc: Exception | None) -> None:
            connections.closed(self)
            super().connection_lost(exc)

    return LimitedProtocol
