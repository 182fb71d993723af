"""Any order of observing, forgetting and rolling back, against a plain model of what the folder must hold."""

from __future__ import annotations

import shutil
import tempfile
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ergnn.folder import LearnerFolder
from folder.growing import edges_of, nodes_of, quick, x_of

CLASSES = ("red", "green", "blue")


@dataclass
class Known:
    """What one version must hold."""

    x: dict[str, np.ndarray] = field(default_factory=dict)
    label: dict[str, str] = field(default_factory=dict)
    edges: set[tuple[str, str]] = field(default_factory=set)
    learned: set[str] = field(default_factory=set)


class FolderMachine(RuleBasedStateMachine):
    """Nodes are named a0, a1, …; versions are kept in a dictionary beside the folder."""

    @initialize()
    def make(self) -> None:
        self.place = Path(tempfile.mkdtemp())
        self.folder = LearnerFolder.create(self.place / "d", quick(epochs=1, per_class=2, keep=3, val=0.0, test=0.25))
        self.versions = {0: Known()}
        self.current = self.newest = 0
        self.count = 0

    @property
    def known(self) -> Known:
        return self.versions[self.current]

    def _next(self, known: Known) -> None:
        self.newest += 1
        self.versions = {n: version for n, version in self.versions.items() if n <= self.current}
        self.versions[self.newest] = known
        self.versions = {n: self.versions[n] for n in sorted(self.versions)[-3:]}
        self.current = self.newest

    @rule(size=st.integers(1, 6), seed=st.integers(0, 10**6), labeled=st.floats(0, 1))
    def observe(self, size: int, seed: int, labeled: float) -> None:
        rng = np.random.default_rng(seed)
        known = deepcopy(self.known)
        ids = [f"a{self.count + i}" for i in range(size)]
        self.count += size
        x = x_of(size, seed)
        labels = [CLASSES[rng.integers(3)] if rng.random() < labeled else None for _ in ids]
        everybody = [*known.x, *ids]
        pairs = [(everybody[a], everybody[b]) for a, b in rng.integers(0, len(everybody), (2 * size, 2))]
        self.folder.observe(nodes_of(ids, labels, x), edges_of(*pairs))
        known.x |= dict(zip(ids, x, strict=True))
        known.label |= {name: label for name, label in zip(ids, labels, strict=True) if label}
        known.edges |= set(pairs) | {(b, a) for a, b in pairs}
        self._learn(known, ids)

    def _learn(self, known: Known, ids: list[str]) -> None:
        self._next(known)
        known.learned |= {known.label[name] for name in ids if name in known.label}

    @precondition(lambda self: len(self.known.x) > len(self.known.label))
    @rule(data=st.data(), label=st.sampled_from(CLASSES))
    def label(self, data: st.DataObject, label: str) -> None:
        known = deepcopy(self.known)
        name = data.draw(st.sampled_from(sorted(set(known.x) - set(known.label))))
        self.folder.observe(nodes_of([name], [label]))
        known.label[name] = label
        self._learn(known, [name])

    @precondition(lambda self: len(self.known.x) > 1)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        known = deepcopy(self.known)
        gone = data.draw(st.lists(st.sampled_from(sorted(known.x)), min_size=1, max_size=3, unique=True))
        report = self.folder.forget(gone)
        known.x = {name: x for name, x in known.x.items() if name not in gone}
        known.label = {name: label for name, label in known.label.items() if name not in gone}
        left = {pair for pair in known.edges if not set(pair) & set(gone)}
        assert report["edges"] == len(known.edges) - len(left)
        known.edges = left
        self._next(known)

    @precondition(lambda self: len(self.versions) > 1)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        self.current = data.draw(st.sampled_from(sorted(self.versions)))
        assert self.folder.rollback(self.current) == self.current

    @invariant()
    def holds_what_it_must(self) -> None:
        known, snapshot = self.known, self.folder.snapshot()
        assert self.folder.inspect()["versions"] == sorted(self.versions)
        assert self.folder.check() == []
        names = sorted(known.x)
        nodes = snapshot.graph.find(names)
        assert (nodes >= 0).all()
        assert sorted(snapshot.graph.nodes()) == sorted(nodes)
        version = snapshot.version
        assert (version.nodes, version.edges, version.labeled) == (len(names), len(known.edges), len(known.label))
        label = snapshot.graph.labels(nodes)[0]
        assert [snapshot.classes[c] if c >= 0 else None for c in label] == [known.label.get(name) for name in names]
        order = np.sort(nodes)
        row, source = snapshot.graph.neighbors(order)
        edges = zip(snapshot.graph.names(source), snapshot.graph.names(order[row]), strict=True)
        assert set(edges) == known.edges
        x = snapshot.graph.features(order)
        x = x if isinstance(x, np.ndarray) else x.toarray()
        if names:
            np.testing.assert_array_equal(x, np.array([known.x[name] for name in snapshot.graph.names(order)]))
        buffer = snapshot.learner.buffer
        remembered = snapshot.graph.names(buffer.nodes.numpy())
        assert len(set(remembered)) == len(remembered)
        assert [snapshot.classes[c] for part in buffer.experiences for c in part.labels.tolist()] == [
            known.label[name] for name in remembered
        ]
        if known.learned:
            ((_, classes, p),) = (
                self.folder.predict(names) if names else [([], sorted(known.learned), np.zeros((0, 1)))]
            )
            assert set(classes) == known.learned
            assert np.isfinite(p).all()

    def teardown(self) -> None:
        if hasattr(self, "place"):
            shutil.rmtree(self.place)


TestFolder = FolderMachine.TestCase
TestFolder.settings = settings(
    max_examples=8, stateful_step_count=8, deadline=None, suppress_health_check=list(HealthCheck)
)
