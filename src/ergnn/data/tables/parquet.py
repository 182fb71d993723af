"""Parquet files as Arrow tables: the footer is read here, the values by a child process (:mod:`parquet_child`).

A few kilobytes of Parquet can expand to gigabytes (runs of one value, one long text many times), and pyarrow does not
limit what it allocates. The child process runs with a limit on memory and CPU time, and sends an Arrow stream.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from ergnn.config.errors import FormatError
from ergnn.config.files import wrap_errors
from ergnn.data.tables import parquet_child
from ergnn.data.tables.columns import Found
from ergnn.data.tables.convert import Source, index_columns
from ergnn.data.tables.limits import MEGABYTE, Limits, file_size

EXPANDED = (512, 200)
"""All values may take 512 MB (features that are mostly zero compress well) or 200 times the file size."""
FOOTER_RATIO = 500
"""Maximum memory of the metadata, as a multiple of the footer size."""
SECONDS = 60
"""Maximum CPU time for a file, in addition to one second per megabyte."""
ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
"""The limit counts address space, of which other allocators reserve gigabytes that they never use."""


def parquet_source(path: Path, limits: Limits) -> Source:
    """Open a Parquet file; only its footer is read."""
    import pyarrow.parquet as pq

    size = file_size(path, limits)
    with wrap_errors(path, "a Parquet file"):
        with open(path, "rb") as file:
            file.seek(-min(size, 8), os.SEEK_END)
            footer = int.from_bytes(file.read(4), "little")
        limits.check_bytes(FOOTER_RATIO * min(footer, size), path, "its metadata take")
        with pq.ParquetFile(path, **parquet_child.BOUNDS) as opened:
            schema, rows = opened.schema_arrow, opened.metadata.num_rows

    def read(found: Found) -> Any:
        limits.check("edges" if "source" in found.roles else "nodes", rows, path)
        limits.check_ratio(8 * rows * len(found.wanted), size, *EXPANDED, path)
        table = _receive(path, size, found, limits)
        if table.num_rows != rows:
            raise FormatError(f"{path}: {table.num_rows:,} rows; its metadata claim {rows:,}")
        return table

    return Source(str(path), schema.names, read, index_columns((schema.metadata or {}).get(b"pandas")))


def _receive(path: Path, size: int, found: Found, limits: Limits) -> Any:
    """Read columns in a child process."""
    import pyarrow as pa

    most = min(limits.bytes, max(EXPANDED[0] * MEGABYTE, EXPANDED[1] * size))
    command = [sys.executable, parquet_child.__file__, str(path), str(most), str(SECONDS + size // MEGABYTE)]
    child: Any = Popen(command, env={**os.environ, **ENVIRONMENT}, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    table = None
    with child:
        with suppress(OSError, pa.ArrowException):  # the child says why
            child.stdin.write(json.dumps([found.wanted, found.texts]).encode() + b"\n")
            child.stdin.flush()
            with pa.ipc.open_stream(child.stdout) as stream:
                table = stream.read_all()
        child.stdout.close()  # a child that is still sending ends now
        said = child.stderr.read().decode(errors="replace").strip()[-300:]
    if table is None or child.returncode:
        said = said or f"the reader ended with status {child.returncode}"
        raise FormatError(f"{path}: cannot be read as a Parquet file within {most // MEGABYTE:,} MB ({said})")
    return table
