"""Memory-mapped arrays."""

from __future__ import annotations

import mmap
import warnings
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from ergnn.config.errors import InputError

_ARRAYS: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()
"""Arrays behind mapped tensors, by address; the tensors keep them alive."""


def mapped(path: str | Path) -> Tensor:
    """Map a ``.npy`` file as a read-only tensor; only the parts that are used are loaded into memory.

    A graph's ``x`` may thus be larger than memory: ``Graph.from_csr(mapped("x.npy"), rowptr, col, y)``.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not an array file that can be memory-mapped ({error})") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: contains several arrays; use a .npy file with one array")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        try:
            tensor = torch.from_numpy(array)
        except TypeError as error:
            raise InputError(f"{path}: its numbers are of type {array.dtype}, which torch does not have") from error
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
