"""Values that are computed from tensors, cached as long as these exist and are unchanged."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import ReferenceType, ref

from torch import Tensor

from ergnn.data.csr import CsrEdges
from ergnn.data.graph import Graph

V = TypeVar("V")
_MISSING = object()


@dataclass(frozen=True, eq=False)
class _Entry(Generic[V]):
    sources: list[ReferenceType[Any]]
    versions: list[Hashable]
    value: V


class Cache(Generic[V]):
    """Values by the objects that they are computed from (*sources*: tensors, graphs, models) and a key.

    A value is valid as long as all sources are the same objects with the same :func:`version_of`, which every in-place
    operation on a tensor changes. It is deleted together with the first of its sources, so it must not refer to them.
    Only writes that PyTorch does not count are missed: through ``tensor.data`` or NumPy, and to inference tensors.

    Args:
        limit: maximum total size of all values; the oldest are dropped, except for the latest one.
        size: function that returns the size of a value; by default 1.
    """

    def __init__(self, limit: float = float("inf"), size: Callable[[V], int] | None = None) -> None:
        self.limit, self.size = limit, size
        self._entries: dict[Hashable, _Entry[V]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Cache, (self.limit, self.size)  # a copy has no values

    def clear(self) -> None:
        self._entries.clear()

    def find(self, sources: Sequence[Any], key: Hashable = None, default: Any = None) -> V | Any:
        """Return a valid value; ``default`` if there is none."""
        entry = self._entries.get((*map(id, sources), key))
        return entry.value if entry and entry.versions == [version_of(source) for source in sources] else default

    def store(self, sources: Sequence[Any], value: V, key: Hashable = None) -> None:
        """Add or replace a value, unless it is a tensor that is valid in the current context only."""
        if isinstance(value, Tensor) and (value.requires_grad or value.is_inference()):
            return
        name, cache = (*map(id, sources), key), ref(self)

        def delete(_: ReferenceType[Any]) -> None:
            owner = cache()
            if owner is not None:
                owner._entries.pop(name, None)

        self._entries.pop(name, None)  # the latest is last
        versions = [version_of(source) for source in sources]
        self._entries[name] = _Entry([ref(source, delete) for source in sources], versions, value)
        sizes = [(other, self.size(entry.value) if self.size else 1) for other, entry in list(self._entries.items())]
        total = sum(size for _, size in sizes)
        for other, size in sizes[:-1]:
            if total > self.limit:
                self._entries.pop(other, None)
                total -= size

    def get(self, sources: Sequence[Any], compute: Callable[[], V], key: Hashable = None) -> V:
        """Return a valid value, or compute and store it."""
        value = self.find(sources, key, _MISSING)
        if value is _MISSING:
            value = compute()
            self.store(sources, value, key)
        return value


def version_of(source: Any) -> Hashable:
    """Return a value that changes with every in-place operation on a tensor, or on a tensor of a graph."""
    if isinstance(source, Graph):
        return tuple(version_of(tensor) for tensor in (source.x, source.edge_index, source.y, source.edge_weight))
    if isinstance(source, CsrEdges):
        return version_of(source.rowptr), version_of(source.col)
    return source._version if isinstance(source, Tensor) and not source.is_inference() else 0
