"""A learner in a folder: a growing graph and a model that learns from it, in one database."""

from typing import TYPE_CHECKING

from ergnn.config.imports import lazy_names
from ergnn.folder.settings import Settings

if TYPE_CHECKING:
    from ergnn.folder.learner_folder import LearnerFolder

__all__ = ["LearnerFolder", "Settings"]

# Importing torch takes seconds; parsing the options of a command does not need it.
__getattr__ = lazy_names(__name__, {"ergnn.folder.learner_folder": ("LearnerFolder",)})
