"""CSV and TSV files and edge lists, gzip-compressed or not, as Arrow tables."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np

from ergnn.data.formats.boundary import wrap_errors
from ergnn.data.formats.columns import Columns, Found
from ergnn.data.formats.convert import Source, read_edge_source
from ergnn.data.formats.limits import MEGABYTE, Limits, file_size, truncate
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.errors import FormatError

BOM = b"\xef\xbb\xbf"
GZ = ".gz"
TEXT_RATIO = (16, 100)
"""Compressed text may expand to 16 MB, or to 100 times its size where that is more (bombs reach 1,000 times)."""
COLUMN_BYTES = 10_000
"""What pyarrow's CSV reader takes per column, besides the values."""
BLOCK = MEGABYTE
LARGEST_BLOCK = 1 << 30


def read_bytes(path: Path, limits: Limits) -> bytes:
    """The bytes of a file, decompressed where its name ends in ``.gz``, and no more of them than allowed."""
    size = file_size(path, limits)
    with wrap_errors(path, "text"):
        if path.suffix.lower() != GZ:
            return path.read_bytes()
        most = min(limits.bytes, max(TEXT_RATIO[0] * MEGABYTE, TEXT_RATIO[1] * size))
        with gzip.open(path, "rb") as file:
            raw = file.read(most + 1)
    limits.check_ratio(len(raw), size, *TEXT_RATIO, path)
    return raw


def csv_source(path: Path, delimiter: str, limits: Limits) -> Source:
    """A CSV or TSV file with a header (RFC 4180: quotes around a field, doubled within; empty lines are skipped)."""
    raw = read_bytes(path, limits)
    if raw.count(b'"') % 2:
        raise FormatError(f"{path}: a quote is opened and never closed")
    header = _header(raw.removeprefix(BOM))
    if not header.strip():
        raise FormatError(f"{path}: no header; the file has only empty lines")
    columns = header.count(delimiter.encode()) + 1
    limits.check_bytes(COLUMN_BYTES * columns, path, f"{columns:,} columns take")
    limits.check_bytes(8 * columns * raw.count(b"\n"), path, "its values take")
    with wrap_errors(path, "UTF-8 text"):
        names = _parse(header, delimiter).column_names

    def read(found: Found) -> Any:
        texts = [*found.texts, *(found.features if found.single else ())]
        try:
            return _parse(raw, delimiter, found.wanted, texts, block=max(BLOCK, 8 * len(header)))
        except (ValueError, MemoryError):  # a line longer than a block, or an error: one thread knows the row
            with wrap_errors(path, "a table"):
                return _parse(raw, delimiter, found.wanted, texts, block=min(len(raw) + BLOCK, LARGEST_BLOCK))

    return Source(str(path), names, [], read)


def _header(raw: bytes) -> bytes:
    """The first line that is not empty, with the lines that its quotes span."""
    start = len(raw) - len(raw.lstrip(b"\r\n"))
    end = start
    while True:
        found = re.compile(rb"[\r\n]").search(raw, end)
        if found is None:
            return raw[start:]
        end = found.end()
        if raw.count(b'"', start, end) % 2 == 0:
            return raw[start:end]


def _parse(
    raw: bytes,
    delimiter: str,
    wanted: list[str] | None = None,
    texts: list[str] | None = None,
    names: list[str] | None = None,
    block: int = LARGEST_BLOCK,
) -> Any:
    import pyarrow as pa
    import pyarrow.csv as csv

    return csv.read_csv(
        pa.BufferReader(raw),
        csv.ReadOptions(block_size=block, use_threads=block < LARGEST_BLOCK and block < len(raw), column_names=names),
        csv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in raw, quote_char=names is None and '"'),
        csv.ConvertOptions(include_columns=wanted, column_types=dict.fromkeys(texts or (), pa.string())),
    )


def read_edge_list(path: Path, limits: Limits) -> tuple[NodeTable, EdgeTable]:
    """One edge per line: source, target and perhaps a weight, separated by blanks, tabs or commas.

    Lines that begin with # or % are comments. Nodes are those that edges name, in that order; they have neither labels
    nor features.
    """
    raw = read_bytes(path, limits).removeprefix(BOM)
    raw = re.sub(rb"(?m)^[ \t,]*(?:[#%][^\r\n]*)?|[ \t,]+$|[ \t,]+(?=\r)", b"", raw)
    raw = re.sub(rb"[ \t,]+", b",", raw)
    limits.check("edges", len(re.findall(rb"[^\r\n]+", raw)), path)
    header = _header(raw).strip()
    if not header:
        raise FormatError(f"{path}: no edges")
    width = header.count(b",") + 1
    if width not in (2, 3):
        raise FormatError(
            f"{path}: {truncate(header.decode(errors='replace'))} has {width} fields; an edge is a source, a target "
            "and perhaps a weight"
        )
    names = ["source", "target", "weight"][:width]

    def read(found: Found) -> Any:
        with wrap_errors(path, "an edge list"):
            return _parse(raw, ",", found.wanted, found.texts, names, min(len(raw) + BLOCK, LARGEST_BLOCK))

    edges = read_edge_source(Source(str(path), names, [], read), Columns(), limits)
    ids = list(dict.fromkeys(np.stack([edges.source, edges.target], 1).ravel().tolist()))
    limits.check("nodes", len(ids), path)
    return NodeTable(ids=ids), edges
