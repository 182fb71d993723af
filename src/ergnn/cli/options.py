"""Command-line options: written by hand, and derived from signatures and docstrings."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Container, Iterable, Mapping
from typing import Any, NoReturn

from ergnn.config.errors import InputError, UnknownNameError, did_you_mean
from ergnn.config.learner_config import LearnerConfig
from ergnn.config.registry import REQUIRED, Option


def key_values(text: str) -> dict[str, Any]:
    """Parse ``a=1,b=x`` into a dictionary; numbers and true/false are converted."""
    options = {}
    for pair in filter(None, text.split(",")):
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise argparse.ArgumentTypeError(f"{pair!r} is not KEY=VALUE")
        options[key.strip().replace("-", "_")] = scalar(value)
    return options


def weights(text: str) -> dict[str, float]:
    """Parse ``a=1,b=0.5`` into numbers by name."""
    try:
        return {name.strip(): float(value) for name, _, value in (pair.rpartition("=") for pair in text.split(","))}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not TYPE=NUMBER,…") from None


def names(text: str) -> tuple[str, ...]:
    """Parse ``a, b`` into names."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def scalar(text: str) -> Any:
    """Parse a number, true, false (in any case) or null; return any other text unchanged."""
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except json.JSONDecodeError:
        return text


def count(text: str) -> int:
    """Parse a whole number of 1 or more."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


TYPES = {
    **{"N": int, "X": float, "NAME,…": names, "TYPE=X,…": weights},
    **{"KEY=VALUE,…": key_values, "true|false": scalar, "VALUE": scalar},
}
"""Types of the values of options, by metavar; others are text."""


def option(parser: Any, flags: str, metavar: str, text: str, default: Any = None, **settings: Any) -> None:
    """Add an option to a parser or group; without a metavar it is a switch. The help shows the default.

    A metavar such as ``local|ray`` is a list of choices.
    """
    if metavar:
        text += f" (default: {default})" if default or default == 0 else ""
        choices = metavar.split("|") if "|" in metavar and metavar.islower() else None
        settings = {"metavar": metavar, "type": TYPES.get(metavar), "default": default, "choices": choices, **settings}
    else:
        settings["action"] = "store_true"
    parser.add_argument(*flags.split(), help=text.replace("%", "%%"), **settings)


def add_options(parser: Any, options: Iterable[Option], taken: Container[str] = (), prefix: str = "") -> None:
    """Add one command-line option per setting; options that are not given stay None."""
    for setting in options:
        if setting.name not in taken:
            name, text, default = prefix + setting.name, setting.help.rstrip("."), setting.default
            if default is not REQUIRED and default not in (None, {}):
                text += f" (default: {','.join(default) if isinstance(default, tuple) else default})"
            option(parser, "--" + name.replace("_", "-"), _metavar(setting), text, dest=name, choices=None)


class CommandParser(argparse.ArgumentParser):
    """The parser of a command. If the command takes a method, the options of the method are parsed in a second step.

    Methods are imported, and torch with them, only for words that the first step does not know, and for the help.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    default_method: str | None = None
    """Method whose options are parsed if no other is named; None if the command takes no method."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        self.words = words = list(args or ())
        if self.default_method is None or not {"-h", "--help"}.intersection(words):
            parsed, unknown = super().parse_known_args(words, namespace)
            if self.default_method is None or not unknown:
                return parsed, self._refuse(unknown)
        from ergnn.methods import METHODS

        method = METHODS.resolve(self._method_named(words) or self.default_method)
        group = self.add_argument_group(f"options of method {method}", "of another: --method NAME --help")
        add_options(group, METHODS.options(method), {action.dest for action in self._actions})
        parsed, unknown = super().parse_known_args(words)
        for flag in unknown:
            name = flag.partition("=")[0].removeprefix("--").replace("-", "_")
            if flag.startswith("--") and name in METHODS.option_names():
                raise METHODS.unknown_option(method, name)
        return parsed, self._refuse(unknown)

    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong with the arguments; an unknown option may be the reason that one is missing."""
        if self.default_method is None:
            self._refuse([word for word in self.words if word.partition("=")[0] not in self._option_string_actions])
        if wrong := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            choices = wrong[2].replace("'", "").split(", ")
            raise UnknownNameError("choice", wrong[1], choices)
        raise InputError(f"{message}; `{self.prog} --help` lists the options")

    def _refuse(self, unknown: list[str]) -> list[str]:
        """Raise an error for the first unknown option, with the option that it is close to."""
        flag = next((word.partition("=")[0] for word in unknown if word.startswith("--") and word != "--"), None)
        if flag is not None:
            options = [name.lstrip("-") for name in self._option_string_actions]
            guess = did_you_mean(flag[2:], options).replace("mean '", "mean '--")
            raise InputError(f"unknown option {flag}{guess}; `{self.prog} --help` lists all")
        return unknown

    def _method_named(self, words: list[str]) -> str | None:
        """Return the method after ``--method``, or else in the file after ``--config``."""
        finder = argparse.ArgumentParser(prog=self.prog, add_help=False, allow_abbrev=False)
        for flag in {"--method", "--config"}.intersection(self._option_string_actions):
            finder.add_argument(flag)
        known = vars(finder.parse_known_args(words)[0])
        if known["method"] is None and known.get("config"):
            from ergnn.lab.config import read_config

            return read_config(known["config"]).get("method")
        return known["method"]


def given(args: argparse.Namespace, other: Container[str]) -> dict[str, Any]:
    """Return the settings given on the command line: all options except the names in ``other``."""
    return {name: value for name, value in vars(args).items() if value is not None and name not in other}


def refuse_unused(settings: Mapping[str, Any], config: LearnerConfig) -> None:
    """Raise an error if a setting that was given has no effect with the method."""
    from ergnn.learning.resolve import make_method, resolve

    unused = make_method(resolve(config)).unused_settings
    for name, value in settings.items():
        if name in unused and (name, value) != ("backbone", "auto"):
            raise InputError(f"{name} is {value!r}, which has no effect with method {config.method!r}; leave it out")


def _metavar(setting: Option) -> str:
    """Return the metavar of an option in the help, which says how its text is converted (:data:`TYPES`)."""
    kinds = set(setting.kinds) - {type(None)}
    if setting.name.endswith("_options") or kinds == {dict}:
        return "KEY=VALUE,…"
    if kinds in ({bool}, {int}):
        return "true|false" if bool in kinds else "N"
    if kinds in ({float}, {int, float}):
        return "X"
    if "str" in setting.type.split(" | "):
        return "|".join(setting.choices) if setting.choices else "NAME"
    if setting.type.startswith("tuple[str"):
        return "NAME,…"
    return "N,N" if setting.type.startswith("tuple[int") else "VALUE"
