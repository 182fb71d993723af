"""Mapping between labels of any kind and class ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ergnn.config.errors import InputError


class Labels:
    """Class ids of labels: 0, 1, 2, … in the order of first occurrence.

    Args:
        known: labels by class id.
    """

    def __init__(self, known: tuple[Any, ...] = ()) -> None:
        self.known = known
        self.classes = np.unique(np.array(known)) if known else np.empty(0)

    def with_more(self, labels: np.ndarray) -> Labels:
        """Return these labels and additional ones."""
        new = np.unique(labels)
        if self.known and _kind(new) != _kind(self.classes):
            raise InputError(
                f"labels are {new.dtype} such as {new.tolist()[0]!r}, but earlier ones were {self.classes.dtype} "
                f"such as {self.known[0]!r}; use one type"
            )
        return Labels(tuple(dict.fromkeys([*self.known, *new.tolist()])))

    def numbers(self, labels: np.ndarray) -> Tensor:
        """Return the class number of each label."""
        number = {label: i for i, label in enumerate(self.known)}
        return torch.tensor([number[label] for label in labels.tolist()], dtype=torch.long)

    def columns(self, numbers: Tensor) -> np.ndarray:
        """Return the positions in :attr:`classes` of the labels with these numbers."""
        return np.searchsorted(self.classes, np.array([self.known[number] for number in numbers.tolist()]))


def _kind(labels: np.ndarray) -> str:
    return "number" if labels.dtype.kind in "biuf" else "text"
