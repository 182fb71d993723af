"""The arguments of all commands; ``module.function`` names the function, which is imported when the command runs."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from ergnn.cli.options import CommandParser, add_options, count, key_values, option
from ergnn.config.learner_config import TASK_UNKNOWN, LearnerConfig
from ergnn.config.limits import ServeLimits
from ergnn.config.registry import field_options
from ergnn.folder.settings import Settings
from ergnn.lab.config import CompareOptions, Options, RunConfig

REGISTRIES = {"backbones": "networks", "methods": "continual-learning methods", "selectors": "selectors of nodes"}
RESULTS = ("table1", "table2", "table3", "table4", "figure2", "figure3", "class-incremental")
PUBLISHED = ("begin", "gsip", "hop-ral", "lgl", "graphkeeper", "tuned")
RUN_FILTERS = ("dataset", "backbone", "method", "selector", "protocol")
NAMED_COLUMNS = ("id", "label", "split", "source", "target", "type")
MAX_ROWS = 20
"""Number of stored nodes, of classes, and of entries of a larger confusion matrix to print."""
RESUME = "the same command with --resume continues"
FIXED = ("learner", "head")
"""Fields that are not options of ``init``; the head of a folder is always ``growing``."""


def add_commands(commands: Any) -> None:
    """Add all commands, in the order of the help."""
    for add in (_run, _lists, _grids, _runs, _demo, _folder, _observe, _predict, _scores, _why, _serve):
        add(commands)


def _add(commands: Any, name: str, function: str, text: str, hint: str = "") -> CommandParser:
    """Add a command; ``hint`` says how it continues after an interrupt."""
    parser: CommandParser = commands.add_parser(name, help=text)
    parser.set_defaults(command=function, hint=hint)
    return parser


def _run(commands: Any) -> None:
    hint = "with --checkpoint DIR, the same command resumes a run"
    parser = _add(commands, "run", "run.run_command", "learn a stream of tasks; print accuracy and forgetting", hint)
    parser.add_argument("dataset", metavar="DATASET", nargs="?", help="name of a data set (see `ergnn datasets`)")
    option(parser, "--config", "FILE.toml", "read settings from a file; command-line options override them")
    shown = parser.add_mutually_exclusive_group()
    option(shown, "--json", "", "print one JSON object instead of the table")
    option(shown, "--latex", "", "print LaTeX tables (booktabs) instead of text")
    option(parser, "--plot", "FILE", "draw the accuracy matrix (.svg; .png or .pdf where rsvg-convert is installed)")
    option(parser, "--store", "DIR|FILE|URL", "store each run, for `ergnn report`; stored runs are not repeated")
    _threads(parser, 1)
    option(parser, "--checkpoint", "DIR", "save the state of each seed after each task; resume from saved states")
    option(parser, "--download", "", "download missing data sets (ERGNN_DOWNLOAD=1)")
    option(parser, "--quiet", "", "show no progress bar")
    option(parser, "--verbose", "", "print a line per product of influence maximization")
    stream = parser.add_argument_group("stream and seeds")
    add_options(stream, field_options(RunConfig), {"dataset", "learner", "explicit"})
    add_options(parser.add_argument_group("learner"), field_options(LearnerConfig), {"seed"})
    parser.default_method = LearnerConfig.method


def _lists(commands: Any) -> None:
    _add(commands, "datasets", "lab.datasets", "list the data sets, their sizes, scenarios and locations")
    for kind, text in REGISTRIES.items():
        parser = _add(commands, kind, "lab.entries", f"list the {text}, or the options of one")
        parser.set_defaults(kind=kind)
        parser.add_argument("name", metavar="NAME", nargs="?", help="list the options of this entry")


def _grids(commands: Any) -> None:
    """Add the commands that run many configurations."""
    text = "run the paper's tables and figures, a class-incremental table, and tables published by others"
    parser = _add(commands, "reproduce", "lab.reproduce", text, RESUME)
    choices = (*RESULTS, *PUBLISHED, "all")
    parser.add_argument("result", choices=choices, metavar="|".join(choices), help="all: every result of the paper")
    _grid(parser, Options)

    parser = _add(commands, "compare", "lab.compare", "compare methods at equal memory, with equal search", RESUME)
    option(parser, "--no-run", "", "write tables of stored runs only")
    option(parser, "--batch", "N", "train N seeds together (default: 10)", type=count)
    _grid(parser, CompareOptions)


def _grid(parser: Any, settings: Any) -> None:
    """Add the settings of a command that runs many configurations into a store, and how it runs them."""
    add_options(parser, field_options(settings), ("quick", "device"))
    option(parser, "--quick", "", "use few data, seeds and epochs, for a test run of minutes")
    option(parser, "--resume", "", "skip runs that are already in the store")
    option(parser, "--device", "NAME", "device to compute on, e.g. cpu, cuda or cuda:1", "cpu")
    option(parser, "--jobs", "N", "run N processes at a time (default: one per core, at most 8)")
    option(parser, "--out", "DIR", "write results to a folder", "results")
    option(parser, "--store", "FILE|URL", "store runs in a file or postgresql://… (default: OUT/runs.sqlite)")
    option(parser, "--engine", "local|ray", "run local processes or tasks on a Ray cluster", "local")
    option(parser, "--address", "HOST:PORT", "address of the Ray cluster (default: RAY_ADDRESS, or a new one)")
    option(parser, "--task-cpus", "X", "cores per batch of runs on Ray (default: 1)")
    option(parser, "--task-gpus", "X", "GPUs per batch of runs on Ray (default: 1 with cuda, otherwise 0)")
    option(parser, "--quiet", "", "print no progress lines")


def _runs(commands: Any) -> None:
    text = "read a file, a folder with runs.sqlite, or postgresql://…"
    store = "--store", "DIR|FILE|URL", text, "results/runs.sqlite"
    parser = _add(commands, "runs", "lab.runs", "list, filter and export the runs of a store")
    option(parser, *store)
    for name in RUN_FILTERS:
        option(parser, f"--{name}", "NAME,…", f"show only runs with these values of {name}")
    option(parser, "--seed", "N", "show only runs with this seed")
    option(parser, "--csv", "FILE", "write one line per run to a CSV file; - is standard output")
    option(parser, "--json", "", "print all stored data as JSON")

    parser = _add(commands, "report", "lab.report", "write an HTML page with the tables and figures of a run store")
    option(parser, "-o --out", "FILE", "file to write; only tables if it ends in .md, .tex or .txt", "report.html")
    option(parser, *store)
    option(parser, "--title", "TEXT", "title of the page (default: derived from its content)")
    option(parser, "--figures", "DIR", "also write the figures as SVG files")


def _threads(parser: Any, default: int | None = None) -> None:
    text = "use N CPU threads" + ("" if default else " (default: one, and all for large work)")
    option(parser, "--threads", "N", text, default, type=count)


def _demo(commands: Any) -> None:
    parser = _add(commands, "demo", "demo.demo", "learn an example table week by week, and predict, score and forget")
    parser.add_argument("folder", metavar="DIR", nargs="?", default="ergnn-demo", help="folder to create for all files")
    option(parser, "--customers", "N", "number of customers in the tables", 2000, type=count)


def _on_folder(commands: Any, name: str, text: str, *shared: str, hint: str = "") -> CommandParser:
    """Add a command on a folder, with those of the options ``version``, ``json`` and ``threads`` that it shares."""
    parser = _add(commands, name, f"folder.{name}_command", text, hint)
    parser.add_argument("folder", metavar="DIR", help="the learner's folder")
    if "version" in shared:
        option(parser, "--version", "N", "use a stored version (default: the current one)")
    if "json" in shared:
        option(parser, "--json", "", "print JSON instead of text")
    if "threads" in shared:
        _threads(parser)
    return parser


def _folder(commands: Any) -> None:
    parser = _on_folder(commands, "init", "create a folder for a learner on a growing graph")
    options = [*field_options(Settings), *field_options(LearnerConfig)]
    add_options(parser, [replace(o, default=TASK_UNKNOWN.get(o.name, o.default)) for o in options], FIXED)
    parser.default_method = TASK_UNKNOWN["method"]
    add_columns(parser)

    parser = _add(commands, "verify", "folder.verify_command", "check a certificate of `ergnn forget` again")
    parser.add_argument("certificate", metavar="FILE.json", help="the certificate")
    parser.add_argument("folder", metavar="DIR", help="the learner's folder")
    _threads(parser)

    parser = _on_folder(commands, "export", "write the model (and the graph) to files", "version")
    option(parser, "-o --out", "DIR|FILE", "write to this folder or file", required=True)
    text = (
        "safetensors: weights and their description; onnx, torch: a program that runs without ergnn "
        "(default: by the suffix of FILE, .safetensors, .onnx or .pt2, else safetensors)"
    )
    option(parser, "--format", "safetensors|onnx|torch", text)
    option(parser, "--graph", "", "also write the graph, as graph.npz")

    parser = _on_folder(commands, "rollback", "restore an older version")
    option(parser, "--to", "N", "version to restore (default: the previous one)")

    parser = _on_folder(commands, "set", "change settings that do not change the model, e.g. limits")
    text = "e.g. max_nodes=20000000 or keep=3"
    parser.add_argument("settings", metavar="NAME=VALUE", nargs="+", type=key_values, help=text)


def _observe(commands: Any) -> None:
    text, hint = "add nodes, edges and labels, and update the model", "`ergnn observe DIR --resume` continues"
    parser = _on_folder(commands, "observe", text, "json", "threads", hint=hint)
    option(parser, "--nodes", "FILE", "file with new nodes, or new labels of existing nodes: id, label, …")
    option(parser, "--edges", "FILE", "file with edges between new or existing nodes: source, target")
    option(parser, "--graph", "FILE", "one file with nodes and edges (.npz)")
    option(parser, "--task-name", "TEXT", "name of this update (default: update N)")
    option(parser, "--resume", "", "resume an interrupted update")
    option(parser, "--discard", "", "discard an interrupted update")
    option(parser, "--checkpoint-seconds", "X", "seconds between checkpoints", 5.0)
    option(parser, "--quiet", "", "print only errors")
    add_columns(parser)

    parser = _on_folder(commands, "forget", "remove nodes from graph, memory and model", "json", "threads")
    option(parser, "--nodes", "FILE", "file with the ids of the nodes to remove (optional with --purge)")
    option(parser, "--id-column", "NAME", "name of the id column (default: id)")
    option(parser, "--retrain", "", "retrain on all updates without these nodes")
    text = "delete older versions and waiting updates that contain the nodes, or any that were forgotten before"
    option(parser, "--purge", "", text)
    option(parser, "--certificate", "FILE.json", "after a purge, search all files, check the model, certify both")


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add options for the names of columns; see :class:`ergnn.data.tables.Columns`."""
    group = parser.add_argument_group("columns of the files", "those of init and of the first observe are remembered")
    for name in NAMED_COLUMNS:
        option(group, f"--{name}-column", "NAME", f"name of the {name} column (default: {name})")
    text = "names or patterns of the feature columns, e.g. 'x_*' (default: features or feature_*, or all others)"
    option(group, "--feature-columns", "NAME,…", text)
    option(group, "--ignore-column", "NAME", "ignore a column (may be repeated)", [], action="append")
    text = "weights of edges by their type, e.g. friend=1,payment=0.5 (default: types are ignored)"
    option(group, "--edge-type-weights", "TYPE=X,…", text)
    option(group, "--keep-na-labels", "", "read NaN, nan, NA, <NA>, null and None as labels, not as missing")


