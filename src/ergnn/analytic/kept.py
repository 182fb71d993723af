"""Rows of φ that are stored without their nodes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class KeptRows:
    """Rows of φ and their labels, per feature map."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[Tensor, Tensor]] = {}

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def nbytes(self) -> int:
        return sum(part.numel() * part.element_size() for parts in self._parts.values() for part in parts)

    def get(self, name: str) -> tuple[Tensor, Tensor] | None:
        """Return the rows and labels of a feature map."""
        return self._parts.get(name)

    def add(self, name: str, rows: Tensor, labels: Tensor) -> None:
        """Store more rows."""
        old = self._parts.get(name)
        self._parts[name] = (rows, labels) if old is None else (torch.cat([old[0], rows]), torch.cat([old[1], labels]))

    def state_dict(self) -> dict[str, Any]:
        return {name: [part.clone() for part in parts] for name, parts in self._parts.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._parts = {name: (parts[0], parts[1]) for name, parts in state.items()}  # earlier versions had counts, too
