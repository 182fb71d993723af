"""The closed-form learner of a folder: the head is a function of the graph and the labels, so it is always exact."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save

from ergnn.analytic import FEATURE_MAPS, Features, Inputs, NormalizedAdjacency, RidgeSolution, fit_ridge
from ergnn.analytic.state import choose
from ergnn.errors import InputError
from ergnn.folder.database import FolderError, reading_values
from ergnn.folder.graph import SPLITS, Array, StoredGraph
from ergnn.folder.local import LocalGraph, read_subgraph
from ergnn.folder.row_cache import RowCache
from ergnn.folder.settings import Settings
from ergnn.folder.state import load_tensors
from ergnn.folder.versions import Version, get_blob, put_blob
from ergnn.learner import Learner
from ergnn.methods.analytic import Analytic, working_dtype
from ergnn.replay.buffer import Experience, ExperienceBuffer

if TYPE_CHECKING:
    from ergnn.folder.learning import Checkpoints
    from ergnn.folder.snapshot import Snapshot

TRAIN = SPLITS.index("train")


class AnalyticLearner:
    """Ridge regression on propagated features, solved from all training labels of the graph as it is now.

    After any updates, corrections and removals, the head is the one that the final graph gives at once. See
    :class:`ergnn.methods.analytic.Analytic`.
    """

    exact = True
    all_at_once = True

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        learner = Learner(settings.config)
        assert isinstance(learner.method, Analytic)
        self.method, self.device = learner.method, learner.device
        if self.method.memory != "nodes":
            raise InputError(f"memory is {self.method.memory!r}; in a folder, whose graph stays, it must be 'nodes'")
        if self.method.student:
            raise InputError("student is true; a folder does not train one")
        self.solution: RidgeSolution | None = None
        self.chosen = 0
        self.sketch: int | None = None
        self._version = 0
        self._cache: RowCache | None = None
        self._graph: StoredGraph | None = None
        self._read: tuple[StoredGraph, LocalGraph, list[Features]] | None = None

    @property
    def num_tasks(self) -> int:
        """0 until something has been learned; the head knows no tasks."""
        return int(self.solution is not None)

    @property
    def buffer(self) -> ExperienceBuffer:
        """The training nodes of each update: all labels count."""
        buffer = ExperienceBuffer()
        if self._graph is not None:
            nodes, labels, splits, updates = map(torch.from_numpy, self._graph.labeled())
            for update in updates.unique():
                mine = (updates == update) & (splits == TRAIN)
                score = torch.full((int(mine.sum()),), torch.nan)
                buffer.experiences.append(Experience(int(update), nodes[mine], labels[mine], score))
        return buffer

    def classes(self) -> list[int]:
        """The classes that were learned."""
        return [] if self.solution is None else self.solution.classes.tolist()

    def learn(
        self,
        graph: StoredGraph,
        update: int,
        train: tuple[Array, Array],
        val: tuple[Array, Array],
        names: list[str],
        checkpoints: Checkpoints | None = None,
    ) -> dict[str, Any]:
        """Solve the head in a graph that holds one more update; returns what :class:`NetworkLearner` does."""
        touched = self.solve(graph)
        classes = [names[c] for c in np.unique(train[1])]
        return {"task": update if classes else None, "classes": classes, "drift": None, "touched": touched}

    def forget(self, snapshot: Snapshot, nodes: Array) -> list[list[Any]]:
        """Solve the head in a graph that some nodes have left; no node takes their place."""
        self.solve(snapshot.graph)
        return []

    def solve(self, graph: StoredGraph) -> int:
        """Solve the head from all training labels in a graph; returns the number of nodes that were read."""
        labeled, labels, splits, _ = graph.labeled()
        nodes, labels = labeled[splits == TRAIN], labels[splits == TRAIN]
        self._graph, self._read, self._cache, self.solution = graph, None, None, None
        if not len(nodes):
            return 0
        self.sketch = self.method.sketch_size(graph.num_features, len(nodes))
        maps, dtype = self.method.maps, working_dtype(graph.num_nodes, graph.num_features)
        cache = RowCache(graph, self._version, f"{self.sketch} {dtype}", self.settings.directed, maps)
        width = self.sketch or graph.num_features
        loaded = [cache.load(each, nodes, each.num_blocks * width + 1, dtype) for each in maps]
        new = ~np.logical_and.reduce([known for known, _ in loaded])
        roots = labeled if new.all() else nodes[new]  # held-out nodes as well, if all is read: they are scored next
        local, features = self._features(graph, roots, max(each.num_hops for each in maps))
        target, solutions = torch.from_numpy(labels).to(self.device), []
        for each, (known, old) in zip(features, loaded, strict=True):
            rows = torch.empty(len(nodes), each.width, dtype=dtype, device=self.device)
            mask = torch.from_numpy(known).to(self.device)
            rows[mask] = old.to(self.device)
            rows[~mask] = each.rows(local.places(nodes[~known]).to(self.device))
            cache.put(each.feature_map, nodes, ~known, rows)
            solutions.append(fit_ridge(rows, target, lambdas=self.method.lambdas))
        self.chosen, self.solution = choose(solutions)
        self._cache = cache
        return len(local.nodes)

    def probabilities(
        self, graph: StoredGraph, nodes: Array, num_classes: int, chunk: int = 0
    ) -> Iterator[tuple[Array, Array]]:
        """Places in ``nodes`` and probabilities ``[n, num_classes]``, all at once: their neighborhoods overlap."""
        assert self.solution is not None
        local, all_features = self._features(graph, nodes, self.method.maps[self.chosen].num_hops)
        features, places = all_features[self.chosen], local.places(nodes).to(self.device)
        weight = self.solution.weight
        if len(nodes) < features.inputs.width:
            scores = features.rows(places).double() @ weight
        else:
            scores = features.scores(weight)[places].double()
        out = np.zeros((len(nodes), num_classes))
        out[:, self.classes()] = torch.softmax(self.solution.temperature * scores, 1).cpu().numpy()
        yield np.arange(len(nodes)), out

    def _features(self, graph: StoredGraph, nodes: Array, num_hops: int) -> tuple[LocalGraph, list[Features]]:
        """A part of the graph in which φ of some nodes is exact, and φ under each map."""
        if self._read is not None and self._read[0] is graph:
            local, features = self._read[1:]
            if local.closed and np.isin(nodes, local.nodes).all():
                return local, features
        local = read_subgraph(graph, nodes, num_hops, self.settings.limits)
        part, dtype = local.graph.to(self.device), working_dtype(graph.num_nodes, graph.num_features)
        operator, inputs = NormalizedAdjacency(part), Inputs(part, self.sketch, dtype)
        features = [Features(each, operator, inputs) for each in self.method.maps]
        self._read = graph, local, features
        return local, features

    def state(self) -> dict[str, Any]:
        if self.solution is None:
            return {}
        return {
            "map": self.method.maps[self.chosen].name,
            "sketch": self.sketch,
            "lam": self.solution.lam,
            "temperature": self.solution.temperature,
            "loo_error": self.solution.loo_error,
        }

    def describe(self, classes: list[str]) -> dict[str, Any]:
        """What the exported weights mean."""
        outputs = [[i, classes[c]] for i, c in enumerate(self.classes())]
        chosen, given = self.method.maps[self.chosen], self.settings.config.method_options
        own = FEATURE_MAPS.resolve(given.get("feature_map", "auto")) == chosen.name
        options = given.get("map_options") or {} if own else {}
        return {"method": "analytic", **self.state(), "map_options": options, "outputs": outputs}

    def write(self, connection: sqlite3.Connection, version: int) -> None:
        """Store the head with a version: W and the class of each column, as safetensors."""
        if self._cache is not None:
            self._cache.write(version)
        if self.solution is None:
            return
        tensors = {"weight": self.solution.weight.cpu().contiguous(), "classes": self.solution.classes.cpu()}
        put_blob(connection, version, "weights", save(tensors, {k: str(v) for k, v in self.state().items()}))

    def read(self, connection: sqlite3.Connection, version: Version) -> None:
        """Bring a new learner to the state of a version."""
        self._version = version.number
        self._graph = StoredGraph.of(connection, version)
        with reading_values(f"the learner of version {version.number}"):
            state = version.state["learner"]
            if not state:
                return
            tensors = load_tensors(get_blob(connection, version.number, "weights") or b"")
            names = [each.name for each in self.method.maps]
            self.chosen, self.sketch = names.index(state["map"]), state["sketch"]
            width = self.method.maps[self.chosen].num_blocks * (self.sketch or self._graph.num_features) + 1
            weight, classes = tensors["weight"].double(), tensors["classes"]
            if weight.shape != (width, classes.numel()) or not bool(torch.isfinite(weight).all()):
                raise FolderError(f"the head of version {version.number} does not fit its features: it is damaged")
            lam, temperature, error = float(state["lam"]), float(state["temperature"]), state["loo_error"]
            parts = (weight.to(self.device), classes.to(self.device), lam, temperature, weight[:0], error)
            self.solution = RidgeSolution(*parts)
