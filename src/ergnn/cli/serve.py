"""``ergnn serve``: answer other programs."""

from __future__ import annotations

import argparse
import os
from typing import Any

from ergnn.cli.folder_options import add_command, use_threads
from ergnn.cli.options import add_threads

TOKEN = "ERGNN_TOKEN"


def add(commands: Any) -> None:
    parser = add_command(commands, "serve", serve_command, "serve predictions and take updates over HTTP")
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (default: 127.0.0.1; others need a token)")
    parser.add_argument("--port", metavar="N", type=int, default=8000, help="port to bind (default: 8000; 0: any)")
    parser.add_argument(
        "--token-file", metavar="FILE", help=f"file with the token that requests must bring (default: ${TOKEN}, if set)"
    )
    limits = parser.add_argument_group("limits on requests")
    for name, kind, text in (
        ("predict-rows", int, "ids, nodes and edges of a prediction, each"),
        ("update-rows", int, "nodes and edges of an update, each"),
        ("predict-megabytes", int, "size of any body but an update"),
        ("update-megabytes", int, "size of an update, also uncompressed"),
        ("features", int, "features per node"),
        ("connections", int, "open connections"),
        ("concurrent", int, "requests that are handled at the same time"),
        ("queued", int, "updates that wait to be learned"),
        ("seconds", float, "time for sending a request and answering it"),
    ):
        limits.add_argument(f"--max-{name}", metavar="N", type=kind, help=text)
    add_threads(parser)


def serve_command(args: argparse.Namespace) -> int:
    from ergnn.config.lazy import extra

    for module in ("fastapi", "uvicorn", "prometheus_client", "python_multipart"):
        extra(module, "serve", "ergnn serve")
    from pathlib import Path

    from ergnn.serve.limits import ServeLimits
    from ergnn.serve.server import serve

    use_threads(args)
    names = {name: getattr(args, f"max_{name}") for name in ServeLimits.__annotations__}
    limits = ServeLimits(**{name: value for name, value in names.items() if value is not None})
    return serve(Path(args.folder), args.host, args.port, read_token(args.token_file), limits, args.plugins)


def read_token(path: str | None) -> str | None:
    """The token of a file, or of the environment; None without either."""
    from ergnn.config.errors import InputError

    if path is None:
        return os.environ.get(TOKEN) or None
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--token-file {path}: cannot be read ({error})") from None
    if not token:
        raise InputError(f"--token-file {path}: is empty")
    return token
