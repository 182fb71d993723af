"""Send columns of a Parquet file as an Arrow stream; run as a script by :mod:`ergnn.data.tables.parquet`.

    python parquet_child.py FILE BYTES SECONDS

Reads a line of JSON, the names of the wanted columns and of the text columns among them, from stdin and writes at most
``BYTES`` of values to stdout. Imports nothing from ergnn, so that it starts in a fraction of a second.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

LONGEST = 1 << 24
"""Maximum size of texts and lists in the footer."""
BOUNDS: dict[str, Any] = {"thrift_string_size_limit": LONGEST, "thrift_container_size_limit": LONGEST}
BATCH_ROWS = 1 << 17


def limit(memory: int, seconds: int) -> None:
    """Limit the further memory and the CPU time of this process, where the operating system can."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        for what, most in (("AS", used + memory), ("CPU", seconds), ("CORE", 0)):
            resource.setrlimit(getattr(resource, f"RLIMIT_{what}"), (most, most))


def batches(path: str, wanted: list[str], texts: list[str]) -> Iterator[Any]:
    """Yield batches of rows, with dictionary-encoded texts where pyarrow supports it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for dictionaries in (texts, []):
        options = {**BOUNDS, "read_dictionary": dictionaries, "page_checksum_verification": True, "pre_buffer": False}
        try:
            with pq.ParquetFile(path, **options) as file:
                yield from file.iter_batches(batch_size=BATCH_ROWS, columns=wanted, use_threads=False)
            return
        except (OSError, pa.ArrowException):
            if not dictionaries:
                raise


def send(path: str, most: int) -> None:
    """Send the requested columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted, texts = json.loads(sys.stdin.readline())
    schema = pq.read_schema(path)
    # a long text that is repeated stays one text; other dictionaries are expanded here, within the memory limit
    kinds = {name: schema.field(name).type for name in wanted}
    plain = [name for name in texts if pa.types.is_string(kinds[name]) or pa.types.is_large_string(kinds[name])]
    for name, kind in kinds.items():
        if name in plain:
            kinds[name] = pa.dictionary(pa.int32(), pa.string())
        elif pa.types.is_dictionary(kind) and name not in texts:
            kinds[name] = kind.value_type
    sent, size = pa.schema(list(kinds.items())), 0
    with pa.ipc.new_stream(sys.stdout.buffer, sent) as stream:
        for batch in batches(path, wanted, plain):
            batch.validate(full=True)
            out = pa.record_batch([batch[n].cast(kind) for n, kind in kinds.items()], schema=sent)
            # lists of small numbers grow to 8 bytes per number
            size += sum(c.nbytes * (8 if pa.types.is_nested(c.type) else 1) for c in out.columns)
            if size > most:
                raise MemoryError(f"its values take {size >> 20:,} MB or more")
            stream.write_batch(out)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    # modules beside this script must not hide packages of the same name
    sys.path = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
    import pyarrow.parquet  # noqa: F401  # before memory is limited

    limit(int(sys.argv[2]), int(sys.argv[3]))
    try:
        send(sys.argv[1], int(sys.argv[2]))
    except Exception as error:
        print(" ".join(str(error).split()) or type(error).__name__, file=sys.stderr, flush=True)
        os._exit(1)
