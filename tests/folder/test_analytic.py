"""The closed form in a folder: whatever came, was corrected or left, it is what the final graph gives at once."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ergnn.analytic import FEATURE_MAPS, Features, Inputs, NormalizedAdjacency
from ergnn.cli.main import main
from ergnn.config.errors import InputError
from ergnn.data.graph import Graph
from ergnn.data.partial import LocalGraph, read_subgraph
from ergnn.data.stream import Task
from ergnn.data.tables.node_tables import EdgeTable, NodeTable
from ergnn.folder import LearnerFolder, Settings, solved
from ergnn.folder.database import FolderError, writing
from ergnn.folder.row_cache import MapRows
from ergnn.folder.spool import Job, Spool
from ergnn.learning.learner import Learner
from folder.growing import FEATURES, edges_of, nodes_of, objects, own_graph, probabilities, tables, x_of

CLASSES = ("crimson", "emerald", "sapphire", "charcoal")


@dataclass
class Whole:
    """The graph and labels that a folder must hold, in plain dictionaries."""

    directed: bool = False
    x: dict[str, np.ndarray] = field(default_factory=dict)
    label: dict[str, str] = field(default_factory=dict)
    split: dict[str, str] = field(default_factory=dict)
    edges: set[tuple[str, str]] = field(default_factory=set)

    def link(self, pairs: list[tuple[str, str]]) -> None:
        for a, b in pairs:
            self.edges |= {(a, b)} if self.directed else {(a, b), (b, a)}

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
        learner, none = Learner(settings.config.with_settings({"scale": "rows"})), torch.empty(0, dtype=torch.long)
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
        parts = list(folder.predict(wanted, chunk=7))
        found = np.concatenate([part[2] for part in parts])
        columns = [parts[0][1].index(name) for name in names]
        assert len(names) == len(parts[0][1])
        np.testing.assert_allclose(found[:, columns], expected[: len(wanted)], atol=1e-8, rtol=0)


class Audit:
    """A folder and all that each of its versions must hold, changed at random.

    Ids have one length, so that none is part of another.
    """

    def __init__(self, root: Path, seed: int, labels: int = 0) -> None:
        self.rng = np.random.default_rng([77, seed])
        options: dict[str, Any] = dict(OPTIONS[seed % len(OPTIONS)])
        self.directed = bool(self.rng.random() < 0.3)
        settings = Settings.from_settings({"directed": self.directed, "keep": 4, "eval_samples": 20, **options})
        self.folder, self.spool = LearnerFolder.create(root, settings), Spool(root)
        self.versions = {0: Whole(self.directed)}
        self.current = self.newest = 0
        self.gone: set[str] = set()
        self.x: dict[str, np.ndarray] = {}
        self.observe(labels) if labels else self.observe(12)

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

    def add(self, ids: list[str], share: float = 0.6) -> None:
        """New nodes with edges to any nodes, some of them labeled."""
        x = self.rng.random((len(ids), FEATURES)).astype(np.float32)
        labels = [str(self.rng.choice(CLASSES)) if self.rng.random() < share else None for _ in ids]
        splits = [str(self.rng.choice(["train", "train", "test"])) if label else None for label in labels]
        pairs = self.pairs(len(ids), ids)
        self.folder.observe(nodes_of(ids, labels, x, split=objects(splits)), edges_of(*pairs))
        whole = self.next_version()
        self.x |= dict(zip(ids, x, strict=True))
        whole.x |= dict(zip(ids, x, strict=True))
        whole.label |= {name: label for name, label in zip(ids, labels, strict=True) if label}
        whole.split |= {name: split for name, split in zip(ids, splits, strict=True) if split}
        whole.link(pairs)

    def observe(self, count: int = 8) -> None:
        self.add([f"node-{len(self.x) + i:06d}" for i in range(count)], 1.0 if count > 1000 else 0.6)

    def add_again(self) -> None:
        if names := self.draw(3, self.gone):
            self.add(names)
            self.gone -= set(names)

    def label(self) -> None:
        """Labels of nodes that had none, and corrections."""
        names = self.draw(3)
        old = [self.whole.label.get(name) for name in names]
        new = [str(self.rng.choice([c for c in CLASSES if c != label])) for label in old]
        splits = objects([self.whole.split.get(name, "train") for name in names])
        self.folder.observe(nodes_of(names, new, split=splits))
        whole = self.next_version()
        whole.label |= dict(zip(names, new, strict=True))
        whole.split |= dict(zip(names, splits.tolist(), strict=True))

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
        traces = [text for name in self.gone for text in (name.encode(), self.x[name].tobytes())]
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
        """Change the folder; it must then be the one that learns at once."""
        operations = ("observe", "label", "link", "forget", "forget", "rollback", "purge", "add_again")
        operation = str(self.rng.choice(operations))
        getattr(self, operation)()
        assert self.folder.check() == []
        if "train" in self.whole.split.values():
            check(self.folder, self.whole, with_folder=True)
        return operation


OPTIONS: list[dict[str, Any]] = [
    {"scale": "rows"},
    {"feature_map": "hops"},
    {"feature_map": "ppr", "sketch": 5, "lam": 0.1},
    {"map_options": {"max_edges": 30}},  # which the graph exceeds after a few updates
    {"feature_map": "hops", "map_options": {"num_hops": 1}, "sketch": 3},  # sums once there are many labels
]


@pytest.mark.parametrize("seed", range(6))
def test_any_changes_equal_learning_at_once_and_leave_no_byte(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed == 4:
        monkeypatch.setattr("ergnn.folder.row_cache.LOO_ROWS", 20)
    audit = Audit(tmp_path / "d", seed, 60 if seed == 4 else 0)
    for _ in range(10):
        audit.step()
    if "scale" in OPTIONS[seed % len(OPTIONS)]:
        check(audit.folder, audit.whole)  # with a learner in memory


@pytest.mark.slow
def test_160_folders_with_ten_changes_each(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(160):
        audit = Audit(tmp_path / "d", seed, 2300 if seed % 16 == 4 else 0)  # above the rows of leave-one-out
        counts.update(audit.step() for _ in range(10))
        counts["labels above 2,048"] += len(audit.whole.label) > 2048
        shutil.rmtree(tmp_path / "d")
    print(f"160 folders, {sum(counts.values()):,} changes: {dict(counts)}")
    assert min(counts.values()) >= 5


def chain(
    folder: LearnerFolder, whole: Whole, rng: np.random.Generator, first: int, size: int, *far: str
) -> dict[str, Any]:
    """Observe a chain of labeled nodes that goes on, with edges to other nodes if they are named."""
    ids = [f"v{first + i}" for i in range(size)]
    labels: list[str | None] = [str(rng.choice(CLASSES)) for _ in ids]
    pairs = [(f"v{i}", f"v{i - 1}") for i in range(max(first, 1), first + size) if i > first or f"v{i - 1}" in whole.x]
    pairs += [(ids[-1], name) for name in far]
    x = x_of(size, first)
    whole.x |= dict(zip(ids, x, strict=True))
    whole.label |= dict(zip(ids, map(str, labels), strict=True))
    whole.split |= dict.fromkeys(ids, "train")
    whole.link(pairs)
    return folder.observe(nodes_of(ids, labels, x, split=np.array(["train"] * size, object)), edges_of(*pairs))


@pytest.mark.parametrize("seed", range(3))
def test_sums_that_are_updated_give_what_learning_at_once_gives(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("folder.row_cache", "analytic.ridge"):
        monkeypatch.setattr(f"ergnn.{module}.LOO_ROWS", 10)
    known, load = [], MapRows.load_grams
    monkeypatch.setattr(MapRows, "load_grams", lambda *given: known.append(load(*given)) or known[-1])
    options = {"feature_map": "hops", "map_options": {"num_hops": 1}, "sketch": 3, "keep": 2}
    folder = LearnerFolder.create(tmp_path / "d", Settings.from_settings(options))
    whole, rng, count = Whole(), np.random.default_rng(seed), 60
    chain(folder, whole, rng, 0, count)
    for change in rng.permutation(["grow", "grow", "relabel", "edge", "edge", "forget", "rollback", "new class"]):
        others = [str(name) for name in rng.choice(list(whole.x), 3, replace=False)]
        known.clear()
        if change == "grow":
            chain(folder, whole, rng, count, 4, others[0])
            count += 4
        elif change == "edge":
            folder.observe(edges=edges_of((others[0], others[1])))
            whole.link([(others[0], others[1])])
        elif change == "forget":
            folder.forget(others)
            whole.remove(others)
        elif change == "rollback":  # from a version that is not the newest
            folder.observe(edges=edges_of((others[0], others[1])))
            folder.rollback()
        else:
            label = "violet" if change == "new class" else "crimson"
            folder.observe(nodes_of(others, [label] * 3))
            whole.label |= dict.fromkeys(others, label)
        assert len(known) == 1
        check(folder, whole, with_folder=True)
        assert tables(folder)["gram"]
        if change in ("forget", "relabel", "new class"):
            assert known[0] is None
        chain(folder, whole, rng, count, 3)
        count += 3
        check(folder, whole, with_folder=True)
    known.clear()
    chain(folder, whole, rng, count, 3)
    assert known[-1] is not None
    check(folder, whole, with_folder=True)
    assert not folder.check()
    with writing(folder.root) as connection:
        connection.execute("UPDATE gram SET data = zeroblob(length(data))")
    with pytest.raises(FolderError, match="row of the table gram does not match its checksum"):
        folder.observe(edges=edges_of(("v60", "v62")))


def test_above_so_many_labels_the_order_of_updates_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("folder.row_cache", "analytic.ridge"):
        monkeypatch.setattr(f"ergnn.{module}.LOO_ROWS", 30)
    rng = np.random.default_rng(0)
    ids = [f"v{i}" for i in range(120)]
    label = {name: str(rng.choice(CLASSES)) for name in ids}
    x = dict(zip(ids, x_of(120), strict=True))
    temperatures, answers = [], []
    for number in range(3):
        folder = LearnerFolder.create(tmp_path / str(number), Settings())
        order = [str(name) for name in rng.permutation(ids)]
        for update in (order[:50], order[50:60], order[60:]):
            table = nodes_of(update, [label[name] for name in update], np.stack([x[name] for name in update]))
            folder.observe(replace(table, split=objects(["train"] * len(update))))
        with folder.snapshot() as snapshot:
            temperatures.append(snapshot.version.state["learner"]["temperature"])
        _, names, found = next(folder.predict(ids))
        answers.append(found[:, np.argsort(names)])
    assert temperatures == pytest.approx([temperatures[0]] * 3, rel=1e-9)
    for found in answers[1:]:
        np.testing.assert_allclose(found, answers[0], atol=1e-8, rtol=0)


def test_rows_under_maps_that_were_not_chosen_do_not_become_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ergnn.folder.row_cache.LOO_ROWS", 30)
    folder, whole, rng = LearnerFolder.create(tmp_path / "d"), Whole(), np.random.default_rng(0)
    chain(folder, whole, rng, 0, 150)
    for step in range(6):
        chosen = step // 2  # some rows change, and are not computed under the other map
        monkeypatch.setattr(solved, "choose", lambda found, k=chosen: (k % len(found), found[k % len(found)]))
        chain(folder, whole, rng, 150 + step, 1, f"v{100 + step}")
        assert {row["map"] for row in tables(folder)["phi"]} == {"ppr", "hops"}
        cached, graph = tables(folder)["phi"], own_graph(folder)
        for name in ("ppr", "hops"):
            rows = {row["node"]: np.frombuffer(row["data"]) for row in cached if row["map"] == name}
            maps = Features(FEATURE_MAPS.create(name), NormalizedAdjacency(graph), Inputs(graph))
            expected = maps.rows(torch.tensor(sorted(rows))).numpy()
            np.testing.assert_allclose(np.stack([rows[node] for node in sorted(rows)]), expected, atol=1e-12)


def test_rows_out_of_reach_of_an_update_are_not_computed_again(tmp_path: Path) -> None:
    options = {"feature_map": "hops", "map_options": {"num_hops": 2}, "keep": 20, "scale": "rows"}
    folder = LearnerFolder.create(tmp_path / "d", Settings.from_settings(options))
    whole, rng, count = Whole(), np.random.default_rng(4), 0

    def grow(size: int, *far: str) -> dict[str, Any]:
        nonlocal count
        count += size
        return chain(folder, whole, rng, count - size, size, *far)

    assert grow(60)["touched"] == 60
    assert not tables(folder)["phi"]
    assert grow(5)["touched"] == 65  # from here on, most rows stay as they are
    assert len(tables(folder)["phi"]) == 65
    assert grow(5)["touched"] == 5 + 1 + 2 + 2  # new ones, what changed, its reach, and what those see
    assert grow(3, "v30")["touched"] < 30
    check(folder, whole)
    folder.forget(["v20"])
    whole.remove(["v20"])
    check(folder, whole)
    folder.drop_versions()
    assert 20 not in {row["node"] for row in tables(folder)["phi"]}
    folder.observe(edges=edges_of(("v1", "v40")))
    whole.link([("v1", "v40")])
    check(folder, whole)
    before = {name: getattr(whole, name).copy() for name in ("x", "label", "split", "edges")}
    grow(4)
    folder.rollback()
    for name, value in before.items():
        setattr(whole, name, value)
    check(folder, whole)
    count += 4
    folder.observe(edges=edges_of(("v2", "v50")))  # its base has no rows
    whole.link([("v2", "v50")])
    check(folder, whole)
    assert not folder.check()
    with writing(folder.root) as connection:
        connection.execute("UPDATE phi SET data = zeroblob(length(data)) WHERE node < 10")
    with pytest.raises(FolderError, match="row of the table phi does not match its checksum"):
        folder.observe(edges=edges_of(("v60", "v62")))
    with writing(folder.root) as connection:
        connection.execute("DELETE FROM phi")
    folder.resume()
    whole.link([("v60", "v62")])
    check(folder, whole)


def test_held_out_nodes_out_of_reach_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"feature_map": "hops", "map_options": {"num_hops": 2}}
    folder = LearnerFolder.create(tmp_path / "d", Settings.from_settings(options))
    read: list[int] = []

    def counted(*arguments: Any) -> LocalGraph:
        local = read_subgraph(*arguments)
        read.append(len(local.nodes))
        return local

    monkeypatch.setattr("ergnn.folder.solved.read_subgraph", counted)
    rng, count = np.random.default_rng(4), 0
    for size in (60, 5, 5, 5):  # a chain
        read.clear()
        ids = [f"v{count + i}" for i in range(size)]
        pairs = [(f"v{i}", f"v{i - 1}") for i in range(max(count, 1), count + size)]
        splits = np.array([("train", "test")[i % 2] for i in range(size)], object)
        labels: list[str | None] = [str(rng.choice(CLASSES)) for _ in ids]
        record = folder.observe(nodes_of(ids, labels, x_of(size, count), split=splits), edges_of(*pairs))
        count += size
        now = [score for _, score in folder.evaluate()]  # reads all again
        assert record["scores"] == now
        assert sum(of for _, _, of in now) == 30 + 2 * (len(now) - 1)
    assert read[0] == record["touched"] == 5 + 1 + 2 + 2
    assert len(read) == 2


def test_an_update_that_was_interrupted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = Audit(tmp_path / "d", 0)
    before = probabilities(audit.folder, list(audit.whole.x))
    pairs = audit.pairs(3, [])
    with monkeypatch.context() as patch:
        patch.setattr("ergnn.folder.row_cache.fit_ridge", interrupt)
        with pytest.raises(KeyboardInterrupt):
            audit.folder.observe(edges=edges_of(*pairs))
    np.testing.assert_array_equal(probabilities(audit.folder, list(audit.whole.x)), before)
    assert audit.folder.resume() is not None
    audit.next_version().link(pairs)
    check(audit.folder, audit.whole)


def interrupt(*arguments: object, **options: object) -> None:
    raise KeyboardInterrupt


def test_a_class_that_corrections_leave_empty_goes_with_a_purge(tmp_path: Path) -> None:
    folder = LearnerFolder.create(tmp_path / "d")
    folder.observe(*secret_tables(with_secret=True))
    folder.observe(nodes_of([SECRET], ["crimson"]))
    assert SECRET_CLASS not in next(folder.predict(["v1"]))[1]
    folder.drop_versions()
    assert SECRET_CLASS not in str(folder.inspect())
    assert SECRET_CLASS.encode() not in (folder.root / "learner.sqlite").read_bytes()
    assert not folder.check()


def test_inspect_lists_all_training_nodes(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "d", 0)
    audit.observe()
    found, whole = audit.folder.inspect(), audit.whole
    trained = {name: label for name, label in whole.label.items() if whole.split[name] == "train"}
    assert {row["id"]: row["class"] for row in found["buffer"]} == trained
    assert all(row["score"] is None and row["rank"] is None for row in found["buffer"])
    assert found["updates"][-1]["remembered"] == len(trained)
    assert found["bytes"]["weights"] > 0


@pytest.mark.parametrize("options", [{"memory": "statistics"}, {"student": True}])
def test_options_that_do_not_fit_a_folder_are_refused(options: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        LearnerFolder.create(tmp_path / "d", Settings.from_settings(options))
    assert not (tmp_path / "d").exists()


SECRET = "zebra-4711"
SECRET_CLASS = "unicorn-0815"


def secret_tables(with_secret: bool) -> tuple[NodeTable, EdgeTable]:
    """A graph with, or without, a node that nothing else is like: id, features, and the only one of its class."""
    rng = np.random.default_rng(5)
    ids, x = [f"v{i}" for i in range(30)], x_of(30)
    labels: list[str | None] = [CLASSES[i % 3] if i % 4 else None for i in range(30)]
    pairs = [(f"v{a}", f"v{b}") for a, b in rng.integers(0, 30, (40, 2))]
    if with_secret:
        ids, labels = [*ids, SECRET], [*labels, SECRET_CLASS]
        x = np.concatenate([x, SECRET_X[None]])
        pairs += [(SECRET, "v1"), ("v2", SECRET), (SECRET, "v5")]
    return nodes_of(ids, labels, x, split=np.array(["train"] * len(ids), object)), edges_of(*pairs)


SECRET_X = np.random.default_rng(99).random(FEATURES).astype(np.float32)


def test_after_a_purge_no_byte_of_the_node_is_left_and_it_is_as_if_it_had_never_been(tmp_path: Path) -> None:
    folder = LearnerFolder.create(tmp_path / "d")
    folder.observe(*secret_tables(with_secret=True))
    secrets = [SECRET.encode(), SECRET_CLASS.encode(), *(value.tobytes() for value in SECRET_X)]

    def bytes_of_the_folder() -> bytes:
        return b"".join(path.read_bytes() for path in folder.root.rglob("*") if path.is_file())

    assert all(secret in bytes_of_the_folder() for secret in secrets)
    before = probabilities(folder, ["v1"])
    folder.forget([SECRET])
    folder.drop_versions()
    assert not [secret for secret in secrets if secret in bytes_of_the_folder()]
    assert SECRET_CLASS not in str(folder.inspect())
    other = LearnerFolder.create(tmp_path / "other")
    other.observe(*secret_tables(with_secret=False))
    ids = [f"v{i}" for i in range(30)]
    (_, names, found), (_, expected_names, expected) = next(folder.predict(ids)), next(other.predict(ids))
    assert names == expected_names
    np.testing.assert_allclose(found, expected, atol=1e-8, rtol=0)
    assert before.shape[1] == found.shape[1] + 1
    assert not folder.check()
    folder.observe(*secret_tables(with_secret=True))  # it may come back, with its class
    np.testing.assert_allclose(probabilities(folder, ["v1"]).sum(), 1)
    assert SECRET_CLASS in next(folder.predict(["v1"]))[1]


def test_forget_says_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = LearnerFolder.create(tmp_path / "d")
    folder.observe(*secret_tables(with_secret=True))
    (tmp_path / "ids.csv").write_text(f"id\n{SECRET}\n")
    assert main(["forget", str(folder.root), "--nodes", str(tmp_path / "ids.csv"), "--retrain"]) == 0
    out = capsys.readouterr().out
    assert "the model of version 2 no longer depends on them" in out
    assert "ergnn predict" in out
    assert "older versions (0, 1) still contain them" in out


def test_the_method_may_be_given_by_its_other_name(tmp_path: Path) -> None:
    folder = LearnerFolder.create(tmp_path / "d", Settings.from_settings({"method": "ridge"}))
    folder.observe(*secret_tables(with_secret=True))
    assert folder.observe(nodes_of([SECRET], ["crimson"]))["counts"]["corrected"] == 1
