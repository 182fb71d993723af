"""``ergnn init``: make a folder for a learner."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from ergnn.commands.folder_options import add_command, quoted
from ergnn.commands.options import key_values
from ergnn.registry import argument_texts

REPLAY: dict[str, tuple[str, Any, str]] = {
    "selector": ("NAME", str, "how nodes to remember are chosen (default: mf*); `ergnn selectors` lists the ways"),
    "selector_options": ("KEY=VALUE,…", key_values, "options of the selector"),
    "per_class": ("N", int, "e, nodes to remember per class of an update (default: 50)"),
    "budget_nodes": ("N", int, "limit on the nodes that are remembered in all"),
    "budget_bytes": ("N", int, "limit on the bytes of what is remembered"),
    "replay_batch": ("N", int, "remembered nodes per epoch, in turn (default: 4 e); 0 is all of them"),
    "loss_scale": ("NAME", str, "how new and remembered nodes are weighted: sum, balanced or mean (default: sum)"),
}
"""Options of the default method; ``--method-options`` takes those of others."""


def add(commands: Any) -> None:
    from ergnn.config import LearnerConfig
    from ergnn.folder.settings import Settings

    parser = add_command(commands, "init", init_command, "make a folder for a learner whose graph grows")
    for kind in (Settings, LearnerConfig):
        texts = argument_texts(kind.__doc__ or "")
        for f in fields(kind):
            if f.name in ("learner", "head"):
                continue
            flag, text = "--" + f.name.replace("_", "-"), texts[f.name].replace("%", "%%")
            names = str(f.type).split(" | ")
            if "bool" in names:
                parser.add_argument(flag, action="store_true", default=None, help=text)
            elif f.name.endswith("_options"):
                parser.add_argument(flag, metavar="KEY=VALUE,…", type=key_values, help=text)
            else:
                default = "" if f.default is None else f" (default: {f.default})"
                convert: Any = int if "int" in names else float if "float" in names else str
                metavar = {int: "N", float: "X", str: "NAME"}[convert]
                parser.add_argument(flag, metavar=metavar, type=convert, help=text + default)
    for name, (metavar, convert, text) in REPLAY.items():
        parser.add_argument("--" + name.replace("_", "-"), metavar=metavar, type=convert, help=text)


def init_command(args: argparse.Namespace) -> int:
    from ergnn.config import LearnerConfig
    from ergnn.folder import LearnerFolder, Settings

    names = [*(f.name for f in fields(Settings)), *(f.name for f in fields(LearnerConfig)), *REPLAY]
    given = {name: getattr(args, name) for name in names if getattr(args, name, None) is not None}
    LearnerFolder.create(args.folder, Settings.from_settings(given))
    print(f"{args.folder}: a learner that knows nothing yet; `ergnn observe {quoted(args.folder)}` teaches it")
    return 0
