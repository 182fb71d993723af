"""``ergnn verify``: check a certificate of deletion."""

from __future__ import annotations

import argparse
from typing import Any

from ergnn.cli.folder_options import use_threads
from ergnn.cli.options import add_threads


def add(commands: Any) -> None:
    text = "check a certificate of `ergnn forget --purge --certificate` again"
    parser = commands.add_parser("verify", help=text)
    parser.set_defaults(command=verify_command)
    parser.add_argument("certificate", metavar="FILE.json", help="the certificate")
    parser.add_argument("folder", metavar="DIR", help="the learner's folder")
    add_threads(parser)


def verify_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder

    use_threads(args)
    statements = LearnerFolder(args.folder).verify(args.certificate)
    for statement, wrong in statements.items():
        print(f"{'ok' if wrong is None else 'WRONG'}: {statement}" + ("" if wrong is None else f"; {wrong}"))
    return 2 if any(statements.values()) else 0
