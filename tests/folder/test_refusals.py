"""How a folder refuses: the message names the value, and nothing has changed."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ergnn.errors import ErgnnError, InputError
from ergnn.folder import LearnerFolder, Settings
from ergnn.folder.files import FolderError
from ergnn.folder.lock import BusyError, writing
from ergnn.folder.versions import read_current
from folder.growing import QUICK, edges_of, make_update, make_updates, nodes_of, probabilities

REFUSED: list[tuple[str, Callable[[LearnerFolder], object], str]] = [
    ("lost edge", lambda f: f.observe(edges=edges_of(("n1", "nobody"))), "an edge names node 'nobody'"),
    ("nothing", lambda f: f.observe(), "needs nodes, or edges"),
    ("width", lambda f: f.observe(nodes_of(["z"], ["c0"], np.ones((1, 3)))), "3 attributes; this learner's have 12"),
    ("bare new node", lambda f: f.observe(nodes_of(["z"], ["c0"])), "0 attributes; this learner's have 12"),
    ("changed", lambda f: f.observe(nodes_of(["n1"], None, np.full((1, 12), 7.0))), "node 'n1' .* other attributes"),
    ("unknown id", lambda f: list(f.predict(["nobody"])), "node 'nobody' is not in the graph"),
    ("bare id", lambda f: list(f.predict(nodes=nodes_of(["nobody"]))), "has no attributes here"),
    ("class", lambda f: list(f.predict(["n1"], classes=["c9"])), "class 'c9' has not been learnt; these have: c0, c1"),
    ("forget", lambda f: f.forget(["nobody"]), "node 'nobody' is not in the graph"),
    ("forget nobody", lambda f: f.forget([]), "nothing to forget"),
    ("update", lambda f: f.classes_of(5), "update 6 has not been observed; 2 have"),
]


@pytest.mark.parametrize(("call", "text"), [(c, t) for _, c, t in REFUSED], ids=[name for name, _, _ in REFUSED])
def test_refusals_name_the_value_and_leave_the_folder_as_it_was(
    folder: LearnerFolder, call: Callable[[LearnerFolder], object], text: str
) -> None:
    before = (folder.root / "CURRENT").read_bytes()
    with pytest.raises(InputError, match=text):
        call(folder)
    assert (folder.root / "CURRENT").read_bytes() == before
    assert not (folder.root / "progress").exists()


def test_a_label_cannot_become_another(folder: LearnerFolder) -> None:
    store = folder.snapshot().store
    node = int(store.members(0, "train")[0])
    with pytest.raises(InputError, match=f"node 'n{node}' has label 'c.' already; it cannot become 'other'"):
        folder.observe(nodes_of([f"n{node}"], ["other"]))


def test_limits_are_on_the_whole_graph(tmp_path: Path) -> None:
    folder = LearnerFolder.create(tmp_path / "d", replace(QUICK, max_nodes=50, max_edges=1000, max_features=12))
    updates = make_updates(2)
    folder.observe(*updates[0])
    with pytest.raises(InputError, match=r"80 nodes; at most 50 are allowed"):
        folder.observe(*updates[1])
    with pytest.raises(InputError, match=r"features is 13; the limit is 12"):
        Settings(features=13, max_features=12)


def test_one_writer_at_a_time_and_readers_meanwhile(folder: LearnerFolder) -> None:
    with writing(folder.root):
        with pytest.raises(BusyError, match=f"is being written by process {os.getpid()} on "):
            folder.rollback()
        probabilities(folder)


def test_a_folder_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="there is no such folder"):
        LearnerFolder(tmp_path / "nowhere")
    with pytest.raises(FolderError, match="holds no learner"):
        LearnerFolder(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(FolderError, match="not an empty folder"):
        LearnerFolder.create(tmp_path)
    folder = LearnerFolder.create(tmp_path / "new", QUICK)
    with pytest.raises(InputError, match="nothing has been learnt yet"):
        next(folder.predict(["a"]))
    with pytest.raises(InputError, match="must bring nodes with attributes"):
        folder.observe(edges=edges_of(("a", "b")))


def test_a_disk_that_is_full_leaves_the_old_state(folder: LearnerFolder) -> None:
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    try:
        with pytest.raises(FolderError, match=r"could not be written .* as it was before"):
            folder.observe(*make_updates(3)[2])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert read_current(folder.root).version == 2
    folder.observe(*make_updates(3)[2])
    assert read_current(folder.root).version == 3


def test_a_model_that_is_too_large_is_refused_before_it_is_made(tmp_path: Path) -> None:
    settings = replace(QUICK, backbone_options={"hidden": 10**7}, max_megabytes=1)
    folder = LearnerFolder.create(tmp_path / "d", settings)
    with pytest.raises(InputError, match=r"parameters take .* MB; at most 1 are allowed"):
        folder.observe(*make_update(0, [0, 1]))
    with pytest.raises(InputError, match="cannot be made with these options"):
        LearnerFolder.create(tmp_path / "e", replace(QUICK, backbone_options={"hidden": 10**30}))


def test_diverged_learning_leaves_the_old_state(folder: LearnerFolder, tmp_path: Path) -> None:
    wild = LearnerFolder.create(tmp_path / "wild", replace(QUICK, lr=1e30, optimizer="sgd"))
    with pytest.raises(ErgnnError, match="diverged"):
        wild.observe(*make_update(0, [0, 1]))
    assert read_current(wild.root).version == 0
    assert wild.discard() is None
