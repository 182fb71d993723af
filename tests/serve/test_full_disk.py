"""A disk that fills up: what was accepted waits, what does not fit is refused, and ``/health`` says so."""

import shutil
import time
from pathlib import Path

from ergnn.folder import LearnerFolder
from folder.disk import fill, mounted
from serve.running import Server


def test_accepted_updates_wait_until_the_disk_has_room(place: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", 2 << 20) as disk:
        root = disk / "learner"
        shutil.copytree(place / "base", root)
        nodes = (place / "third_nodes.csv").read_bytes()

        def upload(server: Server, name: str) -> int:
            answer = server.client.post(
                "/observe", content=nodes, headers={"content-type": "text/csv"}, params={"name": name}
            )
            assert str(disk) not in answer.text
            return answer.status_code

        def trouble(server: Server) -> str:
            return str(server.client.get("/health").json().get("trouble", ""))

        waits = "accepted updates wait: learner: could not be written or read"
        with Server(root) as server:
            assert server.client.get("/").status_code == 200  # the version was inspected, which opens files
            filler = fill(disk, leave=len(nodes) + 24_000)  # room for the upload, not for what is learned from it
            assert upload(server, "third") == 202
            server.wait_for(lambda: waits in trouble(server))
            health = server.client.get("/health").json()
            assert (health["status"], health["version"], health["waiting"]) == ("degraded", 2, 1)
            assert str(disk) not in health["trouble"]
            filler.unlink()
            filler = fill(disk)
            assert upload(server, "fourth") == 507
            assert server.client.post("/forget", json={"ids": ["n1"]}).status_code == 507
            time.sleep(5)  # further attempts
            assert server.client.get("/updates/1").json()["state"] in ("queued", "running")
            assert server.client.get("/updates/2").status_code == 404
            assert len(server.said().splitlines()) < 10, "each trouble is logged once"
            server.kill()
        filler.unlink()
        with Server(root) as server:
            update = server.finished("1")
            assert (update["state"], update["version"], update["result"]["name"]) == ("done", 3, "third")
            server.wait_for(lambda: server.client.get("/health").json() == {"status": "ok", "version": 3, "waiting": 0})
        assert [record["name"] for record in LearnerFolder(root).inspect()["updates"][2:]] == ["third"]
        assert LearnerFolder(root).check() == []
