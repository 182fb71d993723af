"""``ergnn init``, ``set``, ``rollback``, ``export`` and ``verify``: a learner's folder as a whole."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from ergnn.cli.folder_options import add_command
from ergnn.cli.options import add_options, given, key_values, refuse_unused
from ergnn.config.learner_config import TASK_UNKNOWN, LearnerConfig
from ergnn.config.registry import field_options
from ergnn.folder import settings as folder_settings

FIXED = ("learner", "head")
"""Fields that are not options of ``init``; the head of a folder is always ``growing``."""


def add(commands: Any) -> None:
    parser = add_command(commands, "init", init_command, "create a folder for a learner on a growing graph")
    options = [*field_options(folder_settings.Settings), *field_options(LearnerConfig)]
    add_options(parser, [replace(o, default=TASK_UNKNOWN.get(o.name, o.default)) for o in options], FIXED)
    parser.default_method = TASK_UNKNOWN["method"]

    text = "check a certificate of `ergnn forget --purge --certificate` again"
    parser = add_command(
        commands, "verify", verify_command, text, "threads", first={"certificate": ("FILE.json", "the certificate")}
    )
    parser = add_command(commands, "export", export_command, "write the model (and the graph) to files", "version")
    parser.add_argument("-o", "--out", metavar="DIR|FILE", required=True, help="write to this folder or file")
    parser.add_argument(
        "--format",
        choices=("safetensors", "onnx", "torch"),
        help="safetensors: weights and their description; onnx, torch: a program that runs without ergnn "
        "(default: by the suffix of FILE, .safetensors, .onnx or .pt2, else safetensors)",
    )
    parser.add_argument("--graph", action="store_true", help="also write the graph, as graph.npz")

    parser = add_command(commands, "rollback", rollback_command, "restore an older version")
    parser.add_argument("--to", metavar="N", type=int, help="version to restore (default: the previous one)")

    text = "change settings that do not change the model, e.g. limits"
    parser = add_command(commands, "set", set_command, text)
    parser.add_argument(
        "settings", metavar="NAME=VALUE", nargs="+", type=key_values, help="e.g. max_nodes=20000000 or keep=3"
    )


def init_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder

    options = given(args, {"command", "folder", "plugins"})
    settings = folder_settings.Settings.from_settings(options)
    refuse_unused(options, settings.config)
    LearnerFolder.create(args.folder, settings)
    print(f"{args.folder}: created; add nodes, edges and labels with `ergnn observe {shlex.quote(args.folder)} …`")
    return 0


def verify_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder

    statements = LearnerFolder(args.folder).verify(args.certificate)
    for statement, wrong in statements.items():
        print(f"{'ok' if wrong is None else 'WRONG'}: {statement}" + ("" if wrong is None else f"; {wrong}"))
    return 2 if any(statements.values()) else 0


def export_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder

    form = args.format or {".onnx": "onnx", ".pt2": "torch"}.get(Path(args.out).suffix, "safetensors")
    for path in LearnerFolder(args.folder).export(args.out, format=form, graph=args.graph, version=args.version):
        print(f"{path}: {path.stat().st_size:,} bytes")
    return 0


def rollback_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder

    print(f"{args.folder}: the current version is now {LearnerFolder(args.folder).rollback(args.to)}")
    return 0


def set_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder

    values = {name: value for pairs in args.settings for name, value in pairs.items()}
    settings = LearnerFolder(args.folder).set(values).settings()
    print(f"{args.folder}: " + ", ".join(f"{name} is now {settings[name]}" for name in values))
    return 0
