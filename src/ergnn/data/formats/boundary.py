"""Errors of other libraries as errors of ergnn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ergnn.errors import ErgnnError, FormatError


@contextmanager
def wrap_errors(where: object, what: str) -> Iterator[None]:
    """Raise any exception of a library's reader as a :class:`FormatError`.

    On damaged input, readers raise nearly anything, and what they raise changes with their version.
    """
    try:
        yield
    except ErgnnError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise FormatError(f"{where}: cannot be read as {what} ({said})") from error
