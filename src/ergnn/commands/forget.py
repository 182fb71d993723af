"""``ergnn forget``: remove nodes, and say what still depends on them."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ergnn.commands.folder_options import add_command, add_threads, use_threads


def add(commands: Any) -> None:
    parser = add_command(commands, "forget", forget_command, "remove nodes from the graph and from what is remembered")
    parser.add_argument("--nodes", metavar="FILE", required=True, help="ids of the nodes")
    parser.add_argument("--id-column", metavar="NAME", help="column that holds the id (default: id)")
    parser.add_argument("--retrain", action="store_true", help="learn all updates again without them")
    parser.add_argument(
        "--purge", action="store_true", help="drop all older versions, which still hold them, and erase every trace"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_threads(parser)


def forget_command(args: argparse.Namespace) -> int:
    from ergnn.data.formats import Columns, read_nodes
    from ergnn.folder import LearnerFolder

    use_threads(args)
    folder = LearnerFolder(args.folder)
    columns = Columns(id=args.id_column, features=[])
    nodes = read_nodes(args.nodes, columns=columns, limits=folder.settings.limits)
    report = folder.forget(list(nodes.ids), retrain=args.retrain)
    if args.purge:
        folder.drop_versions()
        report["older_versions"] = []
    print(json.dumps(report, ensure_ascii=False) if args.json else as_text(report))
    return 0


def as_text(report: dict[str, Any]) -> str:
    """What was done, and what is left."""
    lines = [f"removed {report['nodes']:,} nodes and {report['edges']:,} edges (each way counted)"]
    if report["exact"]:
        lines += [
            f"nothing of them is left in the model of version {report['version']}: it was solved anew from the nodes, "
            "edges and labels that remain",
            "to check it, compare `ergnn predict` with that of a new folder that observes the same files without them",
        ]
        return "\n".join(lines + _older(report))
    if report["remembered"]:
        lines.append(
            f"{report['remembered']:,} of them were remembered; in their place came {len(report['replaced']):,}:"
        )
        lines += [f"  {name} ({label}, update {update})" for name, label, update in report["replaced"][:20]]
    if report["parameters_depend"]:
        updates = ", ".join(map(str, report["trained_in"]))
        lines.append(
            f"the model's parameters were trained on them in update {updates}; --retrain learns again without them"
        )
    else:
        lines.append("no parameter of the model was trained on their labels")
    if report["edges"] and not report["retrained"]:
        lines.append("their features may have reached the parameters through neighbors that were trained on")
    return "\n".join(lines + _older(report))


def _older(report: dict[str, Any]) -> list[str]:
    older = ", ".join(map(str, report["older_versions"]))
    return [f"older versions ({older}) still hold them; --purge drops those"] if older else []
