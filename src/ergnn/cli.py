"""The command line: parse, call, print. Nothing here imports torch before a command runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ergnn import __version__
from ergnn.commands import (
    evaluate,
    export,
    forget,
    init,
    inspect,
    lists,
    observe,
    predict,
    report,
    reproduce,
    rollback,
    run,
    runs,
)
from ergnn.errors import ErgnnError

COMMANDS = (
    *(run, lists, reproduce, runs, report),
    *(init, observe, predict, evaluate, inspect, forget, export, rollback),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 is success, 2 is bad input."""
    args = make_parser().parse_args(argv)
    try:
        return int(args.command(args))
    except ErgnnError as error:
        print(f"ergnn: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        hint = args.on_interrupt(args) if hasattr(args, "on_interrupt") else ""
        print("ergnn: interrupted" + (f"; {hint}" if hint else ""), file=sys.stderr)
        return 130


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="ergnn", allow_abbrev=False, description="Continual learning for graph neural networks."
    )
    parser.add_argument("--version", action="version", version=f"ergnn {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    return parser
