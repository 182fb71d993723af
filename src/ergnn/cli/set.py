"""``ergnn set``: change settings of a folder that do not change its model."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ergnn.cli.folder_options import add_command


def add(commands: Any) -> None:
    parser = add_command(commands, "set", set_command, "change settings that do not change the model, e.g. limits")
    parser.add_argument("settings", metavar="NAME=VALUE", nargs="+", help="e.g. max_nodes=20000000 or keep=3")


def set_command(args: argparse.Namespace) -> int:
    from ergnn.config.errors import InputError
    from ergnn.folder import LearnerFolder

    values = {}
    for text in args.settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{text!r} is not NAME=VALUE, e.g. max_nodes=20000000")
        try:
            values[name.replace("-", "_")] = json.loads(value)
        except ValueError:
            values[name.replace("-", "_")] = value
    settings = LearnerFolder(args.folder).set(values).settings()
    print(f"{args.folder}: " + ", ".join(f"{name} is now {settings[name]}" for name in values))
    return 0
