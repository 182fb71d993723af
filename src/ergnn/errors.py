"""The errors a user can meet. Each message names the value, what is allowed, and where it came from."""

from __future__ import annotations

from collections.abc import Iterable


class ErgnnError(Exception):
    """Base of every error that ergnn raises on purpose."""


class InputError(ErgnnError, ValueError):
    """A graph, a split, an option or a file that cannot be used as it is."""


class FormatError(InputError):
    """A file that cannot be read: not in its format, out of its limits, or with values that cannot be used."""


class UnknownNameError(InputError):
    """A name that is in no registry; the message lists the names that are."""

    def __init__(self, kind: str, name: object, choices: Iterable[str]) -> None:
        super().__init__(f"unknown {kind} {name!r}; choose one of: {', '.join(sorted(choices))}")


class LeakageError(ErgnnError):
    """Test labels were asked for by something that did not declare itself leaky."""


class DivergedError(ErgnnError, ArithmeticError):
    """Training ended in parameters that are not finite."""


class CurvatureError(ErgnnError, ArithmeticError):
    """A linear solve met negative curvature or did not converge."""
