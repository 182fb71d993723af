"""``ergnn rollback``: make an older version the current one."""

from __future__ import annotations

import argparse
from typing import Any

from ergnn.commands.folder_options import add_command


def add(commands: Any) -> None:
    parser = add_command(commands, "rollback", rollback_command, "go back to an older version that is kept")
    parser.add_argument("--to", metavar="N", type=int, help="the version (default: the one before)")


def rollback_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder

    print(f"{args.folder}: version {LearnerFolder(args.folder).rollback(args.to)} is the current one")
    return 0
