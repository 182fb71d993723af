"""A PostgreSQL server for the tests: in a temporary folder, on a socket, without a port."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

USER = "ergnn"


def program(name: str) -> str:
    """A program of PostgreSQL's, or a reason to skip."""
    found = shutil.which(name)
    if found is None:  # Debian keeps them out of the path
        places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
        found = str(places[-1]) if places else None
    if found is None:
        pytest.skip(f"PostgreSQL's {name} is not installed (Debian: apt-get install postgresql)")
    return found


def unprivileged() -> str | None:
    """Whom to run the server as, which refuses to run as root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), None)


@contextmanager
def postgresql_server() -> Iterator[str]:
    """Start a server; what is given is its URL less the name of a data base."""
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    initdb, postgres, user = program("initdb"), program("postgres"), unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="ergnn-pg-"))
    if user is not None:
        shutil.chown(folder, user)
    data = folder / "data"
    making = [initdb, "-D", str(data), "-U", USER, "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"]
    subprocess.run(making, check=True, capture_output=True, user=user, cwd=folder)
    # -F: these data need not outlive a power cut
    serving = [postgres, "-D", str(data), "-F", "-c", "listen_addresses=", "-k", str(folder)]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(serving, stdout=log, stderr=log, user=user, cwd=folder)
    try:
        url = f"postgresql://{USER}@/{{}}?host={folder}"
        _wait_for(url.format("postgres"), server, folder / "log")
        yield url
    finally:
        server.send_signal(signal.SIGINT)  # at once; SIGTERM would wait for clients to leave
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text(errors="replace")) from None
            time.sleep(0.05)


def new_database(url: str, name: str) -> str:
    """The URL of an empty data base on the server."""
    import psycopg

    with psycopg.connect(url.format("postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return url.format(name)
