"""The command line. Torch is imported only when a command runs."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from ergnn import __version__
from ergnn.cli.arguments import add_commands
from ergnn.cli.options import CommandParser
from ergnn.config.errors import ErgnnError, check_choice
from ergnn.config.imports import import_plugin


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return 0 on success and 2 on invalid input."""
    words = sys.argv[1:] if argv is None else list(argv)
    args = argparse.Namespace(hint="")
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch asks for pages of 2 MB: zeroing large tensors is faster
    try:
        import_plugins(words)  # before the command line is parsed: their methods add options
        args = make_parser(words).parse_args(words)
        module, _, function = args.command.partition(".")
        if argv is None:  # nothing else runs in this process
            gc.disable()
        command = getattr(import_module(f"ergnn.cli.{module}"), function)
        if argv is None:  # imports stay until the end: do not search them for garbage, which takes half a second
            gc.freeze()
            gc.enable()
        return int(command(args) or 0)
    except ErgnnError as error:
        print(f"ergnn: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("ergnn: interrupted" + (f"; {args.hint}" if args.hint else ""), file=sys.stderr)
        return 130


def make_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Build the parser of all commands; the first of the given words must be one of them."""
    parser = CommandParser(prog="ergnn", description="Continual learning for graph neural networks.")
    parser.add_argument("--version", action="version", version=f"ergnn {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=CommandParser)
    add_commands(commands)
    if words and not words[0].startswith("-"):
        check_choice("command", words[0], commands.choices)
    for command_parser in commands.choices.values():
        add_import(command_parser)
    return parser


def add_import(parser: argparse.ArgumentParser) -> None:
    text = "import a plug-in file or module first (may be repeated)"
    parser.add_argument("--import", dest="plugins", metavar="FILE.py|MODULE", action="append", default=[], help=text)


def import_plugins(words: Sequence[str]) -> None:
    """Import the plug-ins named by ``--import`` anywhere on the command line."""
    finder = argparse.ArgumentParser(prog="ergnn", add_help=False, allow_abbrev=False)
    add_import(finder)
    for name in finder.parse_known_args(words)[0].plugins:
        import_plugin(name)
