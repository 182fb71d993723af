"""Files that are written whole or not at all, and read with suspicion.

What is written goes beside its place, to the disk, and then to its name (``rename`` is atomic), so that a kill at any
instruction leaves the old file or the new one. What is read must be a plain file of a size that was agreed on.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from ergnn.errors import InputError

MOST_JSON = 64 << 20
"""Bytes of a JSON file, at the most."""


class FolderError(InputError):
    """A learner's folder that is not there, not whole, of another version, or busy."""


class VanishedError(FolderError):
    """A file that was there is gone: a newer version has taken its place."""


def sync_folder(path: Path) -> None:
    """Make names in a folder last through a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_file(path: Path, data: bytes) -> None:
    """Write a file and wait until it is on the disk (for files that nothing refers to yet)."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, data: bytes) -> None:
    """Put new content in the place of a file at once."""
    beside = path.with_name(path.name + ".new")
    write_file(beside, data)
    os.replace(beside, path)
    sync_folder(path.parent)


def open_plain(path: Path) -> tuple[int, int]:
    """A descriptor and the size of a plain file; links and devices are refused."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        raise VanishedError(f"{path}: the file is missing") from None
    except OSError as error:
        raise FolderError(f"{path}: cannot be opened ({error.strerror})") from None
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise FolderError(f"{path}: is not a plain file")
    return handle, found.st_size


def read_file(path: Path, most: int, size: int | None = None, sha256: str | None = None) -> bytes:
    """The content of a file, if it is as long, and adds up to the checksum, as was agreed on."""
    handle, found = open_plain(path)
    try:
        if size is not None and found != size:
            raise FolderError(f"{path}: has {found:,} bytes; {size:,} were written: it is damaged")
        if found > most:
            raise FolderError(f"{path}: has {found:,} bytes; the limit is {most:,}")
        with open(handle, "rb", closefd=False) as file:
            data = file.read(found + 1)
    finally:
        os.close(handle)
    if len(data) != found or (sha256 is not None and checksum(data) != sha256):
        raise FolderError(f"{path}: the content does not match its checksum: it is damaged")
    return data


def checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def to_json(value: Any) -> bytes:
    """Canonical JSON: the same value is the same bytes."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8") + b"\n"


def from_json(data: bytes, path: Path | str) -> dict[str, Any]:
    """A JSON object, or an error that names the file."""
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{path}: is not readable JSON ({str(error)[:100]})") from None
    if not isinstance(value, dict):
        raise FolderError(f"{path}: holds {type(value).__name__}; a JSON object was expected")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def seal(body: dict[str, Any]) -> bytes:
    """JSON that carries its own checksum, for files that no other file vouches for."""
    return to_json({"body": body, "sha256": checksum(to_json(body))})


def unseal(data: bytes, path: Path | str) -> dict[str, Any]:
    value = from_json(data, path)
    body = value.get("body")
    if not isinstance(body, dict) or value.get("sha256") != checksum(to_json(body)):
        raise FolderError(f"{path}: the content does not match its checksum: it is damaged")
    return body


def field(value: dict[str, Any], name: str, kind: type | tuple[type, ...], path: Path | str) -> Any:
    """An entry of a JSON object, of the type that it must have (a truth value is no number)."""
    found = value.get(name)
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        wanted = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
        raise FolderError(f"{path}: {name!r} is {str(found)[:60]!r}; {wanted} was expected")
    return found


def number(value: dict[str, Any], name: str, path: Path | str, least: int = 0, most: int = 2**62) -> int:
    """A whole number within bounds from a JSON object."""
    found = field(value, name, int, path)
    if not least <= found <= most:
        raise FolderError(f"{path}: {name!r} is {str(found)[:30]}; {least} to {most} is allowed")
    return int(found)
