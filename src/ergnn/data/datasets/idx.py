"""Reader for IDX files, the format of MNIST."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ergnn.config.errors import InputError

UNSIGNED_BYTE = 0x08
MAX_BYTES = 1 << 28


def read_idx(path: Path, dims: int) -> Tensor:
    """Read a gzipped IDX file of bytes as a uint8 tensor with ``dims`` dimensions.

    The header of big-endian numbers (0, 0, type, dims, then the sizes) gives the number of values; no more than that is
    decompressed.
    """
    try:
        with gzip.open(path) as file:
            magic = file.read(4)
            if magic != bytes([0, 0, UNSIGNED_BYTE, dims]):
                raise InputError(
                    f"{path}: starts with {magic.hex() or 'nothing'}; an IDX file of bytes in {dims} dimension(s) "
                    f"starts with {bytes([0, 0, UNSIGNED_BYTE, dims]).hex()}"
                )
            header = file.read(4 * dims)
            if len(header) < 4 * dims:
                raise InputError(f"{path}: ends within its header")
            sizes = struct.unpack(f">{dims}I", header)
            count = int(np.prod(sizes, dtype=object))
            if not 0 < count <= MAX_BYTES:
                raise InputError(f"{path}: its header announces {sizes} values; 1 to {MAX_BYTES:,} can be read")
            body = file.read(count + 1)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a whole gzip file ({error})") from None
    if len(body) != count:
        held = "more" if len(body) > count else f"only {len(body):,}"
        raise InputError(f"{path}: its header announces {count:,} bytes, and {held} follow")
    return torch.frombuffer(bytearray(body), dtype=torch.uint8).view(sizes)
