"""Options of registered methods and of dataclasses, read from their source without importing it.

The command line needs the options to parse and document its arguments, but importing a method imports torch, which
takes seconds. :meth:`ergnn.config.registry.Registry.options` returns the same for imported classes; tests compare the
two."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ergnn.config.registry import REQUIRED, Option, merged_texts

METHODS = "ergnn.methods"
"""The package of the built-in methods, and the entry-point group of third-party ones."""
REGISTER = "METHODS.register"
SIMPLE: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str, "dict": dict, "None": type(None)}


_plugins: list[str | Path] = []


def add_source(source: str | Path) -> None:
    """Also read options of methods from another module or file."""
    _plugins.append(source)
    method_options.cache_clear()


@cache
def method_options() -> dict[str, list[Option]]:
    """Return the options of each method by name: built-in methods, third-party entry points and plug-ins.

    Methods without source code are omitted; use ``--method-options`` for their options.
    """
    package = _source(METHODS)
    own = [f"{METHODS}.{file.stem}" for file in sorted(package.parent.glob("*.py"))] if package else []
    found = {}
    for name in [*own, *(point.module for point in entry_points(group=METHODS)), *_plugins]:
        module = _module(name)
        for node in module.tree.body if module else ():
            if module and isinstance(node, ast.ClassDef) and (registered := _registered(node)):
                found[registered] = _options(module, node)
    return dict(sorted(found.items()))


def dataclass_options(module: str, name: str) -> list[Option]:
    """Return the fields of a dataclass of this package as options."""
    home, node = _defined(_module(module), name)
    texts = merged_texts([ast.get_docstring(node) or ""])
    return [
        _option(home, part.target.id, part.annotation, part.value, texts)
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    ]


class _Module:
    """The syntax tree of a module."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.imported = {
            alias.asname or alias.name: (node.module, alias.name)
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module and not node.level
            for alias in node.names
        }

    def find(self, name: str) -> tuple[_Module, ast.ClassDef | ast.expr] | None:
        """Return a class, or the value of a variable, and the module that defines it, following imports."""
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return self, node
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
                return self, node.value
        home, original = self.imported.get(name, ("", ""))
        module = _module(home) if home else None
        return module.find(original) if module else None


@cache
def _module(name: str | Path) -> _Module | None:
    file = name if isinstance(name, Path) else _source(name)
    try:
        return None if file is None else _Module(ast.parse(file.read_text(encoding="utf-8")))
    except (OSError, SyntaxError, UnicodeDecodeError):  # importing it will report the problem
        return None


def _source(module: str) -> Path | None:
    """Return the source file of a module without importing it; only the top-level package is looked up."""
    top, *rest = module.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None or not rest:
        return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None
    paths = [Path(folder, *rest) for folder in spec.submodule_search_locations or ()]
    files = [file for path in paths for file in (path.with_suffix(".py"), path / "__init__.py")]
    return next((file for file in files if file.is_file()), None)


def _defined(module: _Module | None, name: str) -> tuple[_Module, ast.ClassDef]:
    found = module.find(name) if module else None
    if found is None or not isinstance(found[1], ast.ClassDef):
        raise LookupError(name)
    return found[0], found[1]


def _registered(node: ast.ClassDef) -> str | None:
    """Return the name under which ``@METHODS.register("name")`` registers a class."""
    for call in node.decorator_list:
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(REGISTER) and call.args:
            return str(ast.literal_eval(call.args[0]))
    return None


def _options(module: _Module, node: ast.ClassDef) -> list[Option]:
    """Return the constructor arguments of a class or of its nearest base with a constructor."""
    lineage = list(_lineage(module, node))
    texts = merged_texts(ast.get_docstring(part) or "" for _, part in reversed(lineage))
    for home, part in lineage:
        for method in part.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                arguments = _arguments(method.args)
                return [_option(home, arg.arg, arg.annotation, default, texts) for arg, default in arguments]
    return []


def _lineage(module: _Module, node: ast.ClassDef) -> Iterator[tuple[_Module, ast.ClassDef]]:
    yield module, node
    for base in node.bases:
        try:
            home, part = _defined(module, ast.unparse(base))
        except LookupError:
            continue
        yield from _lineage(home, part)


def _arguments(args: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    positional = [*args.posonlyargs, *args.args]
    padding = [None] * (len(positional) - len(args.defaults))
    yield from list(zip(positional, [*padding, *args.defaults], strict=True))[1:]
    yield from zip(args.kwonlyargs, args.kw_defaults, strict=True)


def _option(
    home: _Module, name: str, annotation: ast.expr | None, default: ast.expr | None, texts: dict[str, str]
) -> Option:
    parts = [_followed(home, part) for part in _union(annotation)] if annotation else []
    choices = tuple(str(value) for part in parts for value in _literal(part)) or None
    written = ["str" if _literal(part) else ast.unparse(part) for part in parts]
    plain = [kind.partition("[")[0] for kind in written]
    kinds = tuple(SIMPLE[kind] for kind in plain) if all(kind in SIMPLE for kind in plain) else ()
    return Option(name, " | ".join(written), _value(default), texts.get(name, ""), choices, kinds)


def _union(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_union(node.left), *_union(node.right)]
    return [node]


def _followed(home: _Module, node: ast.expr) -> ast.expr:
    """Return the ``Literal[...]`` that a name refers to, else the name itself."""
    found = home.find(node.id) if isinstance(node, ast.Name) and node.id not in SIMPLE else None
    return found[1] if found and isinstance(found[1], ast.expr) and _literal(found[1]) else node


def _literal(node: ast.expr) -> tuple[Any, ...]:
    """Return the values of ``Literal[...]``; empty for other expressions."""
    if not isinstance(node, ast.Subscript) or ast.unparse(node.value).rpartition(".")[2] != "Literal":
        return ()
    values = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return tuple(value.value for value in values if isinstance(value, ast.Constant))


def _value(node: ast.expr | None) -> Any:
    """Return a default: its value if it is a literal, else its source text; None for ``field(default_factory=...)``."""
    if node is None:
        return REQUIRED
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "field":
        return None
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)
