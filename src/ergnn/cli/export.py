"""``ergnn export``: write the model as ONNX, a torch program or safetensors."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ergnn.cli.folder_options import add_command


def add(commands: Any) -> None:
    parser = add_command(commands, "export", export_command, "write the model (and the graph) to files")
    parser.add_argument("-o", "--out", metavar="DIR|FILE", required=True, help="write to this folder or file")
    parser.add_argument(
        "--format",
        choices=("safetensors", "onnx", "torch"),
        help="safetensors: weights and their description; onnx, torch: a program that runs without ergnn "
        "(default: by the suffix of FILE, .safetensors, .onnx or .pt2, else safetensors)",
    )
    parser.add_argument("--graph", action="store_true", help="also write the graph, as graph.npz")
    parser.add_argument("--version", metavar="N", type=int, help="export a stored version (default: the current one)")


def export_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder

    form = args.format or {".onnx": "onnx", ".pt2": "torch"}.get(Path(args.out).suffix, "safetensors")
    for path in LearnerFolder(args.folder).export(args.out, format=form, graph=args.graph, version=args.version):
        print(f"{path}: {path.stat().st_size:,} bytes")
    return 0
