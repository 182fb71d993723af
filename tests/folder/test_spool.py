"""The spool on disk: purges, jobs of other versions, damage, and numbers that are never used again."""

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from ergnn.config.errors import BusyError
from ergnn.folder.spool import OUTCOMES, PURGED, Job, Spool, purge_spool, serving

GONE = "gone-node-4711"
SECRET = b"0.48151623"
NODES = f"id,label,f0\n{GONE},c0,{SECRET.decode()}\nn1,c1,1.5\n".encode()
OTHER = b"id,label,f0\nn2,c0,2.5\nn1,c1,1.5\n"
EDGES = f"source,target\nn1,n2\nn2,{GONE}\n".encode()


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path)


def add(spool: Spool, kind: str = "observe", name: str = "", **files: bytes) -> Job:
    """Add a job; ``nodes_csv`` is the file ``nodes.csv``."""
    with spool.incoming() as directory:
        for file, data in files.items():
            (directory / file.replace("_", ".")).write_bytes(data)
        return spool.add(directory, kind, name)


def parquet(table: bytes) -> bytes:
    out = io.BytesIO()
    pa.parquet.write_table(pa.csv.read_csv(io.BytesIO(table)), out)
    return out.getvalue()


def json_lines(table: bytes) -> bytes:
    names, *rows = (line.split(",") for line in table.decode().split())
    return "\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows).encode()


def traces(root: Path) -> list[str]:
    """Files of the spool with an id or features of a purged node."""
    files = [path for path in (root / "spool").rglob("*") if path.is_file()]
    return [str(path) for path in files if any(text in path.read_bytes() for text in (GONE.encode(), SECRET))]


def stored(root: Path, number: int) -> dict[str, Any]:
    return dict(json.loads((root / "spool" / f"{number:08d}" / "job.json").read_text()))


@pytest.mark.parametrize(
    ("file", "data", "other"),
    [
        ("nodes_csv", NODES, OTHER),
        ("edges_csv", EDGES, EDGES.replace(GONE.encode(), b"n3")),
        ("nodes_csv_gz", gzip.compress(NODES), gzip.compress(OTHER)),
        ("nodes_parquet", parquet(NODES), parquet(OTHER)),
        ("update_jsonl", json_lines(NODES), json_lines(OTHER)),
        ("update_jsonl_gz", gzip.compress(json_lines(EDGES)), gzip.compress(json_lines(OTHER))),
    ],
    ids=["csv", "edges", "csv.gz", "parquet", "jsonl", "jsonl.gz"],  # bytes of a gzip file contain the time
)
def test_a_queued_update_that_names_a_purged_node_fails(file: str, data: bytes, other: bytes, spool: Spool) -> None:
    root = spool.path.parent
    add(spool, **{file: data})
    add(spool, **{file: other})
    assert purge_spool(root, [GONE]) == [1]
    assert (stored(root, 1)["state"], stored(root, 1)["error"]) == ("failed", PURGED)
    assert [path.name for path in (root / "spool" / "00000001").iterdir()] == ["job.json"]
    assert stored(root, 2)["state"] == "queued"
    assert (root / "spool" / "00000002" / file.replace("_", ".")).read_bytes() == other
    assert not traces(root)
    assert [job.number for job in Spool(root).unfinished()] == [2], "a restart does not bring it back"
    assert purge_spool(root, [GONE]) == []


def test_ids_names_reports_and_half_uploads_are_purged(spool: Spool) -> None:
    root = spool.path.parent
    add(spool, "forget", ids_json=json.dumps({"ids": [GONE, "n1"], "retrain": True}).encode())
    add(spool, name=f"without {GONE}", nodes_csv=OTHER)
    failed = add(spool, nodes_csv=OTHER)
    spool.finish(failed, "failed", error=f"node {GONE[:12]}… is not in the graph")
    done = add(spool, "forget", ids_json=b'{"ids": []}')
    spool.finish(done, "done", result={"replaced": [[GONE, "rare class", 1]]})
    directory = root / "spool" / ".new-half"
    directory.mkdir()
    (directory / "nodes.csv").write_bytes(NODES)
    assert purge_spool(root, [GONE], ["rare class"]) == []
    assert not traces(root)
    assert json.loads((root / "spool" / "00000001" / "ids.json").read_text()) == {"ids": ["n1"], "retrain": True}
    assert (stored(root, 2)["name"], stored(root, 2)["state"]) == ("", "queued")
    assert "…" not in stored(root, 3)["error"], "the beginning of an id is a trace too"
    assert (stored(root, 4)["state"], stored(root, 4)["result"]) == ("done", None)


def test_what_cannot_be_read_does_not_survive_a_purge(spool: Spool) -> None:
    root = spool.path.parent
    for data in (b'"' + NODES, NODES):
        add(spool, nodes_csv=data)
    add(spool, nodes_parquet=b"PAR1" + GONE.encode())
    add(spool, "forget", ids_json=f'["{GONE}"'.encode())
    for number in (2, 5):
        (root / "spool" / f"{number:08d}").mkdir(exist_ok=True)
        (root / "spool" / f"{number:08d}" / "job.json").write_text(f'{{"name": "{GONE}", "ki')
    assert purge_spool(root, [GONE]) == [1, 2, 3, 4, 5]
    assert not traces(root)
    assert purge_spool(root / "nowhere", [GONE]) == []


