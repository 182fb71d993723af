"""A segment: arrays in one file that never changes, read a block at a time, each block checked when it is first read.

The file is a safetensors file whose last tensor, ``digests``, holds the SHA-256 of every block of 4,096 bytes before
it. The manifest vouches for the digests (``root``, their own SHA-256), the digests for the blocks, so that a reader who
touches a thousandth of a segment reads and checks a thousandth of it, and no byte is used that was not checked.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ergnn.folder.files import FolderError, open_plain
from ergnn.folder.tensors import Array, Spec, header_length, make_header, parse_header

BLOCK = 4096
CACHE = 4096
"""Blocks of a segment that are kept in memory, the newest."""
AT_ONCE = 256
"""Blocks that are put together at a time."""

Parts = Callable[[], Iterator[Array]]
"""Makes an array piece by piece."""
Layout = dict[str, tuple[Any, tuple[int, ...], Parts]]
"""Array name → type, shape, pieces; wide numbers must come first."""


class Segment:
    """Arrays by name, of which parts can be read; this one is in memory.

    Args:
        arrays: 1-d arrays.
    """

    def __init__(self, arrays: dict[str, Array]) -> None:
        self.arrays = arrays

    def size(self, name: str) -> int:
        return len(self.arrays[name])

    def take(self, name: str, index: Array) -> Array:
        """Entries by position."""
        return self.arrays[name][index]

    def slice(self, name: str, start: int, stop: int) -> Array:
        return self.arrays[name][start:stop]

    def rows(self, pointers: str, index: Array) -> tuple[Array, Array]:
        """Of a table in CSR form: for every entry of rows ``index`` (each named once), the row's place and the entry's.

        Raises:
            FolderError: if the pointers lead outside of what they point into.
        """
        low, high = self.take(pointers, index), self.take(pointers, index + 1)
        count = high - low
        most = self.bound(pointers)
        if index.size and (low.min() < 0 or high.max() > most or count.min() < 0 or count.sum() > most):
            raise FolderError(f"{self}: {pointers} lead nowhere: the segment is damaged")
        row = np.repeat(np.arange(len(index)), count)
        return row, np.arange(len(row)) + np.repeat(low - (np.cumsum(count) - count), count)

    def bound(self, pointers: str) -> int:
        """Length of the arrays that ``pointers`` point into (by convention ``a.ptr`` and ``a.…``)."""
        prefix = pointers.removesuffix("ptr")
        return min(self.size(name) for name in self.names() if name.startswith(prefix) and name != pointers)

    def names(self) -> list[str]:
        return list(self.arrays)

    def release(self) -> None:
        """Give back the memory of what was read; it can be read again."""

    def close(self) -> None:
        pass

    def __str__(self) -> str:
        return "update"


class FileSegment(Segment):
    """A segment on disk.

    Args:
        path: the file.
        size, payload, root: what the manifest says of it: bytes, bytes before the digests, and the digests' own digest.

    Attributes:
        read_bytes: how much of it has been read so far.
    """

    def __init__(self, path: Path, size: int, payload: int, root: str) -> None:
        self.path, self.payload, self.read_bytes = path, payload, 0
        self._blocks: dict[int, bytes] = {}
        count = -(-payload // BLOCK)
        self.handle, found = open_plain(path)
        try:
            if found != size or size != payload + 32 * count:
                raise FolderError(f"{path}: has {found:,} bytes; {size:,} were written: it is damaged")
            self._digests = self._read(payload, 32 * count)
            if hashlib.sha256(self._digests).hexdigest() != root:
                raise FolderError(f"{path}: the content does not match its checksum: it is damaged")
            length = header_length(self._span(0, 8), size, path)
            self.specs, _ = parse_header(self._span(8, 8 + length), size, path)
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        digests = self.specs.pop("digests", None)
        if digests is None or digests.start != self.payload:
            raise FolderError(f"{self.path}: holds no digests: it is damaged")
        for name, spec in self.specs.items():
            if len(spec.shape) != 1 or spec.start % spec.dtype.itemsize:
                raise FolderError(f"{self.path}: array {name!r} is not aligned: the segment is damaged")

    def _read(self, start: int, count: int) -> bytes:
        data = os.pread(self.handle, count, start)
        if len(data) != count:
            raise FolderError(f"{self.path}: ends too soon: it is damaged")
        self.read_bytes += count
        return data

    def _block(self, number: int) -> bytes:
        """A block that adds up; the last one is filled up with zeros."""
        if number not in self._blocks:
            if len(self._blocks) >= CACHE:
                self._blocks.pop(next(iter(self._blocks)))
            start = number * BLOCK
            data = self._read(start, min(BLOCK, self.payload - start))
            if hashlib.sha256(data).digest() != self._digests[32 * number : 32 * number + 32]:
                raise FolderError(f"{self.path}: block {number} does not match its checksum: it is damaged")
            self._blocks[number] = data.ljust(BLOCK, b"\0")
        return self._blocks[number]

    def _span(self, start: int, stop: int) -> bytes:
        if not 0 <= start <= stop <= self.payload:
            raise FolderError(f"{self.path}: is cut short")
        first = start // BLOCK
        data = b"".join(self._block(number) for number in range(first, -(-stop // BLOCK)))
        return data[start - first * BLOCK : stop - first * BLOCK]

    def _spec(self, name: str) -> Spec:
        if name not in self.specs:
            raise FolderError(f"{self.path}: has no array {name!r}: it is damaged")
        return self.specs[name]

    def size(self, name: str) -> int:
        return self._spec(name).count

    def names(self) -> list[str]:
        return list(self.specs)

    def take(self, name: str, index: Array) -> Array:
        spec = self._spec(name)
        if not index.size:
            return np.empty(0, spec.dtype)
        if index.min() < 0 or index.max() >= spec.count:
            raise FolderError(f"{self.path}: {name} has no entry {int(index.max())}: the segment is damaged")
        at = spec.start + index.astype(np.int64) * spec.dtype.itemsize
        number = at // BLOCK
        order = np.argsort(number, kind="stable")
        needed, first = np.unique(number[order], return_index=True)
        ends = np.append(first, len(order))
        out = np.empty(len(index), spec.dtype)
        for start in range(0, len(needed), AT_ONCE):
            blocks = needed[start : start + AT_ONCE]
            mine = order[ends[start] : ends[start + len(blocks)]]
            data = np.frombuffer(b"".join(self._block(int(n)) for n in blocks), spec.dtype)
            place = np.searchsorted(blocks, number[mine]) * BLOCK + at[mine] % BLOCK
            out[mine] = data[place // spec.dtype.itemsize]
        return out

    def slice(self, name: str, start: int, stop: int) -> Array:
        spec = self._spec(name)
        if not 0 <= start <= stop <= spec.count:
            raise FolderError(f"{self.path}: {name} has no entries {start} to {stop}: the segment is damaged")
        width = spec.dtype.itemsize
        return np.frombuffer(self._span(spec.start + start * width, spec.start + stop * width), spec.dtype)

    def release(self) -> None:
        self._blocks.clear()

    def verify(self) -> None:
        """Read and check every block."""
        for number in range(len(self._digests) // 32):
            self._block(number)

    def close(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    def __del__(self) -> None:
        if getattr(self, "handle", -1) >= 0:
            self.close()

    def __str__(self) -> str:
        return str(self.path)


class _Writer:
    """Writes bytes and takes the digest of every block on the way."""

    def __init__(self, file: Any) -> None:
        self.file, self.rest = file, b""
        self.digests: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.file.write(data)
        data = self.rest + data
        whole = len(data) - len(data) % BLOCK
        self.digests += [hashlib.sha256(data[i : i + BLOCK]).digest() for i in range(0, whole, BLOCK)]
        self.rest = data[whole:]

    def finish(self) -> bytes:
        if self.rest:
            self.digests.append(hashlib.sha256(self.rest).digest())
        digests = b"".join(self.digests)
        self.file.write(digests)
        return digests


def write_segment(path: Path, layout: Layout) -> dict[str, Any]:
    """Write a segment, and say how the manifest has to name it."""
    shapes = {name: (np.dtype(dtype), shape) for name, (dtype, shape, _) in layout.items()}
    data_bytes = sum(int(np.prod(shape)) * dtype.itemsize for dtype, shape in shapes.values())
    count = 0
    while True:  # the header's length depends a little on the number of digests that it names
        header = make_header({**shapes, "digests": (np.dtype(np.uint8), (count, 32))})
        payload = len(header) + data_bytes
        if count == -(-payload // BLOCK):
            break
        count = -(-payload // BLOCK)
    with open(path, "wb") as file:
        writer = _Writer(file)
        writer.write(header)
        for name, (dtype, shape, parts) in layout.items():
            written = 0
            for part in parts():
                writer.write(np.ascontiguousarray(part, dtype=dtype).tobytes())
                written += len(part)
            assert written == shape[0], name
        digests = writer.finish()
        file.flush()
        os.fsync(file.fileno())
    size = payload + len(digests)
    return {"name": path.name, "bytes": size, "payload": payload, "root": hashlib.sha256(digests).hexdigest()}
