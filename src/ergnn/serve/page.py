"""The page at ``/``, which is the page of ``ergnn inspect`` with controls, and the page at ``/docs``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import PurePath
from typing import Any

from ergnn.folder.page import page_of


def live_page(found: dict[str, Any], kept: Sequence[dict[str, Any]]) -> str:
    """The page of a version, with an input field to predict a node and buttons to roll back.

    Args:
        found: the result of ``LearnerFolder.inspect``.
        kept: stored versions, oldest first.
    """
    found = {**found, "folder": PurePath(found["folder"]).name}  # paths of the server are not shown
    return page_of(found, "live.html", "ergnn.serve", number=found["version"], versions=list(reversed(kept)))


def docs_page(openapi: dict[str, Any]) -> str:
    """The OpenAPI description as a self-contained page."""
    from jinja2 import ChainableUndefined, Environment, PackageLoader
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("ergnn.serve"), autoescape=True, undefined=ChainableUndefined, trim_blocks=True
    )
    environment.filters["pretty"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False)
    style = Markup((files("ergnn.pages") / "templates" / "style.css").read_text(encoding="utf-8"))
    return environment.get_template("docs.html").render(api=openapi, style=style)