def test_a_server_sees_the_purge_of_another_process(spool: Spool) -> None:
    root = spool.path.parent
    job, other = add(spool, nodes_csv=NODES), add(spool, nodes_csv=OTHER)
    spool.finish(other, "failed", error=GONE)
    with spool.learning(), pytest.raises(BusyError, match="an update of `ergnn serve` is being learned"):
        purge_spool(root, [GONE])
    purge_spool(root, [GONE])
    spool.refresh()
    assert not spool.unfinished()
    assert GONE not in str([job.describe() for job in spool.jobs.values()])
    assert spool.finish(job, "done", result={"name": GONE}).error == PURGED, "an outcome does not undo the purge"
    assert not traces(root)

    def upload() -> None:
        with spool.incoming() as directory:
            purge_spool(root, [GONE])
            spool.add(directory, "observe")

    with pytest.raises(BusyError, match="purged while the update arrived"):
        upload()


def test_the_lock_of_a_killed_server_is_held_until_its_writer_ends(spool: Spool) -> None:
    root = spool.path.parent
    add(spool, nodes_csv=NODES)
    code = f"""
import os, subprocess, sys
from pathlib import Path
from ergnn.folder.spool import Spool
spool = Spool(Path({str(root)!r}))
with spool.learning():
    writer = ["sleep", "60"]
    child = subprocess.Popen(writer, pass_fds=(spool.learning_lock.fileno(),), stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
    os._exit(9)
"""
    writer = int(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True).stdout)
    with pytest.raises(BusyError):
        purge_spool(root, [GONE])
    subprocess.run(["kill", "-9", str(writer)], check=True)
    for _ in range(100):  # until the system has reaped it
        try:
            assert purge_spool(root, [GONE]) == [1]
            break
        except BusyError:
            subprocess.run(["sleep", "0.1"], check=True)
    assert not traces(root)


JOB = {  # as earlier versions wrote it
    "number": 3, "kind": "observe", "name": "week 3", "state": "running", "created": "2026-01-01T00:00:00+00:00",
    "finished": None, "attempts": 2, "epoch": 7, "epochs": 10, "version": None, "result": None, "error": None,
}  # fmt: skip


@pytest.mark.parametrize("more", [{}, {"priority": 5}, {"number": 99}])
def test_jobs_of_other_versions_are_read(more: dict[str, Any], tmp_path: Path) -> None:
    directory = tmp_path / "spool" / "00000003"
    directory.mkdir(parents=True)
    (directory / "job.json").write_text(json.dumps(JOB | more))
    (directory / "nodes.csv").write_bytes(OTHER)
    (job,) = Spool(tmp_path).unfinished()
    assert (job.number, job.kind, job.name, job.state, job.attempts) == (3, "observe", "week 3", "queued", 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        *(json.dumps(JOB | wrong) for wrong in ({"kind": "compact"}, {"state": "paused"}, {"name": 5})),
        json.dumps({"number": 1}),
        None,
    ],
)
def test_a_job_that_cannot_be_read_is_set_aside(text: str | None, spool: Spool) -> None:
    root = spool.path.parent
    for _ in range(2):
        add(spool, nodes_csv=OTHER)
    broken = root / "spool" / "00000002"
    if text is None:
        (broken / "job.json").unlink()
    else:
        (broken / "job.json").write_text(text)
    again = Spool(root)
    assert [job.number for job in again.unfinished()] == [1]
    assert again.jobs[2].state == "unreadable"
    assert "update 2 is set aside" in str(again.jobs[2].error)
    assert (broken / "nodes.csv").read_bytes() == OTHER, "it is kept as it is"
    assert add(again, nodes_csv=OTHER).number == 3
    again.finish(again.jobs[2], "deleted", error=None)
    assert [path.name for path in broken.iterdir()] == ["job.json"]
    assert Spool(root).jobs[2].state == "deleted"


def test_numbers_are_never_used_again(spool: Spool) -> None:
    root = spool.path.parent
    for number in (1, 2):
        assert add(spool, nodes_csv=OTHER).number == number
    spool.finish(spool.jobs[2], "deleted")
    (root / "spool" / "00000003").write_text("a file in the way")
    (root / "spool" / ".new-file").write_text("and another one")
    again = Spool(root)
    assert add(again, nodes_csv=OTHER).number == 4
    for _ in range(OUTCOMES + 3):
        job = add(again, nodes_csv=OTHER)
        again.finish(job, "done")
    assert add(Spool(root), nodes_csv=OTHER).number == job.number + 1
    states = [job.state for _, job in sorted(Spool(root).jobs.items())]
    assert states == ["queued", "queued"] + ["done"] * OUTCOMES + ["queued"], "only outcomes are deleted"


def test_files_stay_until_a_job_is_finished(spool: Spool) -> None:
    root = spool.path.parent
    crashed, done = add(spool, nodes_csv=OTHER), add(spool, nodes_csv=OTHER)
    spool.finish(crashed, "failed", keep_files=True, error="the writer ended")
    spool.finish(done, "done")
    assert [job.number for job in Spool(root).unfinished()] == [1], "it is tried again by the next server"
    assert not list((root / "spool" / "00000002").glob("nodes*"))
    (root / "spool" / "00000002" / "nodes.csv").write_bytes(OTHER)  # the server was killed before it deleted it
    Spool(root)
    assert not list((root / "spool" / "00000002").glob("nodes*"))


def test_one_server(tmp_path: Path) -> None:
    with serving(tmp_path), pytest.raises(BusyError, match="is being served by another process"), serving(tmp_path):
        pass
