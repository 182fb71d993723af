import threading
from collections.abc import Iterator

import pytest

from ergnn.engine.training import prefetched


def threads() -> int:
    return sum(thread.name.startswith("ergnn-prefetch") for thread in threading.enumerate())


def test_an_error_is_raised_at_its_position() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise ZeroDivisionError("third")

    ahead = prefetched(items())
    assert (next(ahead), next(ahead)) == (1, 2)
    with pytest.raises(ZeroDivisionError, match="third"):
        next(ahead)
    assert threads() == 0


def test_the_thread_is_one_item_ahead() -> None:
    made: list[int] = []
    ready = threading.Event()

    def items() -> Iterator[int]:
        for i in range(10):
            made.append(i)
            if i == 1:
                ready.set()
            yield i

    ahead = prefetched(items())
    assert next(ahead) == 0
    assert ready.wait(10)  # while nothing is consumed
    assert max(made) == 1
    assert list(ahead) == list(range(1, 10))


def test_the_thread_stops_with_its_consumer() -> None:
    def forever() -> Iterator[int]:
        while True:
            yield 0

    ahead = prefetched(forever())
    next(ahead)
    ahead.close()  # type: ignore[attr-defined]
    assert threads() == 0
