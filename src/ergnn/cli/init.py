"""``ergnn init``: create a folder for a learner."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from typing import Any

from ergnn.cli.folder_options import add_command
from ergnn.cli.options import add_options, given, refuse_unused
from ergnn.config.learner_config import TASK_UNKNOWN, LearnerConfig
from ergnn.config.registry import field_options
from ergnn.folder.settings import Settings

FIXED = ("learner", "head")
"""Fields that are not options; the head of a folder is always ``growing``."""


def add(commands: Any) -> None:
    parser = add_command(commands, "init", init_command, "create a folder for a learner on a growing graph")
    options = [*field_options(Settings), *field_options(LearnerConfig)]
    add_options(parser, [replace(o, default=TASK_UNKNOWN.get(o.name, o.default)) for o in options], FIXED)
    parser.default_method = TASK_UNKNOWN["method"]


def init_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder

    options = given(args, {"command", "folder", "plugins"})
    settings = Settings.from_settings(options)
    refuse_unused(options, settings.config)
    LearnerFolder.create(args.folder, settings)
    print(f"{args.folder}: created; add nodes, edges and labels with `ergnn observe {shlex.quote(args.folder)} …`")
    return 0
