"""Options of registered methods and of dataclasses, read from their source without importing it.

The command line needs them to parse and explain its arguments, and importing a method imports torch, which takes
seconds. :meth:`ergnn.registry.Registry.options` says the same of the imported classes; the tests compare the two.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ergnn.registry import REQUIRED, Option, merged_texts

METHODS = ("ergnn.methods", "METHODS")
"""The package of the built-in methods, also the group of entry points, and the name of their registry."""
SIMPLE: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str, "dict": dict, "None": type(None)}


@cache
def method_options() -> dict[str, list[Option]]:
    """The options of each method by name, of this package and of others that are installed with an entry point.

    A method without source is left out; ``--method-options`` reaches its options.
    """
    package, registry = METHODS
    classes: dict[str, _Class] = {}
    for file in [*_package_files(package), *_entry_point_files(package)]:
        classes |= {found.node.name: found for found in _classes(file)}
    named = {name: found for found in classes.values() if (name := _registered(found.node, registry))}
    return {name: _options(found, classes) for name, found in sorted(named.items())}


def dataclass_options(module: str, name: str) -> list[Option]:
    """The fields of a dataclass of this package as options."""
    (file,) = _package_files(module.rpartition(".")[0], module.rpartition(".")[2])
    (found,) = (part for part in _classes(file) if part.node.name == name)
    texts = merged_texts([ast.get_docstring(found.node) or ""])
    return [
        _option(node.target.id, node.annotation, node.value, texts.get(node.target.id, ""), found.literals)
        for node in found.node.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]


class _Class:
    """A class definition and the module-level ``Literal`` types beside it."""

    def __init__(self, node: ast.ClassDef, literals: dict[str, ast.expr]) -> None:
        self.node, self.literals = node, literals

    def lineage(self, classes: dict[str, _Class]) -> Iterator[_Class]:
        """The class itself, then its bases as far as they are known by name."""
        yield self
        for base in self.node.bases:
            found = classes.get(ast.unparse(base).rpartition(".")[2])
            if found is not None and found is not self:
                yield from found.lineage(classes)


def _package_files(package: str, module: str = "*") -> Iterable[Path]:
    spec = find_spec(package.partition(".")[0])
    for folder in spec.submodule_search_locations or () if spec else ():
        yield from sorted(Path(folder).joinpath(*package.split(".")[1:]).glob(f"{module}.py"))


def _entry_point_files(group: str) -> Iterator[Path]:
    """Source files of the modules that other packages name; only their top-level package is looked up, not imported."""
    for point in entry_points(group=group):
        top, *rest = point.module.split(".")
        try:
            spec = find_spec(top)
        except (ImportError, ValueError):
            continue
        for folder in spec.submodule_search_locations or () if spec else ():
            path = Path(folder, *rest)
            yield from (file for file in (path.with_suffix(".py"), path / "__init__.py") if rest and file.is_file())
        if spec and not rest and spec.origin and spec.origin.endswith(".py"):
            yield Path(spec.origin)


def _classes(file: Path) -> Iterator[_Class]:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):  # importing it will say what is wrong
        return
    literals = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _literal(node.value)
    }
    yield from (_Class(node, literals) for node in tree.body if isinstance(node, ast.ClassDef))


def _registered(node: ast.ClassDef, registry: str) -> str | None:
    """The name under which ``@METHODS.register("name")`` enters a class."""
    for call in node.decorator_list:
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(f"{registry}.register") and call.args:
            return str(ast.literal_eval(call.args[0]))
    return None


def _options(found: _Class, classes: dict[str, _Class]) -> list[Option]:
    texts = merged_texts(ast.get_docstring(part.node) or "" for part in reversed(list(found.lineage(classes))))
    for part in found.lineage(classes):
        for node in part.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                return [
                    _option(argument.arg, argument.annotation, default, texts.get(argument.arg, ""), part.literals)
                    for argument, default in _arguments(node.args)
                ]
    return []


def _arguments(args: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    positional = [*args.posonlyargs, *args.args]
    padding = [None] * (len(positional) - len(args.defaults))
    yield from list(zip(positional, [*padding, *args.defaults], strict=True))[1:]
    yield from zip(args.kwonlyargs, args.kw_defaults, strict=True)


def _option(
    name: str, annotation: ast.expr | None, default: ast.expr | None, text: str, literals: dict[str, ast.expr]
) -> Option:
    parts = [literals.get(ast.unparse(part), part) for part in _union(annotation)] if annotation else []
    choices = tuple(str(value) for part in parts for value in _literal(part)) or None
    written = ["str" if _literal(part) else ast.unparse(part) for part in parts]
    plain = [kind.partition("[")[0] for kind in written]
    kinds = tuple(SIMPLE[kind] for kind in plain) if all(kind in SIMPLE for kind in plain) else ()
    return Option(name, " | ".join(written), _value(default), text, choices, kinds)


def _union(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_union(node.left), *_union(node.right)]
    return [node]


def _literal(node: ast.expr) -> tuple[Any, ...]:
    """The values of ``Literal[...]``, or nothing."""
    if not isinstance(node, ast.Subscript) or ast.unparse(node.value).rpartition(".")[2] != "Literal":
        return ()
    values = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return tuple(value.value for value in values if isinstance(value, ast.Constant))


def _value(node: ast.expr | None) -> Any:
    """A default: its value where it is a literal, else its source text; None for a ``field(default_factory=...)``."""
    if node is None:
        return REQUIRED
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "field":
        return None
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)
