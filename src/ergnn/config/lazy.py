"""Imports on first use: importing torch and PyG takes seconds, and optional packages may be missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from ergnn.config.errors import InputError


def lazy_names(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Create the ``__getattr__`` of a package (PEP 562) from names by module; its own modules are always found."""
    homes = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        if not name.startswith("_") and find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get


def extra(module: str, name: str, what: str) -> ModuleType:
    """Import an optional package, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f"{what} needs {module} ({error}); install it with: pip install 'ergnn[{name}]'") from error
