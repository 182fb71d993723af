"""Parquet files as Arrow tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ergnn.config.errors import FormatError
from ergnn.config.files import wrap_errors
from ergnn.data.tables.columns import ColumnRoles
from ergnn.data.tables.convert import Source, index_columns
from ergnn.data.tables.limits import Limits, file_size

EXPANDED = (512, 200)
"""All values may take 512 MB (features that are mostly zero compress well) or 200 times the file size."""
LONGEST = 1 << 24
"""Maximum size of texts and lists in the footer."""
BOUNDS: dict[str, Any] = {"thrift_string_size_limit": LONGEST, "thrift_container_size_limit": LONGEST}
BATCH_ROWS = 1 << 17


def parquet_source(path: Path, limits: Limits) -> Source:
    """Open a Parquet file; only its footer is read."""
    import pyarrow.parquet as pq

    size = file_size(path, limits)
    with wrap_errors(path, "a Parquet file"), pq.ParquetFile(path, **BOUNDS) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows

    def read(roles: ColumnRoles) -> Any:
        limits.check("edges" if "source" in roles.names else "nodes", rows, path)
        limits.check_ratio(8 * rows * len(roles.columns), size, *EXPANDED, path)
        with wrap_errors(path, "a Parquet file"):
            table = _read_columns(path, size, schema, roles, limits)
        if table.num_rows != rows:
            raise FormatError(f"{path}: {table.num_rows:,} rows; its metadata claim {rows:,}")
        return table

    return Source(str(path), schema.names, read, index_columns((schema.metadata or {}).get(b"pandas")))


def _read_columns(path: Path, size: int, schema: Any, roles: ColumnRoles, limits: Limits) -> Any:
    """Read columns in batches, so that sizes are checked on the way; texts are dictionary-encoded."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {name: schema.field(name).type for name in roles.text_columns}
    texts = [name for name, kind in kinds.items() if pa.types.is_string(kind) or pa.types.is_large_string(kind)]
    for dictionaries in (texts, []):  # not every encoding of texts can be read as a dictionary
        options = {**BOUNDS, "read_dictionary": dictionaries, "page_checksum_verification": True, "pre_buffer": False}
        batches, expanded = [], 0
        try:
            with pq.ParquetFile(path, **options) as file:
                for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=roles.columns):
                    batch.validate(full=True)
                    expanded += batch.nbytes
                    limits.check_ratio(expanded, size, *EXPANDED, path)
                    batches.append(batch)
                return pa.Table.from_batches(batches, None if batches else file.schema_arrow.empty_table().schema)
        except (OSError, pa.ArrowException):
            if not dictionaries:
                raise
    raise AssertionError("unreachable")
