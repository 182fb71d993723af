"""Labels of any kind, and the class numbers that stand for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ergnn.errors import InputError


class Labels:
    """Numbers for labels: 0, 1, 2, … in the order in which they are first met.

    Args:
        known: labels by number.
    """

    def __init__(self, known: tuple[Any, ...] = ()) -> None:
        self.known = known
        self.classes = np.unique(np.array(known)) if known else np.empty(0)

    def with_more(self, labels: np.ndarray) -> Labels:
        """These labels and some that may be new."""
        new = np.unique(labels)
        if self.known and _kind(new) != _kind(self.classes):
            raise InputError(
                f"labels are {new.dtype} such as {new.tolist()[0]!r}, but so far they were {self.classes.dtype} "
                f"such as {self.known[0]!r}; one kind is needed"
            )
        return Labels(tuple(dict.fromkeys([*self.known, *new.tolist()])))

    def numbers(self, labels: np.ndarray) -> Tensor:
        """The class number of each label."""
        number = {label: i for i, label in enumerate(self.known)}
        return torch.tensor([number[label] for label in labels.tolist()], dtype=torch.long)

    def columns(self, numbers: Tensor) -> np.ndarray:
        """Where the labels with these numbers stand in :attr:`classes`."""
        return np.searchsorted(self.classes, np.array([self.known[number] for number in numbers.tolist()]))


def _kind(labels: np.ndarray) -> str:
    return "number" if labels.dtype.kind in "biuf" else "text"
