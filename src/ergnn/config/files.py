"""Reading and writing files: errors of other libraries, and files that are replaced atomically."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ergnn.config.errors import ErgnnError, FormatError, InputError


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
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise FormatError(f"{where}: cannot be read as {what} ({reason})") from error


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary file to write; it replaces ``path`` if no error occurs, and is removed otherwise.

    The content is on disk before the file is replaced, so that ``path`` is complete even after a crash. Of several
    writers, the last one wins. A symbolic link stays, and the file that it names is replaced. A device or pipe cannot
    be replaced, so it is written to.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{secrets.token_hex(8)}.new")
    try:
        if target.exists() and not (target.is_file() or target.is_dir()):
            yield target
            return
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        temporary.unlink(missing_ok=True)


def write_file(path: Path, data: bytes) -> None:
    """Write a file completely or not at all; missing folders are created."""
    with replacing(path) as new:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(data)
