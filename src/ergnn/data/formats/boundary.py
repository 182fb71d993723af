"""Calls into other libraries: what they raise becomes an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

from ergnn.errors import ErgnnError, FormatError, InputError


@contextmanager
def wrap_errors(where: object, what: str) -> Iterator[None]:
    """Turn any exception of a library's reader into a :class:`FormatError`.

    On damaged input these raise nearly anything (``KeyError``, ``struct.error``, ``MemoryError`` for sizes that the
    bytes only claim), and what they raise changes with their version.
    """
    try:
        yield
    except ErgnnError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise FormatError(f"{where}: cannot be read as {what} ({said})") from error


def extra(module: str, name: str, what: str) -> ModuleType:
    """Import an optional package, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f"{what} needs {module} ({error}); install it with: pip install 'ergnn[{name}]'") from error
