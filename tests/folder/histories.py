"""Folders that are changed at random, beside plain dictionaries of what each of their versions must hold."""

import tempfile
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.data.tables.kinds import Codes
from ergnn.data.tables.node_tables import SPLITS
from ergnn.folder import LearnerFolder, Settings
from ergnn.folder.database import kept_versions
from ergnn.folder.spool import Job, Spool
from ergnn.learning.learner import Learner
from folder.growing import FEATURES, edges_of, nodes_of, objects

CLASSES = ("crimson", "emerald", "sapphire", "charcoal")


@dataclass
class Whole:
    """The graph and labels that a folder must hold, in plain dictionaries."""

    directed: bool = False
    x: dict[str, np.ndarray] = field(default_factory=dict)
    label: dict[str, str] = field(default_factory=dict)
    split: dict[str, str] = field(default_factory=dict)
    edges: set[tuple[str, str]] = field(default_factory=set)

    def add(self, names: list[str], labels: Sequence[str | None], splits: Sequence[str | None]) -> None:
        self.label |= {name: label for name, label in zip(names, labels, strict=True) if label}
        self.split |= {name: split for name, split in zip(names, splits, strict=True) if split}

    def link(self, pairs: list[tuple[str, str]]) -> None:
        self.edges |= {*pairs} if self.directed else {*pairs, *((b, a) for a, b in pairs)}

    def remove(self, ids: list[str]) -> None:
        for name in ids:
            for part in (self.x, self.label, self.split):
                part.pop(name, None)
        self.edges = {(a, b) for a, b in self.edges if a not in ids and b not in ids}

    def expected(self, settings: Settings) -> tuple[list[str], np.ndarray]:
        """Class names and probabilities of all nodes, from a learner that learns everything at once."""
        place = {name: i for i, name in enumerate(self.x)}
        trained = [name for name in self.label if self.split[name] == "train"]
        names = sorted({self.label[name] for name in trained})
        y = torch.full((len(place),), -1)
        for name in trained:
            y[place[name]] = names.index(self.label[name])
        pairs = [[place[a], place[b]] for a, b in sorted(self.edges)]
        edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T.contiguous()
        graph = Graph(torch.from_numpy(np.stack(list(self.x.values()))), edges, y)
        learner, none = Learner(settings.config), torch.empty(0, dtype=torch.long)
        train = (y >= 0).nonzero().flatten()
        learner.observe(Task(0, graph, train, none, none, tuple(range(len(names)))))
        return names, learner.predict_proba(torch.arange(len(place)), graph=graph).numpy()

    def in_a_folder(self, settings: Settings) -> tuple[list[str], np.ndarray]:
        """The same from a folder that observes everything in one update, in another order."""
        order = sorted(self.x, key=lambda name: name[::-1])
        table = nodes_of(
            order,
            [self.label.get(name) for name in order],
            np.stack([self.x[name] for name in order]),
            split=objects([self.split.get(name) for name in order]),
        )
        with tempfile.TemporaryDirectory() as root:
            folder = LearnerFolder.create(Path(root) / "at once", settings)
            folder.observe(table, edges_of(*sorted(self.edges)) if self.edges else None)
            parts = list(folder.predict(list(self.x)))
        return parts[0][1], np.concatenate([part[2] for part in parts])


def check(folder: LearnerFolder, whole: Whole, *, with_folder: bool = False) -> None:
    """The folder's predictions are those of learning at once; whether many or few are asked for."""
    names, expected = (whole.in_a_folder if with_folder else whole.expected)(folder.settings)
    ids = list(whole.x)
    for wanted in (ids, ids[:2]):
        parts = list(folder.predict(wanted))
        found = np.concatenate([part[2] for part in parts])
        columns = [parts[0][1].index(name) for name in names]
        assert len(names) == len(parts[0][1])
        np.testing.assert_allclose(found[:, columns], expected[: len(wanted)], atol=1e-8, rtol=0)


