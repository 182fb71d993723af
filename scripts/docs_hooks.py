"""Hooks of mkdocs: notebooks from examples/, and names without Sphinx roles."""

import re
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

EXAMPLES = Path(__file__).parents[1] / "examples"


@event_priority(100)  # before the plugin that executes notebooks
def on_files(files: Files, config: Any) -> Files:
    """Add the notebooks as pages ``notebooks/NAME.html``."""
    for path in sorted((EXAMPLES / "notebooks").glob("*.py")):
        name = path.relative_to(EXAMPLES).as_posix()
        files.append(File(name, str(EXAMPLES), config["site_dir"], config["use_directory_urls"]))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Remove Sphinx roles such as :class:`X` from docstrings, so that pages show only the name."""
    return re.sub(r":(?:class|func|meth|mod|attr|data):(?=<code>)", "", html)
