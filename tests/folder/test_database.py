"""The database: what others read in it, its checksums, and how it is brought to a newer schema."""

from __future__ import annotations

import re
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from doc_blocks import ROOT
from ergnn.folder import LearnerFolder, Settings, database
from ergnn.folder.database import APPLICATION_ID, FILE, FolderError, transaction, writing
from ergnn.folder.versions import get_blob, put_blob
from folder.growing import IDS, make_updates, probabilities, quick, tables

FIXTURE = Path(__file__).with_name("fixtures") / "schema1"
"""A folder after two updates (``make_updates(2)``), as schema 1 was first written."""


class TestGraph:
    """Everything that the graph can be asked, against plain dictionaries."""

    @pytest.fixture(params=["sparse", "dense"])
    def made(self, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[LearnerFolder, list]:
        updates = make_updates(3, nodes=50)
        if request.param == "sparse":
            for nodes, _ in updates:
                nodes.features[:, 1:] = 0
        folder = LearnerFolder.create(tmp_path / "d", quick(epochs=1))
        for nodes, edges in updates:
            folder.observe(nodes, edges)
        return folder, updates

    def test_reads_what_was_observed(self, made: tuple[LearnerFolder, list]) -> None:
        folder, updates = made
        ids = [name for nodes, _ in updates for name in nodes.ids]
        x = np.concatenate([nodes.features for nodes, _ in updates])
        label = [name for nodes, _ in updates for name in nodes.labels]
        place = {name: i for i, name in enumerate(ids)}
        edges = {(place[a], place[b]) for _, table in updates for a, b in zip(table.source, table.target, strict=True)}
        edges |= {(b, a) for a, b in edges}
        with folder.snapshot() as snapshot:
            graph = snapshot.graph
            some = np.sort(np.random.default_rng(0).permutation(150)[:60])
            assert graph.find([*ids[::-1], "nobody"]).tolist() == [*range(149, -1, -1), -1]
            assert graph.names(some[::-1]) == [ids[i] for i in some[::-1]]
            row, source = graph.neighbors(some)
            found = set(zip(source.tolist(), some[row].tolist(), strict=True))
            assert found == {(a, b) for a, b in edges if b in some}
            assert len(found) == len(row)
            target, source = graph.neighbors(graph.nodes())
            assert set(zip(source.tolist(), target.tolist(), strict=True)) == edges
            assert len(source) == len(edges) == snapshot.version.edges
            for got, wanted in ((graph.features(some), x[some]), (graph.features(graph.nodes()), x)):
                assert isinstance(got, np.ndarray) == graph.dense
                np.testing.assert_array_equal(got.toarray() if scipy.sparse.issparse(got) else got, wanted)
            classes, split, update = graph.labels(graph.nodes())
            assert [None if c < 0 else snapshot.classes[c] for c in classes] == label
            for number in range(3):
                for i, part in enumerate(("train", "val", "test")):
                    members, its_classes = snapshot.members(number, part)
                    assert members.tolist() == np.flatnonzero((update == number) & (split == i)).tolist()
                    assert its_classes.tolist() == classes[members].tolist()

    def test_older_versions_are_read_as_they_were(self, made: tuple[LearnerFolder, list], tmp_path: Path) -> None:
        folder, updates = made
        other = LearnerFolder.create(tmp_path / "e", quick(epochs=1))
        for nodes, edges in updates[:2]:
            other.observe(nodes, edges)
        with folder.snapshot(2) as old, other.snapshot() as alone:
            nodes = old.graph.nodes()
            np.testing.assert_array_equal(nodes, alone.graph.nodes())
            for a, b in zip(old.graph.neighbors(nodes), alone.graph.neighbors(nodes), strict=True):
                np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(old.graph.labels(nodes), alone.graph.labels(nodes))
            assert old.classes == alone.classes
        ids = [f"n{i}" for i in range(100)]
        np.testing.assert_array_equal(probabilities(folder, ids, version=2), probabilities(other, ids))


def test_the_file_says_what_it_is(folder: LearnerFolder) -> None:
    connection = sqlite3.connect(folder.root / FILE)
    found = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")}
    assert found == {"application_id": APPLICATION_ID, "user_version": 3}
    assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


def test_a_blob_is_kept_with_its_version(folder: LearnerFolder) -> None:
    with writing(folder.root) as connection:
        with transaction(connection):
            put_blob(connection, 2, "statistics", b"old")
            put_blob(connection, 2, "statistics", b"\0new")
        assert get_blob(connection, 2, "statistics") == b"\0new"
        assert get_blob(connection, 1, "statistics") is None
    folder.rollback(1)
    folder.forget(["n1"])
    assert "statistics" not in [row["kind"] for row in tables(folder)["blobs"]]


def test_every_changed_row_is_found(folder: LearnerFolder) -> None:
    assert folder.check() == []
    changes = {
        "nodes": "id = id || 'x'",
        "adjacency": "neighbors = zeroblob(length(neighbors) + 4)",
        "labels": "split = 1 - split",
        "remembered": "score = score + 1",
        "blobs": "data = zeroblob(length(data))",
        "updates": "name = 'other'",
        "classes": "name = name || 'x'",
        "versions": "edges = edges + 2",
        "settings": "value = '1'",
        "current": "newest = newest + 1",
    }
    assert set(changes) == {name for name, rows in tables(folder).items() if rows and "checksum" in rows[0]}
    for table, change in changes.items():
        copy = LearnerFolder(shutil.copytree(folder.root, folder.root.with_name(table)))
        connection = sqlite3.connect(copy.root / FILE)
        key = connection.execute(f"SELECT name FROM pragma_table_info('{table}') WHERE pk = 1").fetchone()[0]
        first = f"(SELECT {key} FROM {table} LIMIT 1)"
        connection.execute(f"UPDATE {table} SET {change} WHERE {key} = {first}")
        connection.commit()
        connection.close()
        assert any(text.startswith(f"{table}:") for text in copy.check()), table


def test_the_first_schema_is_still_read(tmp_path: Path) -> None:
    folder = LearnerFolder(shutil.copytree(FIXTURE, tmp_path / "d"))
    assert folder.check() == []
    same = folder.settings.with_settings({"class_balance": "none"})  # there was no other when it was written
    fresh = LearnerFolder.create(tmp_path / "fresh", same)
    for nodes, edges in make_updates(2):
        fresh.observe(nodes, edges)
    np.testing.assert_allclose(probabilities(folder), probabilities(fresh), atol=1e-4)
    nodes, edges = make_updates(3)[2]
    assert folder.observe(nodes, edges)["update"] == 2


def test_a_setting_that_the_database_does_not_know_has_its_default(tmp_path: Path) -> None:
    folder = LearnerFolder(shutil.copytree(FIXTURE, tmp_path / "d"))
    with writing(folder.root) as connection:
        connection.execute("DELETE FROM settings WHERE name IN ('keep', 'optimizer')")
    assert folder.settings.keep == Settings().keep
    assert folder.settings.learner.optimizer == Settings().learner.optimizer
    assert folder.settings.learner.epochs == 6


def test_migrations_run_once_and_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = shutil.copytree(FIXTURE, tmp_path / "d")
    first = database.migrations()
    monkeypatch.setattr(
        database, "migrations", lambda: [*first, "ALTER TABLE log ADD COLUMN who TEXT;\nDROP TABLE none;"]
    )
    with pytest.raises(FolderError, match="no such table"):
        LearnerFolder(root)
    second = "ALTER TABLE log ADD COLUMN who TEXT;\nUPDATE log SET who = 'me';"
    monkeypatch.setattr(database, "migrations", lambda: [*first, second])
    folder = LearnerFolder(root)
    assert {row["who"] for row in tables(folder)["log"]} == {"me"}
    assert LearnerFolder(root).check() == []
    assert len(probabilities(folder)) == len(IDS)
    monkeypatch.setattr(database, "migrations", lambda: first)
    with pytest.raises(FolderError, match=r"has schema 4; .* up to 3.*newer ergnn"):
        LearnerFolder(root)


def test_other_files_are_refused(tmp_path: Path) -> None:
    for name, content in (("text", b"hello\n" * 1000), ("empty", b"")):
        (tmp_path / name).mkdir()
        (tmp_path / name / FILE).write_bytes(content)
        with pytest.raises(FolderError, match="not a"):
            LearnerFolder(tmp_path / name)
    with pytest.raises(FolderError, match="is a file"):
        LearnerFolder(tmp_path / "text" / FILE)


def test_the_queries_of_the_documentation_run(folder: LearnerFolder) -> None:
    page = (ROOT / "docs" / "folder.md").read_text(encoding="utf-8")
    queries = re.findall(r"```sql\n(.*?)```", page, flags=re.DOTALL)
    assert len(queries) >= 3
    connection = sqlite3.connect(f"file:{folder.root / FILE}?mode=ro", uri=True)
    for query in queries:
        assert connection.execute(query).fetchall(), query
