"""Errors raised by ergnn. Each message names the value, the allowed values, and the source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args


class ErgnnError(Exception):
    """Base class of all errors raised by ergnn."""


class InputError(ErgnnError, ValueError):
    """An invalid graph, split, option or file."""


class FormatError(InputError):
    """A file that cannot be read: wrong format, over the limits, or with invalid values."""


class FolderError(InputError):
    """A learner's folder that is missing, damaged, in use, or of another format."""


class BusyError(FolderError):
    """A learner's folder that another process is writing to."""


class UnknownNameError(InputError):
    """An unknown name; the message lists the known ones."""

    def __init__(self, kind: str, name: object, choices: Iterable[str]) -> None:
        choices = sorted(choices)
        super().__init__(f"unknown {kind} {name!r}{did_you_mean(name, choices)}; choose one of: {', '.join(choices)}")


def did_you_mean(name: object, choices: Iterable[str]) -> str:
    """Return the choice that a mistyped name is close to, as a question; empty if there is none."""
    cases = {choice.lower(): choice for choice in choices}
    close = get_close_matches(str(name).lower(), cases, 1, 0.7)
    return f" (did you mean {cases[close[0]]!r}?)" if close else ""


def similar_file(path: Path) -> str:
    """Return :func:`did_you_mean` for a path that does not exist, from the names in its folder."""
    try:
        return did_you_mean(path.name, [entry.name for entry in path.parent.iterdir()])
    except OSError:
        return ""


def check_choice(name: str, value: object, choices: Any) -> None:
    """Raise an error if a value is not among the choices: names, or a ``Literal``."""
    names = get_args(choices) or tuple(choices)
    if value not in names:
        raise UnknownNameError(name, value, names)


def check_at_least(least: float, **options: float | None) -> None:
    """Raise an error if an option is below ``least``; None is always allowed."""
    for name, value in options.items():
        if value is not None and not least <= value < float("inf"):
            raise InputError(f"{name} is {value}; it must be {least:g} or more")


def check_between(low: float, high: float, **options: float | None) -> None:
    """Raise an error if an option is not above ``low`` and below ``high``; None is always allowed."""
    for name, value in options.items():
        if value is not None and not low < value < high:
            allowed = f"lie between {low:g} and {high:g}" if high < float("inf") else f"be above {low:g}, and finite"
            raise InputError(f"{name} is {value}; it must {allowed}")


def check_within(where: str, least: int, most: int, **options: int) -> None:
    """Raise an error if an option is below ``least`` or above ``most``; ``where`` says what limits it."""
    for name, value in options.items():
        if not least <= value <= most:
            raise InputError(f"{where}: {name} is {value}; it must be {least} to {most}")


class LeakageError(ErgnnError):
    """Test labels were requested by code that does not declare itself leaky."""


class DivergedError(ErgnnError, ArithmeticError):
    """Training produced parameters that are not finite."""


class CurvatureError(ErgnnError, ArithmeticError):
    """A linear solve encountered negative curvature or did not converge."""


def truncate(value: object, length: int = 60) -> str:
    """Format a value of any length for a message."""
    text = repr(value if not isinstance(value, str) else value[: length + 1])
    return text if len(text) <= length + 2 else text[:length] + "…"


def listed(names: Sequence[object], count: int = 8) -> str:
    """Format the first few names for a message."""
    return ", ".join(truncate(name, 30) for name in names[:count]) + (", …" if len(names) > count else "")
