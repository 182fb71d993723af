"""Command-line options derived from signatures and docstrings."""

from __future__ import annotations

import argparse
import json
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from ergnn.config.errors import InputError
from ergnn.config.learner_config import LearnerConfig
from ergnn.config.registry import REQUIRED, Option
from ergnn.config.signatures import method_options


def key_values(text: str) -> dict[str, Any]:
    """Parse ``a=1,b=x`` into a dictionary; numbers and true/false are converted."""
    options = {}
    for part in filter(None, text.split(",")):
        key, separator, value = part.partition("=")
        if not separator or not key:
            raise argparse.ArgumentTypeError(f"{part!r} is not KEY=VALUE")
        options[key.strip().replace("-", "_")] = scalar(value)
    return options


def scalar(text: str) -> Any:
    """Parse a number, true, false or null; return any other text unchanged."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{text!r} is not true or false") from None


def add_options(parser: Any, options: Iterable[Option], taken: Container[str] = ()) -> None:
    """Add one command-line option per setting; options that are not given stay None."""
    for option in options:
        if option.name not in taken:
            suffix = f" (default: {option.default})" if _shown(option.default) else ""
            _add(parser, option, option.help.rstrip(".") + suffix)


def add_method_options(parser: argparse.ArgumentParser, taken: Container[str]) -> None:
    """Add one option per name that any method has, except for the names in ``taken``."""
    group = parser.add_argument_group("options of methods", "`ergnn methods NAME` lists those of one method.")
    by_name: dict[str, dict[str, Option]] = {}
    for method, options in method_options().items():
        for option in options:
            by_name.setdefault(option.name, {})[method] = option
    for name, found in sorted(by_name.items()):
        if name not in taken:
            _add(group, _common(found), _method_help(found))


def given(args: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return the options given on the command line."""
    return {name: getattr(args, name) for name in names if getattr(args, name, None) is not None}


def refuse_unused(settings: Mapping[str, Any], config: LearnerConfig) -> None:
    """Raise an error if a setting that was given has no effect with the method."""
    from ergnn.learning.resolve import make_method, resolve

    unused = make_method(resolve(config)).unused_settings
    for name, value in settings.items():
        if name in unused and (name, value) != ("backbone", "auto"):
            raise InputError(f"{name} is {value!r}, which has no effect with method {config.method!r}; leave it out")


def method_option_names() -> set[str]:
    return {option.name for options in method_options().values() for option in options}


def _add(parser: Any, option: Option, text: str) -> None:
    convert, metavar = _conversion(option)
    flag = "--" + option.name.replace("_", "-")
    parser.add_argument(flag, dest=option.name, metavar=metavar, type=convert, help=text.replace("%", "%%"))


def _conversion(option: Option) -> tuple[Any, str]:
    """Return the conversion of an option's text, and its metavar in the help."""
    kinds = set(option.kinds) - {type(None)}
    if option.name.endswith("_options") or kinds == {dict}:
        return key_values, "KEY=VALUE,…"
    if kinds == {bool}:
        return boolean, "true|false"
    if kinds == {int}:
        return int, "N"
    if kinds in ({float}, {int, float}):
        return float, "X"
    if "str" in option.type.split(" | "):
        return str, "|".join(option.choices) if option.choices else "NAME"
    return (str, "N,N") if option.type.startswith("tuple[int") else (scalar, "VALUE")


def _common(found: dict[str, Option]) -> Option:
    """Merge the options of several methods; if their types differ, accept any value."""
    first, *others = found.values()
    alike = all((o.kinds, o.choices) == (first.kinds, first.choices) for o in others)
    return first if alike else Option(first.name, "", None)


def _shown(default: Any) -> bool:
    """Return whether the help shows a default; None and an empty mapping are not shown."""
    return default is not REQUIRED and default is not None and default != {}


def _method_help(found: dict[str, Option]) -> str:
    by_text: dict[tuple[str, str], list[str]] = {}
    for method, option in found.items():
        suffix = f"; default: {option.default}" if _shown(option.default) else ""
        by_text.setdefault((option.help, suffix), []).append(method)
    return "; ".join(f"{text.rstrip('.')} ({', '.join(methods)}{end})" for (text, end), methods in by_text.items())


def store_path(text: str) -> str:
    """Return the file or URL of a store; for a folder, or a name without a suffix, its ``runs.sqlite``."""
    path = Path(text)
    return str(path / "runs.sqlite") if "://" not in text and (path.is_dir() or not path.suffix) else text
