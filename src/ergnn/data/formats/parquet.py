"""Parquet files. The footer is read here, the values by a child process (:mod:`parquet_child`).

A Parquet file of some kilobytes can stand for gigabytes (runs of one value, one long text many times, pages that
compress to nothing), and pyarrow has no limit on what it allocates. The child has one on its memory and its CPU time,
so that such a file costs an error message. It sends the columns as an Arrow stream.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from ergnn.data.formats import parquet_child
from ergnn.data.formats.boundary import wrap_errors
from ergnn.data.formats.columns import Found
from ergnn.data.formats.convert import Source, index_columns
from ergnn.data.formats.limits import MEGABYTE, Limits, file_size
from ergnn.errors import FormatError

EXPANDED = (512, 200)
"""All values may take 512 MB (features that are mostly zero compress well), or 200 times the file."""
FOOTER_RATIO = 500
"""Memory that metadata take at most, as a multiple of the footer."""
SECONDS = 60
"""CPU time that a file may take, besides one second for each of its megabytes."""
ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
"""Other allocators reserve gigabytes of addresses that they never use; the limit counts addresses."""


def parquet_source(path: Path, limits: Limits) -> Source:
    """A Parquet file, of which only the footer was read."""
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
    """The columns, as the child sends them."""
    import pyarrow as pa

    most = min(limits.bytes, max(EXPANDED[0] * MEGABYTE, EXPANDED[1] * size))
    command = [sys.executable, parquet_child.__file__, str(path), str(most), str(SECONDS + size // MEGABYTE)]
    table = None
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process: Any = subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, **pipes)
    with process as child:
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
