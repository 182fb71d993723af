"""Sends columns of a Parquet file as an Arrow stream; run as a script by :mod:`ergnn.data.formats.parquet`.

    python parquet_child.py FILE BYTES SECONDS

It writes a line of JSON about the file, reads a line of JSON with the names of the wanted columns and of those that are
text, and writes these columns. It imports nothing of ergnn, so that it starts in a fraction of a second.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

LONGEST = 1 << 24
"""Bytes of the footer's longest text and list."""
BATCH_ROWS = 1 << 14


def limit(memory: int, seconds: int) -> None:
    """Bound the memory and the CPU time that this process may take from now on, where the system can."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def send(path: str) -> None:
    """Send what is asked for."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    options = {
        "thrift_string_size_limit": LONGEST,
        "thrift_container_size_limit": LONGEST,
        "page_checksum_verification": True,
        "pre_buffer": False,
    }
    with pq.ParquetFile(path, **options) as file:
        schema = file.schema_arrow
        pandas = (schema.metadata or {}).get(b"pandas", b"{}").decode()
        header = {"names": schema.names, "rows": file.metadata.num_rows, "pandas": pandas}
        sys.stdout.buffer.write(json.dumps(header).encode() + b"\n")
        sys.stdout.buffer.flush()
    wanted, texts = json.loads(sys.stdin.readline())
    plain = {name: schema.field(name).type for name in wanted}
    # a long text that is repeated stays one text; other dictionaries are expanded here, within the memory limit
    kinds = {
        name: kind.value_type if pa.types.is_dictionary(kind) and name not in texts else kind
        for name, kind in plain.items()
    }
    as_text = [name for name in texts if pa.types.is_string(plain[name]) or pa.types.is_large_string(plain[name])]
    kinds.update({name: pa.dictionary(pa.int32(), pa.string()) for name in as_text})
    out = pa.schema(list(kinds.items()))
    with pq.ParquetFile(path, read_dictionary=as_text, **options) as file, pa.ipc.new_stream(sys.stdout.buffer, out) as stream:
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=wanted, use_threads=False):
            batch.validate(full=True)
            columns = [
                batch.column(name) if batch.column(name).type == kind else batch.column(name).cast(kind)
                for name, kind in kinds.items()
            ]
            stream.write_batch(pa.record_batch(columns, schema=out))


if __name__ == "__main__":
    # modules beside this script must not hide packages of the same name
    sys.path = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
    import pyarrow.parquet  # noqa: F401  # before memory is limited

    limit(int(sys.argv[2]), int(sys.argv[3]))
    try:
        send(sys.argv[1])
        sys.stdout.buffer.flush()
    except Exception as error:
        print(" ".join(f"{error or type(error).__name__}".split())[:300], file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)
