"""Purges that are interrupted, repeated and certified."""

import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from ergnn.cli.main import main
from ergnn.config.errors import BusyError, FolderError, InputError
from ergnn.folder import LearnerFolder, Settings, database
from ergnn.folder.certificate import find_bytes, make_certificate
from ergnn.folder.database import transaction, writing
from ergnn.folder.spool import Spool
from folder.growing import edges_of, ids_file, make_updates, nodes_of, objects, quick, tables, x_of

GONE = ["person-4711", "person-0815"]
LABEL = "unicorns"


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of both kinds with two updates, the second with two people, the only ones of their class."""
    root = tmp_path_factory.mktemp("bases")
    for name, settings in (("solved", Settings()), ("network", quick(epochs=1))):
        folder = LearnerFolder.create(root / name, settings)
        folder.observe(*make_updates(1)[0])
        people = nodes_of(GONE, [LABEL] * 2, x_of(2), split=objects(["train"] * 2))
        folder.observe(people, edges_of((GONE[0], "n1"), ("n2", GONE[1])), name=f"update of {GONE[0]}")
    return {name: root / name for name in ("solved", "network")}


@pytest.fixture
def folder(bases: dict[str, Path], tmp_path: Path) -> LearnerFolder:
    return LearnerFolder(shutil.copytree(bases["solved"], tmp_path / "d"))


def traces(folder: LearnerFolder) -> list[str]:
    """Files with anything of the two people."""
    texts = [*(name.encode() for name in GONE), LABEL.encode(), *(row.tobytes() for row in x_of(2))]
    files = [path for path in folder.root.rglob("*") if path.is_file()]
    return [path.name for path in files if any(text in path.read_bytes() for text in texts)]


@pytest.mark.parametrize("given", [True, False])
def test_nodes_that_are_forgotten_are_purged_later(
    folder: LearnerFolder, given: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = ["--nodes", ids_file(folder.root.parent, GONE)]
    assert main(["forget", str(folder.root), *nodes]) == 0
    out = capsys.readouterr().out
    assert "the model of version 3 no longer depends on them" in out
    assert "older versions (0, 1, 2) still contain them; `ergnn forget --purge` deletes" in out
    assert "with the same split column" in out
    assert traces(folder)
    for _ in range(2):  # the second time there is nothing left to do
        assert main(["forget", str(folder.root), *(nodes if given else []), "--purge"]) == 0
        assert not traces(folder)
    assert ("2 of the ids were not in the graph" in capsys.readouterr().out) == given
    assert folder.check() == []
    assert main(["forget", str(folder.root)]) == 2
    assert "use --nodes, or --purge" in capsys.readouterr().err


@pytest.mark.parametrize("function", ["purge_spool", "database.drop_before", "database.scrub"])
def test_a_purge_that_was_interrupted_is_completed(
    folder: LearnerFolder, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(f"ergnn.folder.learner_folder.{function}", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            folder.forget(GONE, purge=True)
    assert traces(folder) or function == "database.scrub"
    folder.forget(GONE, purge=True)
    assert not traces(folder)


def test_a_purge_waits_for_an_unfinished_update(folder: LearnerFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("ergnn.folder.solved.SolvedLearner.solve", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            folder.observe(edges=edges_of(("n1", "n5")))
    with pytest.raises(FolderError, match=r"unfinished; .* before purging"):
        folder.purge()
    assert folder.resume() is not None
    folder.purge()


def test_a_purge_is_completed_once_no_one_reads(folder: LearnerFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with folder.snapshot() as reader:
        reader.graph.nodes()
        with pytest.raises(BusyError, match="ergnn forget --purge"):
            folder.forget(GONE, purge=True)
    assert main(["forget", str(folder.root), "--purge", "--nodes", ids_file(folder.root.parent, GONE)]) == 0
    assert not traces(folder)


def test_without_training_nodes_no_row_is_cached(tmp_path: Path) -> None:
    options = {"feature_map": "hops", "map_options": {"num_hops": 1}}
    folder = LearnerFolder.create(tmp_path / "d", Settings.from_settings(options))
    for nodes, edges in make_updates(3, links=1):
        folder.observe(nodes, edges)
    for other in ("n3", "n4"):  # most rows stay as they are
        folder.observe(edges=edges_of(("n2", other)))
    assert tables(folder)["phi"]
    cached = [row["data"] for row in tables(folder)["phi"]]
    rolled = LearnerFolder(shutil.copytree(folder.root, tmp_path / "rolled"))
    with folder.snapshot() as snapshot:
        train = snapshot.graph.names(snapshot.graph.split("train")[0])
    folder.forget(train, purge=True)
    rolled.rollback()
    rolled.purge()
    for each in (folder, rolled):
        assert not tables(each)["phi"]
        assert not tables(each)["row_cache"]
        data = b"".join(path.read_bytes() for path in each.root.iterdir())
        assert not any(row in data for row in cached)
        assert each.check() == []


def test_the_certificate_of_a_purge_holds(
    folder: LearnerFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "certificate.json"
    command = [
        "forget",
        str(folder.root),
        "--nodes",
        ids_file(folder.root.parent, GONE),
        "--purge",
        "--certificate",
        str(path),
    ]
    assert main(command) == 0
    certificate = json.loads(path.read_text())
    assert (certificate["version_before"], certificate["version_after"]) == (2, 3)
    assert len(certificate["removed"]) == 2
    assert not any(name in path.read_text() for name in GONE)
    assert certificate["searched"]["texts"] == 4  # two ids, two rows of features
    assert certificate["searched"]["bytes"] >= (folder.root / "learner.sqlite").stat().st_size
    assert certificate["compared"]["nodes"] == 40
    assert certificate["compared"]["largest_difference"] <= 1e-8
    verify = ["verify", str(path), str(folder.root)]
    folder.observe(nodes_of(["later"], ["c0"], x_of(1)))
    assert main(verify) == 0
    assert "WRONG" not in capsys.readouterr().out
    folder.observe(nodes_of(GONE[:1], None, x_of(1)))
    assert main(verify) == 2
    out = capsys.readouterr().out
    assert out.count("WRONG") == 1
    assert "WRONG: none of the 2 nodes is there; the database has some of them" in out


def test_a_certificate_is_not_believed(folder: LearnerFolder, bases: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    folder.forget(GONE, purge=True, certificate=path)

    def contradicted(each: LearnerFolder) -> list[str]:
        return [statement for statement, wrong in each.verify(path).items() if wrong is not None]

    assert contradicted(folder) == []
    other = LearnerFolder(shutil.copytree(bases["solved"], tmp_path / "other"))
    assert len(contradicted(other)) == 3  # of another folder, which holds them, in older versions
    spool = Spool(folder.root)
    with spool.incoming() as directory:
        (directory / "ids.json").write_text(json.dumps({"ids": GONE[1:], "retrain": False}))
        spool.add(directory, "forget")
    assert contradicted(folder) == ["none of the 2 nodes is there"]
    shutil.rmtree(folder.root / "spool")
    with writing(folder.root) as connection, transaction(connection):
        data = database.get_tensors(connection, 3, "weights")
        from safetensors.torch import save

        data["weight"][0, 0] += 0.01
        database.insert(connection, "blobs", [(3, "weights", save(data))], "REPLACE")
    assert [statement[:9] for statement in contradicted(folder)] == ["the model"]
    certificate = json.loads(path.read_text())
    path.write_text(json.dumps({**certificate, "version_after": 1}))
    assert contradicted(folder)[0] == "the certificate was issued for this folder"
    path.write_text("[]")
    with pytest.raises(InputError, match="cannot be read as a certificate"):
        folder.verify(path)


def test_the_certificate_of_a_network_needs_training_without_the_nodes(bases: dict[str, Path], tmp_path: Path) -> None:
    folder = LearnerFolder(shutil.copytree(bases["network"], tmp_path / "d"))
    path = tmp_path / "certificate.json"
    with pytest.raises(InputError, match="--retrain"):
        folder.forget(GONE, purge=True, certificate=path)
    with pytest.raises(InputError, match="both, --purge and --certificate"):
        folder.forget(GONE, certificate=path)
    assert folder.inspect()["version"] == 2
    folder.forget(GONE, purge=True, retrain=True, certificate=path)
    assert json.loads(path.read_text())["compared"]["largest_difference"] == 0
    assert not any(folder.verify(path).values())
    assert not traces(folder)


def test_bytes_are_found_wherever_they_are(folder: LearnerFolder, tmp_path: Path) -> None:
    folder.forget(GONE, purge=True)
    (folder.root / "spool" / "deep").mkdir(parents=True)
    texts = [f"secret-{i:05d}".encode() for i in range(300)]
    rng, places = np.random.default_rng(0), {"a": 0, "spool/deep/b": (1 << 22) - 3, "spool/c": 9_000_000}
    for name, place in places.items():
        data = rng.bytes(place) + texts[len(name)] + rng.bytes(50)
        (folder.root / name).write_bytes(data)
    (folder.root / "d").write_bytes(b"secret-" * 1000)
    with folder.snapshot() as snapshot:
        hits, searched = find_bytes(snapshot, texts)
        assert sorted(hits) == sorted(places)
        assert searched["bytes"] > 13_000_000
        assert find_bytes(snapshot, [b"features", b"n1\x01\x02zz"])[0] == []  # the schema has the first


def test_ids_within_other_ids_are_told_apart(tmp_path: Path) -> None:
    folder = LearnerFolder.create(tmp_path / "d")
    ids = [f"member {i}" for i in range(30)]
    folder.observe(nodes_of(ids, ["a", "b", None] * 10, x_of(30)))
    path = tmp_path / "certificate.json"
    folder.forget(["member 1", "member 2"], purge=True, certificate=path)  # "member 10" is still there
    assert not any(folder.verify(path).values())
    with writing(folder.root) as connection, transaction(connection):
        database.add_log(connection, "note", text="member 2 was here")
    with folder.snapshot() as snapshot:
        assert find_bytes(snapshot, [b"member 2", b"member 1"])[0]


def test_forgetting_before_purging(folder: LearnerFolder) -> None:
    with pytest.raises(InputError, match="'n3' is in the graph; forget it before purging"):
        folder.purge(["n3"])
    folder.forget(GONE)
    with folder.snapshot() as snapshot, pytest.raises(FolderError, match="as bytes of removed nodes are in learner"):
        make_certificate(snapshot, 1, {GONE[0]: []})
