"""Files that are replaced atomically."""

import os
import threading
from pathlib import Path

import pytest

from ergnn.config.errors import InputError
from ergnn.config.files import replacing, write_file


def test_two_writers_publish_their_own_content(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    with replacing(path) as first, replacing(path) as second:
        first.write_text("first")
        second.write_text("second")
        assert first.read_text() == "first"
    assert path.read_text() == "first"  # whose block ended last
    assert os.listdir(tmp_path) == ["out.txt"]


def test_after_an_error_the_earlier_file_is_there(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("earlier")
    with pytest.raises(InputError), replacing(path) as new:
        new.write_text(str(os.listdir(tmp_path / "missing")))
    assert path.read_text() == "earlier"
    assert os.listdir(tmp_path) == ["out.txt"]


@pytest.mark.parametrize("dangling", [False, True])
def test_a_symbolic_link_is_followed(tmp_path: Path, dangling: bool) -> None:
    (tmp_path / "other").mkdir()
    target, link = tmp_path / "other" / "target.txt", tmp_path / "link.txt"
    if not dangling:
        target.write_text("earlier")
    link.symlink_to("other/target.txt")
    write_file(link, b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert os.listdir(target.parent) == ["target.txt"]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    write_file(pipe, b"content")
    reader.join()
    assert received == [b"content"]
    assert pipe.is_fifo()


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_file(tmp_path, b"content")
