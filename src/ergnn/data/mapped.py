"""Memory-mapped arrays."""

from __future__ import annotations

import mmap
import warnings
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from ergnn.config.files import wrap_errors

_ARRAYS: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()
"""Arrays behind mapped tensors, by address; the tensors keep them alive."""


def mapped(path: str | Path) -> Tensor:
    """Map a ``.npy`` file as a read-only tensor; only the parts that are used are loaded into memory.

    A graph's ``x`` may thus be larger than memory: ``Graph.from_csr(mapped("x.npy"), rowptr, col, y)``.
    """
    with wrap_errors(path, "a .npy file with one array of numbers"), warnings.catch_warnings():
        array = np.lib.format.open_memmap(path, mode="r")
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        tensor = torch.from_numpy(array)
    _ARRAYS[tensor.untyped_storage().data_ptr()] = array
    return tensor


def release(tensor: Tensor) -> None:
    """Drop the pages of a mapped file from this process; they are read again when needed.

    Pages that were read count as memory of the process until the system reclaims them. Does nothing for tensors that
    are not memory-mapped.
    """
    array = _ARRAYS.get(tensor.untyped_storage().data_ptr())
    pages = getattr(array, "_mmap", None)
    if pages is not None and hasattr(pages, "madvise"):  # not on Windows
        pages.madvise(mmap.MADV_DONTNEED)
