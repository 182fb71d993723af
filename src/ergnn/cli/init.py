"""``ergnn init``: create a folder for a learner."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from typing import Any

from ergnn.cli.folder_options import add_command
from ergnn.cli.options import add_method_options, add_options, given, method_option_names, refuse_unused
from ergnn.config.learner_config import TASK_UNKNOWN
from ergnn.config.signatures import dataclass_options

FIXED = ("learner", "head")
"""Fields that are not options; the head of a folder is always ``growing``."""


def add(commands: Any) -> None:
    parser = add_command(commands, "init", init_command, "create a folder for a learner on a growing graph")
    homes = {"ergnn.folder.settings": "Settings", "ergnn.config.learner_config": "LearnerConfig"}
    own = [option for module, name in homes.items() for option in dataclass_options(module, name)]
    own = [replace(o, default=TASK_UNKNOWN[o.name]) if o.name in TASK_UNKNOWN else o for o in own]
    add_options(parser, own, FIXED)
    add_method_options(parser, {option.name for option in own})


def init_command(args: argparse.Namespace) -> int:
    from dataclasses import fields

    from ergnn.config.learner_config import LearnerConfig
    from ergnn.folder import LearnerFolder, Settings

    names = {f.name for kind in (Settings, LearnerConfig) for f in fields(kind)} | method_option_names()
    options = given(args, sorted(names))
    settings = Settings.from_settings(options)
    refuse_unused(options, settings.config)
    LearnerFolder.create(args.folder, settings)
    print(f"{args.folder}: created; add nodes, edges and labels with `ergnn observe {shlex.quote(args.folder)} …`")
    return 0