def _predict(commands: Any) -> None:
    parser = _on_folder(commands, "predict", "predict classes of nodes, with probabilities", "version", "threads")
    option(parser, "--nodes", "FILE", "file with the ids of nodes; new nodes need features", required=True)
    option(parser, "--edges", "FILE", "file with edges of new nodes, used for this prediction only")
    option(parser, "-o --out", "FILE.csv", "write to a file; -: standard output", "-")
    classes = parser.add_mutually_exclusive_group()
    option(classes, "--classes", "NAME,…", "predict among these classes (default: all learned classes)")
    option(classes, "--update", "N", "predict among the classes of update N, counted from 1")
    add_columns(parser)


def _scores(commands: Any) -> None:
    shared = ("version", "json", "threads")
    parser = _on_folder(commands, "evaluate", "measure accuracy on the held-out nodes of every update", *shared)
    option(parser, "--task-known", "", "predict among the classes of a node's own update (default: all classes)")
    option(parser, "--per-class", "", "also show recall, precision and F1 per class")
    option(parser, "--confusion", "", "also show the confusion matrix")

    parser = _on_folder(commands, "inspect", "show accuracy, forgetting, memory, size and versions", *shared)
    option(parser, "-o --out", "FILE.html", "write an HTML page instead of printing text")
    option(parser, "--all", "", f"list all stored nodes and all classes (default: {MAX_ROWS} of each)")
    option(parser, "--check", "", "only verify all checksums and the structure of the database")


