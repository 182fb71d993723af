"""Tensors in safetensors files: a JSON header that says what lies where, then the numbers.

The format is the one of the ``safetensors`` library. It is read here without it, because segments are read in parts
and every declared size must be checked before anything is allocated. Nothing in such a file is ever executed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ergnn.folder.files import FolderError, from_json, to_json

Array = NDArray[Any]
DTYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32, "U8": np.uint8, "BOOL": np.bool_}
NAMES = {np.dtype(kind): name for name, kind in DTYPES.items()}
MOST_HEADER = 4 << 20


@dataclass(frozen=True)
class Spec:
    """One tensor of a file: its type, shape, and first byte (counted from the start of the file)."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int

    @property
    def count(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.count * self.dtype.itemsize


def make_header(
    layout: dict[str, tuple[np.dtype[Any], tuple[int, ...]]], metadata: dict[str, str] | None = None
) -> bytes:
    """The first bytes of a file with these tensors, in this order; padded so that 8-byte numbers are aligned."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, (dtype, shape) in layout.items():
        size = prod(shape) * dtype.itemsize
        header[name] = {"dtype": NAMES[dtype], "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = to_json(header).rstrip(b"\n")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def header_length(first: bytes, size: int, path: object) -> int:
    """Bytes of the JSON header, from the file's first eight."""
    length = int.from_bytes(first, "little") if len(first) == 8 else -1
    if not 2 <= length <= min(size - 8, MOST_HEADER) or length % 8:
        raise FolderError(f"{path}: is not a safetensors file, or is cut short")
    return length


def parse_header(text: bytes, size: int, path: object) -> tuple[dict[str, Spec], dict[str, str]]:
    """Tensors by name, and the metadata.

    Args:
        text: the JSON header.
        size: of the whole file; the tensors must fill what follows the header, without gaps.
    """
    header = from_json(text, str(path))
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FolderError(f"{path}: the header's metadata is not text")
    base = 8 + len(text)
    specs: dict[str, Spec] = {}
    for name, entry in header.items():
        specs[name] = _spec(name, entry, base, path)
    at = base
    for name, spec in sorted(specs.items(), key=lambda item: (item[1].start, item[1].nbytes)):
        if spec.start != at:
            raise FolderError(f"{path}: tensor {name!r} does not lie where the one before it ends")
        at += spec.nbytes
    if at != size:
        raise FolderError(f"{path}: the header declares {at:,} bytes; the file has {size:,}")
    return specs, metadata


def _spec(name: str, entry: Any, base: int, path: object) -> Spec:
    wrong = FolderError(f"{path}: the header's entry for tensor {str(name)[:60]!r} is malformed")
    if not isinstance(entry, dict):
        raise wrong
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not (isinstance(dtype, str) and isinstance(shape, list) and isinstance(offsets, list)):
        raise wrong
    if dtype not in DTYPES or len(shape) > 4 or len(offsets) != 2:
        raise wrong
    if not all(type(n) is int and 0 <= n < 2**48 for n in [*shape, *offsets]):
        raise wrong
    spec = Spec(np.dtype(DTYPES[dtype]), tuple(shape), base + offsets[0])
    if offsets[1] - offsets[0] != spec.nbytes:
        raise wrong
    return spec


def to_bytes(tensors: dict[str, Array], metadata: dict[str, str] | None = None) -> bytes:
    """A whole file; tensors of wide numbers first, then by name: the same tensors are the same bytes."""
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    layout = {name: (tensors[name].dtype, tensors[name].shape) for name in names}
    return make_header(layout, metadata) + b"".join(np.ascontiguousarray(tensors[name]).tobytes() for name in names)


def from_bytes(data: bytes, path: object) -> tuple[dict[str, Array], dict[str, str]]:
    """The tensors of a whole file, and its metadata."""
    length = header_length(data[:8], len(data), path)
    specs, metadata = parse_header(data[8 : 8 + length], len(data), path)
    tensors = {}
    for name, spec in specs.items():
        if spec.dtype == np.bool_ and max(data[spec.start : spec.start + spec.nbytes], default=0) > 1:
            raise FolderError(f"{path}: tensor {name!r} holds a byte that is neither true nor false")
        tensors[name] = np.frombuffer(data, spec.dtype, spec.count, spec.start).reshape(spec.shape)
    return tensors, metadata
