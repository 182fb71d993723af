"""Imports on first use, since importing torch and PyG takes seconds and optional packages may be missing, and plug-ins:
files and modules, named on the command line, that register selectors, backbones, methods and data sets."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from ergnn.config.errors import InputError

imported: list[str] = []
"""Plug-ins imported so far, for other processes to import."""


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


def import_plugin(name: str) -> None:
    """Import a plug-in once; what it registers is then known by name, as are the options of its methods.

    Args:
        name: a file that ends in ``.py``, which may import other files in its folder, or the name of a module.
    """
    try:
        if name.endswith(".py"):
            _import_file(Path(name).resolve())
        else:
            import_module(name)
    except (Exception, SystemExit) as error:  # third-party code can raise anything
        reason = error if isinstance(error, InputError) else f"cannot be imported ({type(error).__name__}: {error})"
        raise InputError(f"--import {name}: {reason}") from None
    if name not in imported:
        imported.append(name)


def _import_file(path: Path) -> None:
    if not path.is_file():
        raise InputError("no such file")
    name = f"ergnn_plugin_{path.stem}"
    if getattr(sys.modules.get(name), "__file__", None) == str(path):
        return
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module  # annotations are evaluated in the module of their class
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
