"""Where raw files are stored, and whether downloads are allowed.

Files are searched in ``ERGNN_DATA`` (or an explicit root), which is only read, then in the platform's cache folder,
which is the only target of downloads. Nothing is downloaded unless requested with ``ERGNN_DOWNLOAD=1`` or
``ergnn run --download``; ``ERGNN_OFFLINE=1`` forbids downloads in any case.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from platformdirs import user_cache_dir

DATA_VARIABLE = "ERGNN_DATA"
DOWNLOAD_VARIABLE = "ERGNN_DOWNLOAD"
OFFLINE_VARIABLE = "ERGNN_OFFLINE"
PROBE_SECONDS = 5


def cache_root() -> Path:
    """Return the platform's cache folder."""
    return Path(user_cache_dir("ergnn"))


def data_root(root: Path | None) -> Path | None:
    """Return the explicit root, or ``ERGNN_DATA``, or None."""
    value = os.environ.get(DATA_VARIABLE)
    return root or (Path(value).expanduser() if value else None)


def downloads_allowed() -> bool:
    """Return whether downloads were requested and are not forbidden."""
    return _is_set(DOWNLOAD_VARIABLE) and not _is_set(OFFLINE_VARIABLE)


def how_to_get() -> str:
    """Explain how to get missing files, for messages."""
    if _is_set(OFFLINE_VARIABLE):
        return f"downloads are off ({OFFLINE_VARIABLE} is set)"
    return f"set {DOWNLOAD_VARIABLE}=1 (or use `ergnn run --download`) to download it"


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() not in ("", "0", "false", "no")


def find(folder: str, files: tuple[str, ...], root: Path | None) -> Path | None:
    """Search the data root, then the cache, for a folder with all files."""
    for base in (data_root(root), cache_root()):
        if base is not None and all((base / folder / file).is_file() for file in files):
            return base / folder
    return None


def not_found(name: str, folder: str, files: tuple[str, ...], root: Path | None) -> str:
    """Describe where the files of a data set were searched, for messages."""
    base = data_root(root)
    if base is None:
        where = f"{DATA_VARIABLE} is not set and the cache folder has no {folder}"
    else:
        where = f"neither {base} nor the cache folder has {folder}"
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f"{name}: {where} ({files[0]}{more})"


def probe(url: str) -> None:
    """Raise an ``OSError`` within seconds if a host is unreachable; PyG's download waits for minutes."""
    with suppress(HTTPError):  # any HTTP response proves that the host is reachable
        urlopen(Request(url, method="HEAD"), timeout=PROBE_SECONDS).close()
