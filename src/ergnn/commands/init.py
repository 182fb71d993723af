"""``ergnn init``: create a folder for a learner."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from ergnn.commands.folder_options import add_command
from ergnn.commands.options import add_options, given
from ergnn.signatures import dataclass_options


def add(commands: Any) -> None:
    parser = add_command(commands, "init", init_command, "create a folder for a learner whose graph grows")
    add_options(parser, dataclass_options("ergnn.folder.settings", "Settings"))


def init_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder, Settings

    names = [option.name for option in dataclass_options("ergnn.folder.settings", "Settings")]
    LearnerFolder.create(args.folder, Settings(**given(args, names)))
    print(f"{args.folder}: created; add nodes, edges and labels with `ergnn observe {shlex.quote(args.folder)} …`")
    return 0
