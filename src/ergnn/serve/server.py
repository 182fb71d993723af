"""Bind an address and serve a folder."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from ergnn.config.errors import InputError
from ergnn.serve.connections import Connections, Listener, limited_protocol
from ergnn.serve.guard import is_loopback
from ergnn.serve.limits import ServeLimits

SHORTEST_TOKEN = 16
BACKLOG = 2048


def serve(
    root: Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    limits: ServeLimits | None = None,
    plugins: Sequence[str] = (),
) -> int:
    """Serve a folder until SIGINT or SIGTERM."""
    if not 0 <= port < 2**16:
        raise InputError(f"--port {port}: ports are 0 to {2**16 - 1}")
    if token is None and not is_loopback(host):
        raise InputError(
            f"--host {host}: without a token only this machine may connect (127.0.0.1); set one with --token-file or "
            "ERGNN_TOKEN"
        )
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise InputError(f"the token has {len(token)} characters; at least {SHORTEST_TOKEN} are needed")

    import uvicorn

    from ergnn.folder import LearnerFolder
    from ergnn.folder.spool import serving
    from ergnn.serve.app import make_app
    from ergnn.serve.service import Service

    LearnerFolder(root)  # refuse a directory without a learner before anything is written to it
    limits = limits or ServeLimits()
    connections = Connections(limits.connections, limits.seconds)
    with serving(root), _bound(host, port, connections) as listener:
        app = make_app(Service(root, limits, plugins), token)
        config = uvicorn.Config(
            app, http=limited_protocol(connections), loop="asyncio", lifespan="on", server_header=False,
            log_level="error", access_log=False,  # what clients send is not logged
        )  # fmt: skip
        name = f"[{host}]" if ":" in host else host
        print(f"ergnn: serving {root} at http://{name}:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(config).run([listener])
    return 0


def _bound(host: str, port: int, connections: Connections) -> Listener:
    """A listening socket; an address that cannot be bound is an error of one line."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = Listener(family, kind, proto)
        listener.connections = connections
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)  # clients may connect as soon as the address is printed
        return listener
    except OSError as error:
        raise InputError(f"--host {host} --port {port}: cannot be bound ({error})") from None
