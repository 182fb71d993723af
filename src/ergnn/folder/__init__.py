"""A learner in a folder: a graph that grows update by update, and a model that learns along."""

from typing import TYPE_CHECKING

from ergnn.folder.settings import Settings
from ergnn.lazy import lazy_names

if TYPE_CHECKING:
    from ergnn.folder.learner_folder import LearnerFolder

__all__ = ["LearnerFolder", "Settings"]

# Importing a model takes seconds; reading the options of a command must not.
__getattr__ = lazy_names(__name__, {"ergnn.folder.learner_folder": ("LearnerFolder",)})
