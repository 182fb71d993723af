"""Experience replay: selectors of nodes, and the buffer that stores and replays them."""

from ergnn.replay.buffer import Experience, ExperienceBuffer
from ergnn.replay.selectors import SELECTORS, Selection, SelectionContext, Selector

__all__ = ["SELECTORS", "Experience", "ExperienceBuffer", "Selection", "SelectionContext", "Selector"]
