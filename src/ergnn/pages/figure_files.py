"""Figures as files: SVG with the colors of the light theme, and PNG or PDF where a converter is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files
from pathlib import Path

from ergnn.config.errors import InputError

SUFFIXES = (".svg", ".png", ".pdf")
SCALE = {"png": 2, "pdf": 1}
"""Pixels per pixel of the drawing."""
CONVERTERS = "cairosvg (pip install cairosvg) or rsvg-convert (of librsvg)"


def check_figure_file(path: str | Path) -> None:
    """Raise an error if no figure can be written to a file."""
    suffix, folder = Path(path).suffix, Path(path).absolute().parent
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: a figure is written as one of: {', '.join(SUFFIXES)}")
    if not folder.is_dir():
        raise InputError(f"{path}: no such folder: {folder}")
    if suffix != ".svg" and converter() is None:
        raise InputError(f"{path}: a figure as {suffix} needs {CONVERTERS}; without it, write .svg")


@cache
def file_style() -> str:
    """Return the style with the values of its variables, which most programs other than browsers do not know."""
    templates = files("ergnn.pages") / "templates"
    light_theme = (templates / "style.css").read_text(encoding="utf-8").partition("}")[0]
    values = dict(re.findall(r"--([\w-]+): ([^;]+);", light_theme))
    rules = (templates / "figures.css").read_text(encoding="utf-8")
    return re.sub(r"var\(--([\w-]+)\)", lambda name: values[name[1]], rules).strip()


def converter() -> Callable[[bytes, str], bytes] | None:
    """Return a function from an SVG and ``png`` or ``pdf`` to the content of the file; None if none is installed."""
    try:
        import cairosvg
    except (ImportError, OSError):  # the module, or the library that it loads
        program = shutil.which("rsvg-convert")
        return partial(_convert_by_program, program) if program else None
    return lambda svg, format: bytes(getattr(cairosvg, f"svg2{format}")(bytestring=svg, scale=SCALE[format]))


def _convert_by_program(program: str, svg: bytes, format: str) -> bytes:
    command = [program, f"--format={format}", f"--zoom={SCALE[format]}"]
    done = subprocess.run(command, input=svg, capture_output=True, check=False)
    if done.returncode:
        raise InputError(f"{program} failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
