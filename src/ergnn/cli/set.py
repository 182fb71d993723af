"""``ergnn set``: change settings of a folder that do not change its model."""

from __future__ import annotations

import argparse
from typing import Any

from ergnn.cli.folder_options import add_command
from ergnn.cli.options import key_values


def add(commands: Any) -> None:
    parser = add_command(commands, "set", set_command, "change settings that do not change the model, e.g. limits")
    parser.add_argument(
        "settings", metavar="NAME=VALUE", nargs="+", type=key_values, help="e.g. max_nodes=20000000 or keep=3"
    )


def set_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder

    values = {name: value for given in args.settings for name, value in given.items()}
    settings = LearnerFolder(args.folder).set(values).settings()
    print(f"{args.folder}: " + ", ".join(f"{name} is now {settings[name]}" for name in values))
    return 0
