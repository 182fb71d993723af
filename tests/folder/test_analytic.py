"""The closed form in a folder: whatever came, was corrected or left, it is what the final graph gives at once."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from ergnn.analytic import FEATURE_MAPS, Features, Inputs, NormalizedAdjacency
from ergnn.config.errors import InputError
from ergnn.data.partial import LocalGraph, read_subgraph
from ergnn.folder import LearnerFolder, Settings
from ergnn.folder.certificate import compare_models
from ergnn.folder.database import FolderError, writing
from folder.growing import edges_of, make_updates, nodes_of, objects, own_graph, probabilities, tables, x_of
from folder.histories import CLASSES, Audit, Whole, check


def chain(
    folder: LearnerFolder, whole: Whole, rng: np.random.Generator, first: int, size: int, *far: str, splits=("train",)
) -> dict[str, Any]:
    """Observe a chain of labeled nodes that goes on, with edges to other nodes if they are named."""
    ids, split = [f"v{first + i}" for i in range(size)], objects([splits[i % len(splits)] for i in range(size)])
    labels: list[str | None] = [str(rng.choice(CLASSES)) for _ in ids]
    pairs = [(f"v{i}", f"v{i - 1}") for i in range(max(first, 1), first + size) if i > first or f"v{i - 1}" in whole.x]
    pairs += [(ids[-1], name) for name in far]
    x = x_of(size, first)
    whole.x |= dict(zip(ids, x, strict=True))
    whole.add(ids, labels, split)
    whole.link(pairs)
    return folder.observe(nodes_of(ids, labels, x, split=split), edges_of(*pairs))


def test_above_so_many_labels_the_order_of_updates_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ergnn.analytic.ridge.LOO_ROWS", 30)
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


def test_cached_rows_do_not_become_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ergnn.analytic.ridge.LOO_ROWS", 30)
    settings = Settings.from_settings({"scale": "rows", "feature_map": "hops"})
    folder, whole, rng = LearnerFolder.create(tmp_path / "d", settings), Whole(), np.random.default_rng(0)
    chain(folder, whole, rng, 0, 150)
    for step in range(6):
        chain(folder, whole, rng, 150 + step, 1, f"v{100 + step}")
        cached, graph = tables(folder)["phi"], own_graph(folder)
        rows = {row["node"]: np.frombuffer(row["data"]) for row in cached}
        maps = Features(FEATURE_MAPS.create("hops"), NormalizedAdjacency(graph), Inputs(graph))
        expected = maps.rows(torch.tensor(sorted(rows))).numpy()
        np.testing.assert_allclose(np.stack([rows[node] for node in sorted(rows)]), expected, atol=1e-12)
    corrected = next(name for name in CLASSES if name != whole.label["v3"])
    folder.observe(nodes_of(["v3"], [corrected]))  # all rows are known
    with folder.snapshot() as snapshot:
        assert compare_models(snapshot)["largest_difference"] < 1e-9
    assert len(tables(folder)["phi"]) == len(rows)


def test_rows_are_not_cached_if_maps_are_compared(tmp_path: Path) -> None:
    folder, whole, rng = LearnerFolder.create(tmp_path / "d", Settings()), Whole(), np.random.default_rng(0)
    for first in (0, 60):
        chain(folder, whole, rng, first, 60 if not first else 1)
    assert not tables(folder)["phi"]
    check(folder, whole)


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
    folder.purge()
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
    options = {"feature_map": "hops", "map_options": {"num_hops": 2}, "scale": "rows"}
    folder = LearnerFolder.create(tmp_path / "d", Settings.from_settings(options))
    read: list[int] = []

    def counted(*arguments: Any) -> LocalGraph:
        local = read_subgraph(*arguments)
        read.append(len(local.nodes))
        return local

    monkeypatch.setattr("ergnn.folder.solved.read_subgraph", counted)
    rng, whole = np.random.default_rng(4), Whole()
    for size in (60, 5, 5, 5):
        read.clear()
        record = chain(folder, whole, rng, len(whole.x), size, splits=("train", "test"))
        now = [score for _, score in folder.evaluate()]  # reads all again
        assert record["scores"] == now
        assert sum(of for _, _, of in now) == 30 + 2 * (len(now) - 1)
    assert read[0] == record["touched"] == 5 + 1 + 2 + 2
    assert len(read) == 2


def test_an_update_that_was_interrupted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = Audit(tmp_path / "d", 0, Settings.from_settings({"scale": "rows"}))
    before = probabilities(audit.folder, list(audit.whole.x))
    pairs = audit.pairs(3, [])
    with monkeypatch.context() as patch:
        patch.setattr("ergnn.folder.solved.solve", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            audit.folder.observe(edges=edges_of(*pairs))
    np.testing.assert_array_equal(probabilities(audit.folder, list(audit.whole.x)), before)
    assert audit.folder.resume() is not None
    audit.next_version().link(pairs)
    check(audit.folder, audit.whole)


@pytest.mark.parametrize("options", [{"memory": "statistics"}, {"student": True}])
def test_options_that_do_not_fit_a_folder_are_refused(options: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        LearnerFolder.create(tmp_path / "d", Settings.from_settings(options))
    assert not (tmp_path / "d").exists()


def test_the_method_may_be_given_by_its_other_name(tmp_path: Path) -> None:
    folder = LearnerFolder.create(tmp_path / "d", Settings.from_settings({"method": "ridge"}))
    folder.observe(*make_updates(1)[0])
    labeled = next(row["id"] for row in folder.inspect()["buffer"])
    assert folder.observe(nodes_of([labeled], ["other"]))["counts"]["corrected"] == 1
