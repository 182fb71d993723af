"""Experience replay: which nodes are remembered, and how they are shown again."""

from ergnn.replay.buffer import Experience, ExperienceBuffer
from ergnn.replay.selectors import SELECTORS, Selection, SelectionContext, Selector

__all__ = ["SELECTORS", "Experience", "ExperienceBuffer", "Selection", "SelectionContext", "Selector"]