def _why(commands: Any) -> None:
    """Add the commands that need a closed form."""
    shared = ("version", "json", "threads")
    parser = _on_folder(
        commands, "explain", "show which labels and features gave nodes their class (closed form)", *shared
    )
    option(parser, "--nodes", "FILE", "file with the ids of nodes of the graph", required=True)
    option(parser, "-o --out", "FILE.html", "write an HTML page instead of printing text")
    option(parser, "--count", "N", "list N labeled nodes and N columns", 10, type=count)
    add_columns(parser)

    parser = _on_folder(commands, "audit", "list training labels that look wrong to all others (closed form)", *shared)
    option(parser, "--count", "N", "list N labels", 20, type=count)
    option(parser, "-o --out", "FILE.csv", "write all labels to a file instead, in this order")
    text = "give this share of the labels another class first, in memory only, and report how many are found"
    option(parser, "--plant", "X", text, 0.0)

    parser = _on_folder(commands, "suggest", "list unlabeled nodes whose labels would help most (closed form)", *shared)
    option(parser, "--count", "N", "list N nodes", 50, type=count)
    option(parser, "--among", "FILE", "file with ids to choose among (default: all)", dest="nodes")
    text = "variance: reduce the variance of all predictions most; margin: two classes are about as probable; random"
    option(parser, "--by", "RULE", text, "variance")
    option(parser, "-o --out", "FILE.csv", "write CSV instead of printing a table")
    add_columns(parser)


def _serve(commands: Any) -> None:
    parser = _on_folder(commands, "serve", "serve predictions and take updates over HTTP", "threads")
    option(parser, "--host", "HOST", "address to bind; others than this machine's own need a token", "127.0.0.1")
    option(parser, "--port", "N", "port to bind; 0: any", 8000)
    option(parser, "--token-file", "FILE", "file with the token that requests must bring (default: $ERGNN_TOKEN)")
    add_options(parser.add_argument_group("limits on requests"), field_options(ServeLimits), prefix="max_")
