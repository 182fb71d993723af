"""Prepare the next items in a thread while the current one is in use."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from queue import Empty, Full, Queue
from typing import Any, TypeVar

T = TypeVar("T")

_END = object()


def prefetched(items: Iterable[T], depth: int = 2) -> Iterator[T]:
    """Yield the items in order, prepared by a thread that is at most ``depth`` items ahead.

    An error is raised at the position of the item that caused it. If the consumer stops early, so does the thread.
    """
    queue: Queue[tuple[Any, BaseException | None]] = Queue(depth)
    stop = threading.Event()

    def put(item: Any, error: BaseException | None = None) -> bool:
        while not stop.is_set():
            try:
                queue.put((item, error), timeout=0.1)
                return True
            except Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(item):
                    return
            put(_END)
        except BaseException as error:  # raised in the consumer
            put(_END, error)

    thread = threading.Thread(target=work, name="ergnn-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item, error = queue.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        stop.set()
        while True:  # drop prepared items so that the thread can stop
            try:
                queue.get_nowait()
            except Empty:
                break
        thread.join()
