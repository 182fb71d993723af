"""Node embeddings from random walks and skip-gram: DeepWalk and Node2Vec, trained along a stream of tasks."""

from __future__ import annotations

from ergnn.lab.walks.stream import KINDS, WalkSettings, walk_settings, walk_stream

__all__ = ["KINDS", "WalkSettings", "walk_settings", "walk_stream"]
