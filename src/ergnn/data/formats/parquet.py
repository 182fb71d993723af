"""Parquet files, read by pyarrow in a process of its own.

A Parquet file of some kilobytes can stand for gigabytes (runs of one value, one long text many times), and pyarrow
26.0.1 ends the process on some damaged column metadata. The child (:mod:`parquet_child`) has a limit on its memory and
its time, so that such a file costs an error message. It sends the columns as an Arrow stream.
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
from ergnn.data.formats.columns import Found
from ergnn.data.formats.convert import Source, index_columns
from ergnn.data.formats.limits import MEGABYTE, Limits, file_size
from ergnn.errors import FormatError

EXPANDED = (512, 200)
"""All values may take 512 MB (features that are mostly zero compress well), or 200 times the file."""
SECONDS = 60
"""CPU time that a file may take, besides one second for each of its megabytes."""
LONGEST_HEADER = 64 * MEGABYTE
PATIENCE = 10
"""Seconds for a child that failed to say why."""
ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
"""Other allocators reserve gigabytes of addresses that they never use; the limit counts addresses."""


class ParquetFile:
    """A Parquet file that a child process has opened; a context that gives a :class:`Source`."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path, self.limits, self.size = path, limits, file_size(path, limits)
        self.most = min(limits.bytes, max(EXPANDED[0] * MEGABYTE, EXPANDED[1] * self.size))
        seconds = SECONDS + self.size // MEGABYTE
        command = [sys.executable, parquet_child.__file__, str(path.absolute()), str(self.most), str(seconds)]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.child: Any = subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, **pipes)

    def __enter__(self) -> Source:
        line = self.child.stdout.readline(LONGEST_HEADER)
        if not line.endswith(b"\n"):
            raise self._error()
        header = json.loads(line)
        self.rows: int = header["rows"]
        return Source(str(self.path), header["names"], self._read, index_columns(header["pandas"]))

    def _read(self, found: Found) -> Any:
        import pyarrow as pa

        self.limits.check("edges" if "source" in found.roles else "nodes", self.rows, self.path)
        self.limits.check_ratio(8 * self.rows * len(found.wanted), self.size, *EXPANDED, self.path)
        batches, received = [], 0
        try:
            self.child.stdin.write(json.dumps([found.wanted, found.texts]).encode() + b"\n")
            self.child.stdin.flush()
            with pa.ipc.open_stream(self.child.stdout) as stream:
                for batch in stream:
                    # lists of small numbers grow to 8 bytes per number
                    received += sum(c.nbytes * (8 if pa.types.is_nested(c.type) else 1) for c in batch.columns)
                    self.limits.check_ratio(received, self.size, *EXPANDED, self.path)
                    batches.append(batch)
                table = pa.Table.from_batches(batches, stream.schema)
        except (OSError, pa.ArrowException) as error:
            raise self._error() from error
        if table.num_rows != self.rows:
            raise self._error(f"{table.num_rows:,} rows; its metadata claims {self.rows:,}")
        return table

    def _error(self, said: str = "") -> FormatError:
        """What the child said last, or how it ended."""
        with suppress(subprocess.TimeoutExpired):
            self.child.wait(PATIENCE)
        self.child.kill()
        said = self.child.stderr.read().decode(errors="replace").strip()[-300:] or said
        self.__exit__()
        said = said or f"the reader ended with status {self.child.returncode}"
        return FormatError(
            f"{self.path}: cannot be read as a Parquet file within {self.most // MEGABYTE:,} MB ({said})"
        )

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        for pipe in (self.child.stdin, self.child.stdout, self.child.stderr):
            with suppress(OSError):
                pipe.close()
        self.child.wait()
