"""A version with its graph and its learner, ready to be asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ergnn.folder.files import FolderError
from ergnn.folder.graph_store import GraphStore
from ergnn.folder.local import LocalGraph, local_graph
from ergnn.folder.model import hops_of
from ergnn.folder.settings import Settings
from ergnn.folder.state import unpack_learner
from ergnn.folder.tensors import Array
from ergnn.folder.versions import Version, open_version
from ergnn.learner import Learner

CHUNK = 2048
"""Nodes that are scored at a time."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a folder knows in one version.

    Args:
        store: the graph.
        learner: the model and the buffer, whose nodes are numbers of the whole graph.
        classes: names of the classes.
        dense: whether attributes are used as a dense matrix.
        hops: how far a node sees.
    """

    version: Version
    store: GraphStore
    learner: Learner
    classes: list[str]
    dense: bool
    hops: int

    @property
    def settings(self) -> Settings:
        return self.version.settings

    def local(self, nodes: Array) -> LocalGraph:
        return local_graph(self.store, nodes, self.hops, self.settings.limits, dense=self.dense)

    def probabilities(self, nodes: Array, chunk: int = CHUNK) -> Iterator[tuple[Array, Array]]:
        """Places in ``nodes`` and probabilities ``[n, classes]``, a chunk at a time; columns are all the classes."""
        order = np.argsort(nodes, kind="stable")  # neighbours in time share their neighbourhoods
        columns = self.learner.classes().cpu().numpy()
        for start in range(0, len(nodes), chunk):
            mine = order[start : start + chunk]
            local = self.local(nodes[mine])
            with torch.no_grad():
                found = self.learner.predict_proba(local.places(nodes[mine]), graph=local.graph).cpu().numpy()
            out = np.zeros((len(mine), len(self.classes)))
            out[:, columns] = found
            yield mine, out


def check_state(state: dict[str, Any], path: Path) -> None:
    """Hold the folder's own part of a state against what it must be."""
    classes, features, dense = state.get("classes"), state.get("num_features"), state.get("dense")
    if (
        not isinstance(classes, list)
        or not all(isinstance(c, str) for c in classes)
        or len(set(classes)) < len(classes)
    ):
        raise FolderError(f"{path}: the class names are malformed")
    if features is not None and (type(features) is not int or features < 1):
        raise FolderError(f"{path}: num_features is {str(features)[:30]}; a whole number was expected")
    if dense not in (None, True, False) or not isinstance(state.get("learner"), dict):
        raise FolderError(f"{path}: is malformed")


def open_snapshot(root: Path, number: int | None = None) -> Snapshot:
    version = open_version(root, number)
    return snapshot_of(version)


def snapshot_of(version: Version) -> Snapshot:
    state, path = version.state, version.path / "state.json"
    check_state(state, path)
    store = GraphStore(version.segments, state["num_features"] or 0)
    learner = unpack_learner(version.settings, state["learner"], version.weights, version.buffer, path)
    outputs = {c for classes in learner.heads.classes for c in classes}
    if not outputs <= set(range(len(state["classes"]))):
        raise FolderError(f"{path}: the learner has a class that has no name")
    buffer = learner.method.buffer
    assert buffer is not None
    if len(buffer) and not 0 <= int(buffer.nodes.min()) <= int(buffer.nodes.max()) < store.num_nodes:
        raise FolderError(f"{path}: a node is remembered that is not there")
    return Snapshot(version, store, learner, state["classes"], bool(state["dense"]), hops_of(version.settings))
