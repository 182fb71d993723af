"""``ergnn datasets``, ``backbones``, ``methods`` and ``selectors``: list registered names and their options."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ergnn.config.registry import Registry

REGISTRIES = {
    "backbones": "networks",
    "methods": "continual-learning methods",
    "selectors": "selectors of nodes to replay",
}


def add(commands: Any) -> None:
    parser = commands.add_parser("datasets", help="list the data sets, their sizes, scenarios and locations")
    parser.set_defaults(command=datasets_command)
    for kind, text in REGISTRIES.items():
        parser = commands.add_parser(kind, help=f"list the {text}, or the options of one")
        parser.set_defaults(command=list_command, kind=kind)
        parser.add_argument(
            "name", metavar="NAME", nargs="?", help="list the options of this entry (default: list all entries)"
        )


def datasets_command(args: argparse.Namespace) -> int:
    from ergnn.data import DATASETS
    from ergnn.pages.table import Table

    rows = [
        [
            d.name,
            f"{d.nodes:,}",
            f"{d.features:,}",
            str(d.classes),
            f"{d.edges:,}",
            f"{d.num_tasks} × {d.classes_per_task}",
            "yes" if d.public_split else "no",
            ", ".join(d.scenarios),
            d.location(),
        ]
        for d in (DATASETS.create(name) for name in DATASETS)
    ]
    header = ["name", "nodes", "features", "classes", "edges", "tasks", "public split", "scenarios", "location"]
    print(Table(header, rows, align="lrrrrrlll").to_text())
    return 0


def list_command(args: argparse.Namespace) -> int:
    from ergnn.config.registry import REQUIRED
    from ergnn.methods import METHODS
    from ergnn.nn.backbones import BACKBONES
    from ergnn.pages.table import Table
    from ergnn.replay.selectors import SELECTORS

    registries: dict[str, Registry[Any]] = {"backbones": BACKBONES, "methods": METHODS, "selectors": SELECTORS}
    registry = registries[args.kind]
    if args.name is None:
        rows = [[name, ", ".join(registry.aliases(name)), registry.help(name)] for name in registry]
        print(Table(["name", "alias", "description"], rows, align="lll").to_text())
        return 0
    name = registry.resolve(args.name)
    print(f"{name}: {registry.help(name)}")
    rows = [
        [
            "--" + o.name.replace("_", "-") if args.kind == "methods" else o.name,
            "|".join(o.choices) if o.choices else o.type,
            "required" if o.default is REQUIRED else str(o.default),
            o.help,
        ]
        for o in registry.options(name)
    ]
    if rows:
        print("\n" + Table(["option", "type", "default", "description"], rows, align="llll").to_text())
    return 0