class Audit:
    """A folder and all that each of its versions must hold, changed at random.

    Ids have one length, so that none is part of another.
    """

    def __init__(self, root: Path, seed: int, settings: Settings, labels: int = 0) -> None:
        self.rng, self.exact = np.random.default_rng([77, seed]), settings.learner.method == "analytic"
        directed, self.sparse = bool(self.rng.random() < 0.3), bool(self.rng.random() < 0.3)
        settings = settings.with_settings({"directed": directed, "keep": 4, "eval_samples": 20})
        self.folder, self.spool = LearnerFolder.create(root, settings), Spool(root)
        self.versions = {0: Whole(directed)}
        self.current = self.newest = 0
        self.gone: set[str] = set()
        self.x: dict[str, np.ndarray] = {}
        self.past: list[np.ndarray] = []
        self.observe(labels or 12)

    @property
    def whole(self) -> Whole:
        return self.versions[self.current]

    def next_version(self) -> Whole:
        """A copy of the current version that becomes the newest."""
        whole = deepcopy(self.whole)
        self.newest += 1
        kept = sorted(number for number in self.versions if number <= self.current)[-3:]
        self.versions = {number: self.versions[number] for number in kept} | {self.newest: whole}
        self.current = self.newest
        return whole

    def draw(self, count: int, names: Iterable[str] | None = None) -> list[str]:
        names = sorted(self.whole.x if names is None else names)
        return [str(name) for name in self.rng.permutation(names)[:count]]

    def pairs(self, count: int, names: list[str]) -> list[tuple[str, str]]:
        everyone = [*self.whole.x, *names]
        return [(everyone[a], everyone[b]) for a, b in self.rng.integers(0, len(everyone), (count, 2))]

    def features(self, count: int) -> np.ndarray:
        x = self.rng.random((count, FEATURES)).astype(np.float32)
        if self.sparse:
            x *= np.eye(FEATURES, dtype=np.float32)[self.rng.integers(0, FEATURES, count)]
        self.past += list(x)
        return x

    def change(self) -> None:
        """Other features of known nodes, with new edges, labels and corrections, which a network refuses."""
        names = self.draw(3)
        if not names or not self.exact:
            return
        x, pairs = self.features(len(names)), self.pairs(3, [])
        labels = [str(self.rng.choice(CLASSES)), None, None][: len(names)]
        splits = objects([self.whole.split.get(names[0], "train"), *labels[1:]])
        counts = self.folder.observe(nodes_of(names, labels, x, split=splits), edges_of(*pairs))["counts"]
        assert (counts["nodes"], counts["changed"]) == (0, len(names))
        whole = self.next_version()
        self.x |= dict(zip(names, x, strict=True))
        whole.x |= dict(zip(names, x, strict=True))
        whole.add(names, labels, splits)
        whole.link(pairs)

    def add(self, ids: list[str], share: float = 0.6) -> None:
        """New nodes with edges to any nodes, some of them labeled."""
        x = self.features(len(ids))
        labels = [str(self.rng.choice(CLASSES)) if self.rng.random() < share else None for _ in ids]
        splits = [str(self.rng.choice(["train", "train", "test"])) if label else None for label in labels]
        pairs = self.pairs(len(ids), ids)
        self.folder.observe(nodes_of(ids, labels, x, split=objects(splits)), edges_of(*pairs))
        whole = self.next_version()
        self.x |= dict(zip(ids, x, strict=True))
        whole.x |= dict(zip(ids, x, strict=True))
        whole.add(ids, labels, splits)
        whole.link(pairs)

    def observe(self, count: int = 8) -> None:
        self.add([f"node-{len(self.x) + i:06d}" for i in range(count)], 1.0 if count > 1000 else 0.6)

    def add_again(self) -> None:
        if names := self.draw(3, self.gone):
            self.add(names)
            self.gone -= set(names)

    def label(self) -> None:
        """Labels of nodes that had none, and corrections, which a network refuses."""
        names = self.draw(3, None if self.exact else set(self.whole.x) - set(self.whole.label))
        if not names:
            return
        old = [self.whole.label.get(name) for name in names]
        new = [str(self.rng.choice([c for c in CLASSES if c != label])) for label in old]
        splits = objects([self.whole.split.get(name, "train") for name in names])
        self.folder.observe(nodes_of(names, new, split=splits))
        self.next_version().add(names, new, splits.tolist())

    def link(self) -> None:
        pairs = self.pairs(4, [])
        self.folder.observe(edges=edges_of(*pairs))
        self.next_version().link(pairs)

    def forget(self) -> None:
        names = self.draw(int(self.rng.integers(1, 5)))
        if len(names) < len(self.whole.x):
            self.folder.forget(names)
            self.next_version().remove(names)
            self.gone |= set(names)

    def rollback(self) -> None:
        self.current = int(self.rng.choice(sorted(self.versions)[-3:]))
        if self.whole.x:
            self.folder.rollback(self.current)
        else:
            self.current = self.folder.rollback(self.newest)
        self.gone -= set(self.whole.x)

    def purge(self) -> None:
        """Purge with updates in the spool that name forgotten nodes, and search all bytes."""
        names, others = sorted(self.gone), self.draw(2)
        jobs = [self.queue(names[:1] + others), self.queue(others)]
        if self.rng.random() < 0.5:
            self.folder.forget(names, purge=True)
        else:
            self.folder.purge(names)
        assert [self.spool.holds_files(job) for job in jobs] == [not names, True]
        self.spool.finish(jobs[1], "deleted")
        self.versions = {self.current: self.whole}
        traces = [name.encode() for name in self.gone]
        current = {x.tobytes() for x in self.whole.x.values()}
        values = [] if self.sparse else [x for x in self.past if x.tobytes() not in current]
        traces += [x.tobytes() for x in values]
        traces += [np.stack([x, 0 * x], 1).tobytes() for x in values]  # as codes of columns
        if self.exact:  # a network has an output for a class that it learned
            traces += [name.encode() for name in CLASSES if name not in self.whole.label.values()]
        for path in (path for path in self.folder.root.rglob("*") if path.is_file()):
            data = path.read_bytes()
            assert not [text for text in traces if text in data], path

    def queue(self, names: list[str]) -> Job:
        with self.spool.incoming() as directory:
            rows = [",".join([name, *map(str, self.x[name])]) for name in names]
            header = ",".join(["id", *(f"f{i}" for i in range(FEATURES))])
            (directory / "nodes.csv").write_text("\n".join([header, *rows]) + "\n")
            return self.spool.add(directory, "observe", "an update")

    def step(self) -> str:
        """Change the folder; it must hold what it should, and be the one that learns at once."""
        operations = ("observe", "label", "link", "change", "forget", "forget", "rollback", "purge", "add_again")
        operation = str(self.rng.choice(operations))
        getattr(self, operation)()
        assert self.folder.check() == []
        for version in {self.current, int(self.rng.choice(sorted(self.versions)))}:
            self.check_contents(version)
        if self.exact and "train" in self.whole.split.values():
            check(self.folder, self.whole, with_folder=True)
        return operation

    def check_contents(self, version: int) -> None:
        """The graph, labels and remembered nodes of a version are those of the dictionaries."""
        whole = self.versions[version]
        with self.folder.snapshot(version) as snapshot:
            graph, nodes = snapshot.graph, snapshot.graph.nodes()
            ids = graph.names(nodes)
            assert sorted(ids) == sorted(whole.x)
            assert graph.find([*ids[::-1], "nobody"]).tolist() == [*nodes.tolist()[::-1], -1]
            assert kept_versions(snapshot.connection) == sorted(self.versions)
            label, split, _ = graph.labels(nodes)
            assert {name: snapshot.classes[c] for name, c in zip(ids, label, strict=True) if c >= 0} == whole.label
            assert {name: SPLITS[i] for name, i in zip(ids, split, strict=True) if i >= 0} == whole.split
            target, source, _ = graph.neighbors(nodes)
            assert set(zip(graph.names(source), graph.names(nodes[target]), strict=True)) == whole.edges
            x = graph.stored_features(nodes)
            if graph.encoding:
                x = Codes.from_matrix(x, len(next(iter(whole.x.values())))).numbers.astype(np.float32)
            x = x if isinstance(x, np.ndarray) else x.toarray()
            np.testing.assert_array_equal(x, np.array([whole.x[name] for name in ids]).reshape(x.shape))
            remembered = graph.names(snapshot.learner.buffer.nodes.numpy())
            assert len(set(remembered)) == len(remembered)
            classes = [snapshot.classes[c] for e in snapshot.learner.buffer.experiences for c in e.labels.tolist()]
            assert classes == [whole.label[name] for name in remembered]
