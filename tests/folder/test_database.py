"""The database: what others read in it, its checksums, and how it is brought to a newer schema."""

import multiprocessing
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

from doc_blocks import ROOT
from ergnn.folder import LearnerFolder, Settings, database
from ergnn.folder.database import APPLICATION_ID, FILE, FolderError, get_tensors, insert, transaction, writing
from folder.growing import IDS, edges_of, make_updates, nodes_of, probabilities, quick, tables

FIXTURE = Path(__file__).with_name("fixtures") / "schema1"
"""A folder after two updates (``make_updates(2)``), as schema 1 was first written."""


def test_the_file_says_what_it_is(folder: LearnerFolder) -> None:
    connection = sqlite3.connect(folder.root / FILE)
    found = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")}
    assert found == {"application_id": APPLICATION_ID, "user_version": 5}
    assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


def test_a_blob_is_kept_with_its_version(folder: LearnerFolder) -> None:
    with writing(folder.root) as connection:
        with transaction(connection):
            for value in (1.0, 2.0):
                insert(connection, "blobs", [(2, "statistics", save({"x": torch.tensor([value])}))], "REPLACE")
        assert get_tensors(connection, 2, "statistics")["x"] == 2
        assert get_tensors(connection, 1, "statistics") == {}
    folder.rollback(1)
    folder.forget(["n1"])
    assert "statistics" not in [row["kind"] for row in tables(folder)["blobs"]]


CHANGES = {
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
    "phi": "data = zeroblob(length(data))",
    "row_cache": "layout = 'other'",
}
DEPENDED_ON = [table for table in CHANGES if table not in ("phi", "row_cache")]
"""Tables whose rows must not be missing: other caches are computed again."""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LearnerFolder]:
    """Folders of a network and of a closed form, with forgotten nodes and corrected labels in kept versions."""
    root = tmp_path_factory.mktemp("checked")
    near = {"feature_map": "hops", "map_options": {"num_hops": 1}, "sketch": 3}
    folders = {}
    for name, settings in (("network", quick(epochs=1)), ("solved", Settings.from_settings(near))):
        folder = folders[name] = LearnerFolder.create(root / name, settings)
        for nodes, edges in make_updates(3, links=1):
            folder.observe(nodes, edges)
        folder.forget(["n7", "n50"])
        late = [name for name, label in zip(nodes.ids, nodes.labels, strict=True) if label is None][:2]
        folder.observe(nodes_of([str(name) for name in late], ["c1", "c2"]))
        folder.observe(edges=edges_of(("n1", "n2"), ("n1", "n99")))
        assert folder.check() == []
    held = {table for folder in folders.values() for table, rows in tables(folder).items() if rows}
    assert held - {"log"} == set(CHANGES)
    return folders


def damages() -> Iterator[tuple[str, str]]:
    """A table, and a statement that damages one row of it, or the versions that have it."""
    for table, change in CHANGES.items():
        yield table, f"UPDATE {table} SET {change}"
    for table in DEPENDED_ON:
        yield table, f"DELETE FROM {table}"
    for table in ("adjacency", "labels", "nodes", "updates"):
        for removed in ("added", "added + 1", "1000", "(SELECT version FROM current)"):
            yield table, f"UPDATE {table} SET removed = {removed}"
    for table in ("adjacency", "nodes"):
        yield table, f"UPDATE {table} SET removed = NULL"


@pytest.mark.parametrize(("table", "statement"), [*damages()])
def test_every_damage_is_found(checked: dict[str, LearnerFolder], table: str, statement: str, tmp_path: Path) -> None:
    folder = next(folder for folder in checked.values() if tables(folder)[table])
    copy = LearnerFolder(shutil.copytree(folder.root, tmp_path / "d"))
    connection = sqlite3.connect(copy.root / FILE)
    keys = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[5]]
    where = "removed IS NOT NULL" if statement.endswith("NULL") else "1"
    order = "removed IS NOT NULL, added" if "removed" in statement else "1"
    row = connection.execute(f"SELECT {', '.join(keys)} FROM {table} WHERE {where} ORDER BY {order}").fetchone()
    own = " AND ".join(f"{key} = ?" for key in keys)
    assert connection.execute(f"{statement} WHERE {own}", row).rowcount == 1
    connection.commit()
    connection.close()
    assert copy.check()


@pytest.mark.parametrize("kind", ["network", "schema1"])
def test_reading_needs_no_writing(checked: dict[str, LearnerFolder], kind: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        root = Path(shutil.copytree(FIXTURE if kind == "schema1" else checked[kind].root, Path(place) / "d"))
        expected = probabilities(LearnerFolder(shutil.copytree(root, Path(place) / "writable")), ["n1", "n2"])
        for path in root.iterdir():
            if path.name != FILE:
                path.unlink()
        (root / FILE).chmod(0o444)
        root.chmod(0o555)

        def read() -> bytes:
            folder = LearnerFolder(root)
            assert folder.check() == []
            assert len(folder.inspect()["updates"]) >= 2
            with pytest.raises(FolderError, match="could not be written"):
                folder.observe(nodes_of(["new"], None, np.ones((1, 12), np.float32)))
            return probabilities(folder, ["n1", "n2"]).tobytes()

        assert as_another_user(read) == expected.tobytes()
        assert os.listdir(root) == [FILE]
        root.chmod(0o755)


def as_another_user(function: Callable[[], bytes]) -> bytes:
    """The result of a function in a process without the rights of root, if these are root's tests."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)

    def run() -> None:
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        send.send(function())

    process = context.Process(target=run)
    process.start()
    send.close()
    result = receive.recv()
    process.join()
    return result


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
    with pytest.raises(FolderError, match=r"has schema 6; .* up to 5.*newer ergnn"):
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
