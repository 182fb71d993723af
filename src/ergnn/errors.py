"""Errors raised by ergnn. Each message names the value, the allowed values, and the source."""

from __future__ import annotations

from collections.abc import Iterable


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
        super().__init__(f"unknown {kind} {name!r}; choose one of: {', '.join(sorted(choices))}")


class LeakageError(ErgnnError):
    """Test labels were requested by code that does not declare itself leaky."""


class DivergedError(ErgnnError, ArithmeticError):
    """Training produced parameters that are not finite."""


class CurvatureError(ErgnnError, ArithmeticError):
    """A linear solve encountered negative curvature or did not converge."""
