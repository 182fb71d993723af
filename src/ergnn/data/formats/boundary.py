"""Where other libraries read a file: whatever they raise becomes an error of ours."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

from ergnn.errors import ErgnnError, FormatError, InputError


@contextmanager
def foreign(where: object, what: str) -> Iterator[None]:
    """Run a library's own reader.

    These raise nearly anything on bytes that are not what they expect (``KeyError``, ``struct.error``,
    ``MemoryError`` for sizes that the bytes only claim), and what they raise changes with their version.
    """
    try:
        yield
    except ErgnnError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise FormatError(f"{where}: not {what} that can be read ({said})") from error


@contextmanager
def opened_zip(path: Path, what: str) -> Iterator[zipfile.ZipFile]:
    """A zip file that begins as one: other readers look at the beginning, ``zipfile`` only at the end."""
    with foreign(path, what), open(path, "rb") as file:
        if file.read(4) != b"PK\3\4":
            raise FormatError(f"{path}: not {what}; it does not begin as a zip file does")
        with zipfile.ZipFile(file) as archive:
            yield archive


def extra(module: str, name: str, what: str) -> ModuleType:
    """A package that only some files need, or a message that says how to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f"{what} needs {module} ({error}); install it with: pip install 'ergnn[{name}]'") from error
