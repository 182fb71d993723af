"""``ergnn rollback``: make an older version the current one."""

from __future__ import annotations

import argparse
from typing import Any

from ergnn.cli.folder_options import add_command


def add(commands: Any) -> None:
    parser = add_command(commands, "rollback", rollback_command, "restore an older version")
    parser.add_argument("--to", metavar="N", type=int, help="version to restore (default: the previous one)")


def rollback_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder

    print(f"{args.folder}: the current version is now {LearnerFolder(args.folder).rollback(args.to)}")
    return 0
