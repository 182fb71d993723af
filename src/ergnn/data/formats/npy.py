"""Arrays of an ``.npz`` file, whose headers are read and checked before any array is.

A member is read only if its header is one that numpy writes (parsed here, by a pattern, and not evaluated), if it holds
numbers or text and no objects, and if the bytes that the zip file claims are just those that the shape asks for.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ergnn.data.formats.boundary import opened_zip
from ergnn.data.formats.limits import ARRAYS_UNPACKED, MEGABYTE, Limits, file_size, shown
from ergnn.errors import FormatError

MAGIC = b"\x93NUMPY"
HEADER = re.compile(
    r"\{'descr': '([<>|=][biufU]\d{1,6}|[<>|=]O)', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\), \}\s*",
    re.ASCII,
)
LONGEST_HEADER = 4096
MEMBERS = 1000


@dataclass(frozen=True)
class Header:
    """What a member says of its array."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran: bool
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Arrays:
    """The arrays of an ``.npz`` file by name.

    Args:
        path: the file.
        names: the arrays that may be read; others in the file are not looked at.
        limits: what they may take.
    """

    def __init__(self, path: Path, names: Iterable[str], limits: Limits) -> None:
        self.path = path
        size = file_size(path, limits)
        with opened_zip(path, "an npz file") as file:
            members = file.infolist()
            if len(members) > MEMBERS:
                raise FormatError(f"{path}: {len(members):,} members; at most {MEMBERS:,} are allowed")
            found = [member.filename for member in members]
            for name in found:
                if found.count(name) > 1:
                    raise FormatError(f"{path}: array {shown(name)} stands there twice")
            self.members = {m.filename.removesuffix(".npy"): m for m in members if m.filename.endswith(".npy")}
            self.headers = {name: self._header(file, name) for name in names if name in self.members}
        most = limits.unpacked(size, ARRAYS_UNPACKED)
        total = sum(header.nbytes for header in self.headers.values())
        if total > most:
            raise FormatError(
                f"{path}: arrays of {-(-total // MEGABYTE):,} MB in a file of {size:,} bytes; at most "
                f"{most // MEGABYTE:,} MB are allowed (limit 'megabytes')"
            )

    def _header(self, file: zipfile.ZipFile, name: str) -> Header:
        member = self.members[name]
        where = f"{self.path}, array {shown(name)}"
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & 1:
            raise FormatError(f"{where}: stored or deflated members are read, and no encrypted ones")
        with file.open(member) as stream:
            start = stream.read(8)
            if start[:6] != MAGIC or start[6:] not in (b"\1\0", b"\2\0"):
                raise FormatError(f"{where}: not an array in npy format 1.0 or 2.0")
            width = 2 if start[6] == 1 else 4
            length = int.from_bytes(stream.read(width), "little")
            if length > LONGEST_HEADER:
                raise FormatError(f"{where}: a header of {length:,} bytes; at most {LONGEST_HEADER:,} are allowed")
            text = stream.read(length).decode("latin-1")
        parsed = HEADER.fullmatch(text)
        if parsed is None:
            raise FormatError(f"{where}: the header {shown(text)} is not one of an array of numbers or text")
        kind, order, shape = parsed.groups()
        if kind.endswith("O"):
            raise FormatError(f"{where}: holds Python objects; these are pickles, which are never read")
        sizes = tuple(int(part) for part in shape.split(",") if part.strip())
        header = Header(np.dtype(kind), sizes, order == "True", 8 + width + length)
        if header.offset + header.nbytes != member.file_size:
            raise FormatError(
                f"{where}: shape {list(sizes)} of {header.dtype} takes {header.nbytes:,} bytes; "
                f"the member has {member.file_size - header.offset:,}"
            )
        return header

    def __contains__(self, name: str) -> bool:
        return name in self.headers

    def shape(self, name: str, dimensions: int) -> tuple[int, ...]:
        """The shape that an array claims."""
        if name not in self.headers:
            raise FormatError(f"{self.path}: no array {name!r}; found are {', '.join(sorted(self.members)) or 'none'}")
        shape = self.headers[name].shape
        if len(shape) != dimensions:
            raise FormatError(f"{self.path}, array {name!r}: {len(shape)} dimensions; {dimensions} are needed")
        return shape

    def read(self, name: str, kinds: str = "biuf") -> np.ndarray:
        """An array, of one of some kinds of ``dtype``."""
        header = self.headers[name]
        where = f"{self.path}, array {name!r}"
        if header.dtype.kind not in kinds:
            raise FormatError(f"{where}: holds {header.dtype}; {_kinds(kinds)} are needed")
        with opened_zip(self.path, "an npz file") as file, file.open(self.members[name]) as stream:
            stream.read(header.offset)
            values = stream.read(header.nbytes)
            if len(values) != header.nbytes or stream.read(1):
                raise FormatError(f"{where}: {len(values):,} bytes; {header.nbytes:,} are claimed")
            array = np.frombuffer(values, dtype=header.dtype)
            native = array.astype(header.dtype.newbyteorder("="), copy=False)
            return native.reshape(header.shape, order="F" if header.fortran else "C")


def _kinds(kinds: str) -> str:
    return (
        "whole numbers" if "f" not in kinds and "U" not in kinds else "numbers" + (" or text" if "U" in kinds else "")
    )
