"""CSV and TSV files and edge lists, gzip-compressed or not, as Arrow tables."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np

from ergnn.data.formats.boundary import wrap_errors
from ergnn.data.formats.columns import Columns, Found
from ergnn.data.formats.convert import Source
from ergnn.data.formats.limits import MEGABYTE, Limits, file_size
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.errors import FormatError

BOM = b"\xef\xbb\xbf"
GZ = ".gz"
TEXT_RATIO = (16, 100)
"""Compressed text may expand to 16 MB, or to 100 times its size where that is more (bombs reach 1,000 times)."""
COLUMN_BYTES = 10_000
"""What pyarrow's CSV reader takes per column, besides the values."""
BLOCK, LARGEST_BLOCK = MEGABYTE, 1 << 30


def read_bytes(path: Path, limits: Limits) -> bytes:
    """The bytes of a file, decompressed where its name ends in ``.gz``, and no more of them than allowed."""
    size = file_size(path, limits)
    with wrap_errors(path, "text"):
        if path.suffix.lower() != GZ:
            return path.read_bytes()
        with gzip.open(path, "rb") as file:
            raw = file.read(min(limits.bytes, max(TEXT_RATIO[0] * MEGABYTE, TEXT_RATIO[1] * size)) + 1)
    limits.check_ratio(len(raw), size, *TEXT_RATIO, path)
    return raw


def csv_source(path: Path, delimiter: str, limits: Limits) -> Source:
    """A CSV or TSV file with a header (RFC 4180: quotes around a field, doubled within; empty lines are skipped)."""
    raw = read_bytes(path, limits).removeprefix(BOM)
    if raw.count(b'"') % 2:
        raise FormatError(f"{path}: a quote is opened and never closed")
    # the first line that is not empty, with all lines that its quotes span
    header = re.match(rb'[\r\n]*((?:"[^"]*"|[^"\r\n]+)*)', raw)[1]  # type: ignore[index]
    if not header.strip():
        raise FormatError(f"{path}: no header; the file has only empty lines")
    columns = header.count(delimiter.encode()) + 1
    limits.check_bytes(COLUMN_BYTES * columns, path, f"{columns:,} columns take")
    limits.check_bytes(8 * columns * raw.count(b"\n"), path, "its values take")
    with wrap_errors(path, "UTF-8 text"):
        names = _parse(header + b"\n", delimiter).column_names

    def read(found: Found) -> Any:
        texts = [*found.texts, *(found.features if found.single else ())]
        try:
            return _parse(raw, delimiter, found.wanted, texts, block=max(BLOCK, 8 * len(header)))
        except ValueError:  # a line longer than a block, or an error, of which a single thread knows the row
            with wrap_errors(path, "a table"):
                return _parse(raw, delimiter, found.wanted, texts)

    return Source(str(path), names, read)


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

    reading = csv.ReadOptions(
        block_size=min(block, len(raw) + 1), use_threads=block < LARGEST_BLOCK, column_names=names
    )
    parsing = csv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in raw, quote_char=names is None and '"')
    converting = csv.ConvertOptions(include_columns=wanted, column_types=dict.fromkeys(texts or (), pa.string()))
    try:
        return csv.read_csv(pa.BufferReader(raw), reading, parsing, converting)
    except pa.ArrowInvalid as error:  # rows are counted with the header
        first = 0 if names else 1
        raise ValueError(re.sub(r"Row #(\d+)", lambda found: f"row {int(found[1]) - first}", str(error))) from error


def read_edge_list(path: Path, limits: Limits) -> tuple[NodeTable, EdgeTable]:
    """One edge per line: source, target and perhaps a weight, separated by blanks, tabs or commas.

    Lines that begin with # or % are comments. Nodes are those that edges name, in that order; they have neither labels
    nor features.
    """
    raw = re.sub(rb"(?m)^[ \t,]*(?:[#%].*)?|[ \t,\r]+$", b"", read_bytes(path, limits).removeprefix(BOM))
    raw = re.sub(rb"[ \t,]+", b",", raw).lstrip(b"\r\n")
    if not raw:
        raise FormatError(f"{path}: no edges")
    names = ["source", "target", "weight"][: raw.partition(b"\n")[0].count(b",") + 1]

    def read(found: Found) -> Any:
        with wrap_errors(path, "an edge list: a source, a target and perhaps a weight per line"):
            return _parse(raw, ",", found.wanted, found.texts, names)

    edges = Source(str(path), names, read).edges(Columns(), limits)
    ids = list(dict.fromkeys(np.stack([edges.source, edges.target], 1).ravel().tolist()))
    limits.check("nodes", len(ids), path)
    return NodeTable(ids=ids), edges
