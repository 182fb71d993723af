"""Prepare the next item in a thread while the current one is in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_END = object()


def prefetched(items: Iterable[T]) -> Iterator[T]:
    """Yield the items in order, each prepared by a thread while the one before is in use.

    An error is raised at the position of the item that caused it. If the consumer stops early, so does the thread.
    """
    iterator = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="ergnn-prefetch") as thread:
        future = thread.submit(next, iterator, _END)
        while (item := future.result()) is not _END:
            future = thread.submit(next, iterator, _END)
            yield item  # type: ignore[misc]
