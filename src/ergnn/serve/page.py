"""The page at ``/``, which is the page of ``ergnn inspect`` with controls, and the page at ``/docs``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from ergnn.folder.page import folder_page
from ergnn.pages.page import render_page


def live_page(inspection: dict[str, Any], versions: Sequence[dict[str, Any]]) -> str:
    """The page of a version, with an input field to predict a node and buttons to roll back.

    Args:
        inspection: the result of ``LearnerFolder.inspect``.
        versions: stored versions, oldest first.
    """
    shown = {**inspection, "folder": PurePath(inspection["folder"]).name}  # paths of the server are not shown
    values = {"number": shown["version"], "versions": list(reversed(versions))}
    return folder_page(shown, "live.html", "ergnn.serve", **values)


def docs_page(openapi: dict[str, Any]) -> str:
    """The OpenAPI description as a self-contained page."""
    return render_page("docs.html", "ergnn.serve", api=openapi)
