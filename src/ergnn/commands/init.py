"""``ergnn init``: make a folder for a learner."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from ergnn.commands.folder_options import add_command
from ergnn.commands.options import key_values
from ergnn.registry import argument_texts


def add(commands: Any) -> None:
    from ergnn.folder.settings import Settings

    parser = add_command(commands, "init", init_command, "make a folder for a learner whose graph grows")
    texts = argument_texts(Settings.__doc__ or "")
    parser.add_argument("--features", metavar="N|auto", default="auto", help=f"{texts['features']} (default: auto)")
    for f in fields(Settings):
        flag, text = "--" + f.name.replace("_", "-"), texts[f.name].replace("%", "%%")
        kind = str(f.type).removesuffix(" | None")
        if f.name == "features":
            continue
        if kind == "bool":
            parser.add_argument(flag, action="store_true", default=None, help=text)
        elif f.name.endswith("_options"):
            parser.add_argument(flag, metavar="KEY=VALUE,…", type=key_values, help=text)
        else:
            default = "" if f.default is None else f" (default: {f.default})"
            metavar = {"int": "N", "float": "X", "str": "NAME"}[kind]
            convert = {"int": int, "float": float, "str": str}[kind]
            parser.add_argument(flag, metavar=metavar, type=convert, help=text + default)


def init_command(args: argparse.Namespace) -> int:
    from ergnn.errors import InputError
    from ergnn.folder import LearnerFolder, Settings

    given = {f.name: getattr(args, f.name) for f in fields(Settings) if getattr(args, f.name) is not None}
    try:
        features = None if args.features == "auto" else int(args.features)
    except ValueError:
        raise InputError(f"features is {args.features!r}; a whole number is needed, or auto") from None
    LearnerFolder.create(args.folder, Settings(**{**given, "features": features}))
    print(f"{args.folder}: a learner that knows nothing yet; `ergnn observe {args.folder}` teaches it")
    return 0
