"""How a folder refuses: the message names the value, and nothing has changed."""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ergnn.config.errors import ErgnnError, InputError
from ergnn.data.tables import EdgeTable
from ergnn.folder import LearnerFolder
from ergnn.folder.database import BusyError, FolderError, from_json, insert, select, to_json, wrap_errors, writing
from folder.growing import QUICK, current, edges_of, make_update, make_updates, nodes_of, probabilities, quick, tables

REFUSED: list[tuple[str, Callable[[LearnerFolder], object], str]] = [
    ("lost edge", lambda f: f.observe(edges=edges_of(("n1", "nobody"))), "an edge names node 'nobody'"),
    ("weights", lambda f: f.observe(edges=EdgeTable(["n1"], ["n2"], [2.0])), "weights, .* --ignore-column weight"),
    ("nothing", lambda f: f.observe(), "needs nodes, or edges"),
    ("width", lambda f: f.observe(nodes_of(["z"], ["c0"], np.ones((1, 3)))), "3 features; 12 are required"),
    ("bare new node", lambda f: f.observe(nodes_of(["z"], ["c0"])), "0 features; 12 are required"),
    ("changed", lambda f: f.observe(nodes_of(["n1"], None, np.full((1, 12), 7.0))), "node 'n1' .* other features"),
    (
        "values of a known node",
        lambda f: list(f.predict(nodes=nodes_of(["n1"], None, np.full((1, 12), 7.0)))),
        "other features; they cannot change here, observe the change before predicting",
    ),
    ("unknown id", lambda f: list(f.predict(["nobody"])), "node 'nobody' is not in the graph"),
    ("bare id", lambda f: list(f.predict(nodes=nodes_of(["nobody"]))), "has no features here"),
    ("class", lambda f: list(f.predict(["n1"], classes=["c9"])), "class 'c9' has not been learned; these have: c0, c1"),
    ("forget", lambda f: f.forget(["nobody"]), "node 'nobody' is not in the graph"),
    ("forget nobody", lambda f: f.forget([]), "nothing to forget"),
    ("update", lambda f: f.snapshot().classes_of(5), "update 6 has not been observed; updates are 1 to 2"),
]


@pytest.mark.parametrize(("call", "text"), [(c, t) for _, c, t in REFUSED], ids=[name for name, _, _ in REFUSED])
def test_refusals_name_the_value_and_leave_the_folder_as_it_was(
    folder: LearnerFolder, call: Callable[[LearnerFolder], object], text: str
) -> None:
    before = tables(folder)
    with pytest.raises(InputError, match=text):
        call(folder)
    assert tables(folder) == before


def test_a_label_cannot_become_another(folder: LearnerFolder) -> None:
    node = int(folder.snapshot().members(0, "train")[0][0])
    with pytest.raises(InputError, match=f"node 'n{node}' already has label 'c.'; it cannot become 'other'"):
        folder.observe(nodes_of([f"n{node}"], ["other"]))


def test_one_writer_at_a_time_and_readers_meanwhile(folder: LearnerFolder) -> None:
    with writing(folder.root):
        with pytest.raises(BusyError, match=f"is being written by process {os.getpid()} on "):
            folder.rollback()
        probabilities(folder)


def test_a_folder_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="no such folder"):
        LearnerFolder(tmp_path / "nowhere")
    with pytest.raises(FolderError, match="holds no learner"):
        LearnerFolder(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(FolderError, match="not an empty folder"):
        LearnerFolder.create(tmp_path)
    folder = LearnerFolder.create(tmp_path / "new", QUICK)
    with pytest.raises(InputError, match="nothing has been learned yet"):
        next(folder.predict(["a"]))
    with pytest.raises(InputError, match="must contain nodes with features"):
        folder.observe(edges=edges_of(("a", "b")))


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """As on a disk without room: writes beyond ``size`` bytes of a file fail."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


@pytest.mark.parametrize("size", [3000, 60_000, 90_000])
def test_a_full_disk_leaves_the_last_version_and_the_same_command_works_later(folder: LearnerFolder, size: int) -> None:
    before = probabilities(folder)
    with no_file_beyond(size), pytest.raises(FolderError, match=r"could not be written .* as it was before"):
        folder.observe(*make_updates(3)[2], checkpoint_seconds=0)
    assert current(folder) == 2
    np.testing.assert_array_equal(probabilities(folder), before)
    assert folder.observe(*make_updates(3)[2])["update"] == 2
    assert current(folder) == 3
    assert folder.check() == []


@pytest.mark.parametrize("size", [0, 3000, 60_000])
def test_a_full_disk_leaves_no_half_made_folder(tmp_path: Path, size: int) -> None:
    with no_file_beyond(size), pytest.raises(FolderError, match="could not be written"):
        LearnerFolder.create(tmp_path / "new", QUICK)
    assert not (tmp_path / "new").exists()
    assert LearnerFolder.create(tmp_path / "new", QUICK).check() == []


def test_sqlite_that_finds_no_room_says_so_in_one_line(folder: LearnerFolder) -> None:
    with writing(folder.root) as connection:
        connection.execute("PRAGMA max_page_count = 1")
        with pytest.raises(FolderError, match=r"database or disk is full.*as it was before"), wrap_errors(folder.root):
            connection.execute("CREATE TABLE much AS SELECT zeroblob(1000000)")


def test_a_model_that_is_too_large_is_refused_before_it_is_made(tmp_path: Path) -> None:
    settings = quick(backbone_options={"hidden": 10**7}, max_megabytes=1)
    folder = LearnerFolder.create(tmp_path / "d", settings)
    with pytest.raises(InputError, match=r"parameters take .* MB; at most 1 are allowed"):
        folder.observe(*make_update(0, [0, 1]))
    with pytest.raises(InputError, match="cannot be created with these options"):
        LearnerFolder.create(tmp_path / "e", quick(backbone_options={"hidden": 10**30}))


def test_records_that_no_update_wrote_are_refused_although_their_checksums_are_right(folder: LearnerFolder) -> None:
    drifts: list[object] = [{"p": {"features": "small"}}, {"p": {}, "alarm": True}, 3]
    asked = [("classes", ["nobody"], lambda: folder.evaluate(task_known=True)), ("scores", [[0, 1, 0]], folder.inspect)]
    for key, value, ask in [*asked, *(("input_drift", drift, folder.watch) for drift in drifts)]:
        with writing(folder.root) as connection:
            number, added, name, text = select(connection, "updates", "number = 0")[0]
            wrong = to_json({**from_json(text), key: value})
            insert(connection, "updates", [(number, added, name, wrong)], "REPLACE")
            with pytest.raises(FolderError, match="the database is damaged"):
                ask()
            insert(connection, "updates", [(number, added, name, text)], "REPLACE")
    assert folder.check() == []


def test_a_version_of_very_many_updates_is_refused_before_memory_is_taken(folder: LearnerFolder) -> None:
    with writing(folder.root) as connection:
        row = list(select(connection, "versions", "version = 2")[0])
        row[-2] = 2**40
        connection.execute("PRAGMA foreign_keys = OFF")
        insert(connection, "versions", [tuple(row)], "REPLACE")
    with pytest.raises(FolderError, match="the table updates does not match"):
        folder.inspect()


def test_diverged_learning_leaves_the_old_state(folder: LearnerFolder, tmp_path: Path) -> None:
    wild = LearnerFolder.create(tmp_path / "wild", quick(lr=1e30, optimizer="sgd"))
    with pytest.raises(ErgnnError, match="diverged"):
        wild.observe(*make_update(0, [0, 1]))
    assert current(wild) == 0
    assert wild.discard() is None
