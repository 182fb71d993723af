"""Plug-ins named on the command line: files and modules that register selectors, backbones, methods, data sets."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from ergnn.config.errors import InputError

imported: list[str] = []
"""Plug-ins imported so far, for other processes to import."""


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
    except InputError as error:
        raise InputError(f"--import {name}: {error}") from None
    except (Exception, SystemExit) as error:  # third-party code can raise anything
        raise InputError(f"--import {name}: cannot be imported ({type(error).__name__}: {error})") from None
    if name not in imported:
        imported.append(name)


def _import_file(path: Path) -> None:
    if not path.is_file():
        raise InputError("no such file")
    module_name = f"ergnn_plugin_{path.stem}"
    loaded = sys.modules.get(module_name)
    if loaded is not None and loaded.__file__ == str(path):
        return
    spec = spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[module_name] = module  # annotations are evaluated in the module of their class
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
