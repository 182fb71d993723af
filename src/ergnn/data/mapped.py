"""Arrays that stay in their file."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ergnn.errors import InputError


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
            return torch.from_numpy(array)
        except TypeError as error:
            raise InputError(f"{path}: its numbers are of type {array.dtype}, which torch does not have") from error
