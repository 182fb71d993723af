import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from ergnn.config.errors import InputError
from ergnn.data.csr import mapped, release


def test_a_mapped_array_is_the_array(tmp_path: Path) -> None:
    array = np.random.default_rng(0).random((30, 4), dtype=np.float32)
    np.save(tmp_path / "x.npy", array)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = mapped(tmp_path / "x.npy")
    assert torch.equal(x, torch.from_numpy(array))
    assert torch.equal(x[torch.tensor([7, 3])], torch.from_numpy(array[[7, 3]]))


def test_changes_in_the_file_are_visible(tmp_path: Path) -> None:
    """So it is the file that is read, and no copy."""
    np.save(tmp_path / "x.npy", np.zeros(5))
    x = mapped(tmp_path / "x.npy")
    np.lib.format.open_memmap(tmp_path / "x.npy", mode="r+")[3] = 1.0
    assert x.tolist() == [0, 0, 0, 1, 0]


def file_bytes() -> int:
    """Bytes of files that are in this process's memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssFile:")).split()[1])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_released_pages_leave_memory_and_are_read_again(tmp_path: Path) -> None:
    array = np.arange(1 << 23, dtype=np.int64)
    np.save(tmp_path / "x.npy", array)
    x, copy = mapped(tmp_path / "x.npy"), torch.arange(5)
    total = int(x.sum())
    before = file_bytes()
    release(x[3:].view(-1))  # of any view
    assert file_bytes() < before - array.nbytes // 2
    assert int(x.sum()) == total
    release(copy)  # nothing happens
    assert copy.tolist() == [0, 1, 2, 3, 4]


def test_files_that_cannot_be_mapped_are_named(tmp_path: Path) -> None:
    (tmp_path / "text.npy").write_text("1,2,3")
    np.savez(tmp_path / "two.npz", a=np.zeros(2), b=np.zeros(2))
    np.save(tmp_path / "objects.npy", np.array([{}, None]), allow_pickle=True)
    np.save(tmp_path / "texts.npy", np.array(["a", "b"]))
    for name in ("text.npy", "objects.npy", "missing.npy", "two.npz", "texts.npy"):
        with pytest.raises(InputError, match=rf"{name}: cannot be read as a .npy file with one array of numbers"):
            mapped(tmp_path / name)
