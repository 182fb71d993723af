"""Arrays that stay in their file."""

from __future__ import annotations

import mmap
import warnings
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from ergnn.errors import InputError

_ARRAYS: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()
"""The arrays behind mapped tensors, which keep them alive, by address."""


def mapped(path: str | Path) -> Tensor:
    """A ``.npy`` file as a tensor of which only what is used comes into memory; nobody may write to it.

    As a graph's ``x`` it may be larger than memory: ``Graph.from_csr(mapped("x.npy"), rowptr, col, y)``.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not an array file that can be mapped ({error})") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: holds several arrays; one .npy file holds one")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        try:
            tensor = torch.from_numpy(array)
        except TypeError as error:
            raise InputError(f"{path}: its numbers are of type {array.dtype}, which torch does not have") from error
    _ARRAYS[tensor.untyped_storage().data_ptr()] = array
    return tensor


def release(tensor: Tensor) -> None:
    """Drop the pages of a mapped file from this process; they are read again when they are needed.

    Pages that were read count as memory of the process until the system needs them for something else. For a tensor
    that is not of a mapped file, nothing happens.
    """
    array = _ARRAYS.get(tensor.untyped_storage().data_ptr())
    pages = getattr(array, "_mmap", None)
    if pages is not None and hasattr(pages, "madvise"):  # not on Windows
        pages.madvise(mmap.MADV_DONTNEED)
