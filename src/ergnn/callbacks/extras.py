"""Packages that only some users have."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ergnn.errors import InputError


def extra(module: str, name: str, what: str) -> Any:
    """Import a package that comes with one of ergnn's extras, or say which extra that is."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise InputError(
            f"{what} needs the package {module!r}, which is not installed: pip install 'ergnn[{name}]'"
        ) from None
