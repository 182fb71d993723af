"""``ergnn forget``: remove nodes, and report what still depends on them."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ergnn.cli.folder_options import add_command


def add(commands: Any) -> None:
    text = "remove nodes from the graph, the memory and the model"
    parser = add_command(commands, "forget", forget_command, text, "json", "threads")
    parser.add_argument(
        "--nodes", metavar="FILE", help="file with the ids of the nodes to remove (optional with --purge)"
    )
    parser.add_argument("--id-column", metavar="NAME", help="name of the id column (default: id)")
    parser.add_argument("--retrain", action="store_true", help="retrain on all updates without these nodes")
    parser.add_argument(
        "--purge",
        action="store_true",
        help="delete older versions and waiting updates that contain the nodes, or any that were forgotten before",
    )
    parser.add_argument(
        "--certificate", metavar="FILE.json", help="after a purge, search all files, check the model, and certify both"
    )


def forget_command(args: argparse.Namespace) -> int:
    from ergnn.config.errors import InputError
    from ergnn.data.tables import Columns, read_nodes
    from ergnn.folder import LearnerFolder

    folder = LearnerFolder(args.folder)
    ids: list[str] = []
    if args.nodes:
        columns = Columns(id=args.id_column, features=[])
        ids = list(read_nodes(args.nodes, columns=columns, limits=folder.settings.limits).ids)
    elif not args.purge:
        raise InputError("no nodes are given; use --nodes, or --purge for nodes that were forgotten before")
    report = folder.forget(ids, retrain=args.retrain, purge=args.purge, certificate=args.certificate)
    print(json.dumps(report, ensure_ascii=False) if args.json else as_text(report))
    return 0


def as_text(report: dict[str, Any]) -> str:
    """Describe what was removed, and what remains."""
    lines = [f"removed {report['nodes']:,} nodes and {report['edges']:,} edges (each way counted)"]
    if "purged" in report:
        lines.append(f"nothing is left of {report['purged']:,} forgotten nodes in any file of the folder")
        if report["skipped"]:
            lines.append(f"{report['skipped']:,} of the ids were not in the graph")
    if not report["nodes"]:
        return "\n".join(lines)
    if report["exact"]:
        lines += [
            f"the model of version {report['version']} no longer depends on them: it was solved again from the "
            "remaining nodes, edges and labels",
            "to verify, compare `ergnn predict` with a new folder that observes the same files without these nodes, "
            "with the same split column (without one, other nodes are held out)",
        ]
        return "\n".join(lines + _older(report))
    if report["remembered"]:
        lines.append(
            f"{report['remembered']:,} of them were in the replay memory; replaced by {len(report['replaced']):,}:"
        )
        lines += [f"  {name} ({label}, update {update})" for name, label, update in report["replaced"][:20]]
    if report["parameters_depend"]:
        updates = ", ".join(map(str, report["trained_in"]))
        lines.append(
            f"the model's parameters were trained on them in update {updates}; use --retrain to train without them"
        )
    else:
        lines.append("the model's parameters were not trained on their labels")
    if report["edges"] and not report["retrained"]:
        lines.append("their features may have influenced the parameters through neighbors in the training set")
    return "\n".join(lines + _older(report))


def _older(report: dict[str, Any]) -> list[str]:
    older = ", ".join(map(str, report["older_versions"]))
    return (
        [f"older versions ({older}) still contain them; `ergnn forget --purge` deletes those versions"] if older else []
    )
