"""A learner in a folder: a graph that grows update by update, and a model that learns along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ergnn.folder.settings import Settings

if TYPE_CHECKING:
    from ergnn.folder.learner_folder import LearnerFolder

__all__ = ["LearnerFolder", "Settings"]


def __getattr__(name: str) -> Any:
    """Import what needs a model only when it is asked for, so that a command's options are read quickly."""
    if name == "LearnerFolder":
        from ergnn.folder.learner_folder import LearnerFolder

        return LearnerFolder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
