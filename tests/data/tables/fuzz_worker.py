"""Read mutated files in a process with a memory limit; run by test_hostile.py.

    python fuzz_worker.py FOLDER COUNT SEED

Writes a JSON object to stdout: for each format the number of files that were read and refused, and all failures. With
``COUNT`` 0 it reads the files in ``FOLDER/work`` unchanged, and reports the outcome of each.
Only an ``ErgnnError`` may be raised; a file that is read must give the values of another reader; no file may take
longer than ``SECONDS``, need more than a gigabyte, or leave another file behind. A reader that hangs in C code, where
signals are not delivered, is ended by the limit on CPU time.
"""

import contextlib
import csv
import gzip
import io
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse
import torch

from ergnn.config.errors import ErgnnError
from ergnn.data.tables import EdgeTable, NodeTable, read_edges, read_graph, read_nodes, to_graph
from ergnn.data.tables.node_tables import canonical
from ergnn.data.tables.read import NO_LABEL, write_edges, write_nodes
from ergnn.lab.run import peak_memory_mb

SECONDS = 20
GIGABYTE = 1 << 30
NUMBERS = ("nan", "inf", "1e999", "-1", "99999999999999999999", "1_0", "", "0x10", "1e-400", "-0", "[1", "2:3:4", "¼")
NUMBERS += ("07", "+7", "7.0")
WORDS = (b'"', b"\r", b"\n", b"\0", b"\t", b",", b"\xff", b"\xef\xbb\xbf", b"[" * 9999, b"..")
BIG = (0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFF, 0, 1, 2**63 - 1, 2**64 - 1, 10**9)

IDS = ["1", "b c", "ü", "x,y", 'q"r', "10", "-3", "日本"]


def table(sparse: bool, n: int = 40) -> NodeTable:
    rng = np.random.default_rng(0)
    ids = IDS + [f"n{i}" for i in range(n - len(IDS))]
    features = np.round(rng.normal(size=(n, 6)), 3) * (rng.random((n, 6)) < 0.4)
    return NodeTable(
        ids=ids,
        labels=[None if i % 5 == 0 else f"class {i % 3}" for i in range(n)],
        time=np.arange(n),
        split=[("train", "val", "test", None)[i % 4] for i in range(n)],
        features=scipy.sparse.csr_matrix(features) if sparse else features,
    )


def seeds(folder: Path) -> dict[str, Path]:
    """Write one valid file of each kind."""
    rng = np.random.default_rng(1)
    nodes = table(sparse=False)
    out: dict[str, Path] = {}

    def made(name: str) -> Path:
        out[name] = folder / name
        return out[name]

    write_nodes(nodes, made("columns.csv"))
    write_nodes(nodes, made("columns.tsv.gz"))
    write_nodes(table(sparse=True), made("sparse.tsv"))
    write_nodes(table(sparse=False, n=400), made("columns.parquet"))
    write_nodes(table(sparse=True, n=400), made("sparse.parquet"))
    many = table(sparse=False, n=400)
    plain = pa.table({"id": many.ids, "label": many.labels, "time": many.time, "features": list(many.features)})
    pq.write_table(plain, made("list.parquet"))
    pq.write_table(plain, made("paged.parquet"), data_page_version="2.0", compression="zstd", row_group_size=100)
    delta = {"id": "DELTA_BYTE_ARRAY", "time": "DELTA_BINARY_PACKED"}
    pq.write_table(plain, made("delta.parquet"), column_encoding=delta, use_dictionary=False, compression="none")
    for name in ("edges.csv", "edges.parquet"):
        write_edges(EdgeTable(*rng.choice(nodes.ids, (2, 60)), rng.random(60)), made(name))
    source, target = rng.integers(0, 40, (2, 60))
    write_edges(EdgeTable(source, target), made("edges_numbered.csv"))
    pq.write_table(pa.table({"source": source, "target": target}), made("edges_numbered.parquet"))

    arrays = {"labels": np.arange(40) % 3 - 1}
    for prefix, width in (("adj", 40), ("attr", 6)):
        matrix = scipy.sparse.random(40, width, 0.1, "csr", np.float32, rng)
        for part in ("data", "indices", "indptr", "shape"):
            arrays[f"{prefix}_{part}"] = np.asarray(getattr(matrix, part))
    np.savez_compressed(made("graph.npz"), **arrays)
    np.savez(made("stored.npz"), **arrays)

    return out


def mutated(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Make one or two changes, more often near the ends, where formats have their headers."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2))):
        if not out:
            break
        at = rng.randrange(len(out))
        if rng.random() < 0.4:
            at = rng.choice((rng.randrange(min(128, len(out))), len(out) - 1 - rng.randrange(min(256, len(out)))))
        length = rng.choice((1, 2, 4, 8, 64, 300))
        kind = rng.randrange(9)
        if kind <= 1:
            for place in (at, *(rng.randrange(len(out)) for _ in range(7 * kind))):
                out[place] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del out[at:]
        elif kind == 3:
            del out[at : at + length]
        elif kind == 4:
            out[at:at] = out[at : at + length] * rng.choice((1, 1, 50))
        elif kind == 5:
            start = rng.randrange(len(other))
            out[at : at + length] = other[start : start + length]
        elif kind == 6:
            out[at:at] = rng.choice(WORDS)
        elif kind == 7:
            width = rng.choice((1, 2, 4, 8))
            order = rng.choice(("little", "big"))
            out[at : at + width] = (rng.choice(BIG) % (1 << 8 * width)).to_bytes(width, order)
        else:
            digits = [i for i in range(len(out)) if 48 <= out[i] < 58]
            if digits:
                at = rng.choice(digits)
                out[at : at + 1] = rng.choice(NUMBERS).encode()
    return bytes(out)


def mutate(path: Path, other: Path, rng: random.Random) -> bytes:
    """Change bytes of the file, or of its content, which is then compressed again so that checksums are correct."""
    data, rest = path.read_bytes(), other.read_bytes()
    if rng.random() < 0.5:
        if path.suffix == ".gz":
            return gzip.compress(mutated(gzip.decompress(data), rest, rng))
        if path.suffix == ".npz":
            return _zip_again(data, rest, rng)
    return mutated(data, rest, rng)


def _zip_again(data: bytes, other: bytes, rng: random.Random) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        members = old.infolist()
        victim = rng.choice(members)
        for member in members:
            content = old.read(member)
            if member is victim:
                content = mutated(content, other, rng)
                if rng.random() < 0.1:
                    member.filename = rng.choice(("../../evil.npy", "/evil.npy", "adj_shape.npy"))
            new.writestr(member.filename, content, compress_type=member.compress_type)
    return out.getvalue()


def read(path: Path, name: str) -> tuple[NodeTable | None, EdgeTable | None]:
    if name.startswith("edges"):
        return None, read_edges(path)
    if name.split(".")[1] in ("csv", "tsv", "parquet"):
        return read_nodes(path), None
    return read_graph(path)


def truth(path: Path, name: str) -> dict[str, Any]:
    """Read columns with another reader of the format."""
    kind = name.split(".")[1]
    wanted = ("source", "target") if name.startswith("edges") else ("id", "label")
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    if kind in ("csv", "tsv"):
        text = io.StringIO(data.decode("utf-8-sig", "surrogateescape"), newline="")
        rows = csv.reader(text, delimiter="\t" if kind == "tsv" else ",")
        names, *body = [row for row in rows if row]
        places = {name.strip().lower(): i for i, name in enumerate(names)}
        columns = {key: [row[places[key]] for row in body] for key in wanted if key in places}
    elif kind == "parquet":
        names = {name.strip().lower(): name for name in pq.read_schema(path).names}
        kept = {key: names[key] for key in wanted if key in names}
        columns = {key: pq.read_table(path, columns=[name])[name].to_pylist() for key, name in kept.items()}
    else:
        with np.load(path) as file:
            n, labels = int(file["adj_shape"][0]), file.get("labels")
            columns = {"id": list(range(n))}
            if labels is not None:
                columns["label"] = [None if label < 0 else label for label in labels.reshape(-1).tolist()]
    texts = {key: [canonical(value) for value in values] for key, values in columns.items() if key in wanted}
    if "label" in texts:
        texts["label"] = [None if label in NO_LABEL else label for label in texts["label"]]
    return {**columns, **texts}


def check(nodes: NodeTable | None, edges: EdgeTable | None, path: Path, name: str) -> None:
    expected = truth(path, name)
    if nodes is None:
        assert edges.source.tolist() == expected["source"]
        assert edges.target.tolist() == expected["target"]
        assert all(isinstance(v, str) and v for v in (*edges.source, *edges.target))
        return
    assert nodes.ids.tolist() == expected["id"]
    assert len(set(expected["id"])) == len(expected["id"]) == len(nodes.labels) == nodes.features.shape[0]
    if "label" in expected:
        assert nodes.labels.tolist() == expected["label"]
    entries = nodes.features.data if nodes.is_sparse else nodes.features
    assert entries.dtype == np.float32
    assert np.isfinite(entries).all()
    with contextlib.suppress(ErgnnError):  # an edge to a node that is not there
        to_graph(nodes, edges)


def virtual() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def out_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def main(folder: Path, count: int, seed: int) -> dict[str, Any]:
    (folder / "good").mkdir()
    good = seeds(folder / "good")
    for name, path in good.items():
        check(*read(path, name), path, name)  # also imports every library before memory is limited
    torch.set_num_threads(1)
    before = peak_memory_mb()
    resource.setrlimit(resource.RLIMIT_AS, (virtual() + GIGABYTE, resource.RLIM_INFINITY))
    work = folder / "work"
    work.mkdir(exist_ok=True)
    os.chdir(work)
    if not count:
        return {path.name: outcome(path) for path in sorted(work.iterdir())}
    tally = {name: {"read": 0, "refused": 0} for name in good}
    wrong: list[dict[str, Any]] = []
    signal.signal(signal.SIGALRM, _too_long)
    names = list(good)
    for i in range(count):
        rng = random.Random(seed * 1_000_003 + i)
        name = names[i % len(names)]
        victim = work / f"mutant{name[name.index('.') :]}"
        victim.write_bytes(mutate(good[name], good[rng.choice(names)], rng))
        signal.alarm(SECONDS)
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 2 * SECONDS, resource.RLIM_INFINITY))
        try:
            tables = read(victim, name)
            signal.alarm(0)
            check(*tables, victim, name)
            tally[name]["read"] += 1
        except ErgnnError as error:
            tally[name]["refused"] += 1
            if str(victim) not in str(error) and victim.name not in str(error):
                wrong.append({"number": i, "file": name, "what": f"no file is named in: {error}"})
        except BaseException:
            wrong.append({"number": i, "file": name, "what": traceback.format_exc()[-1500:]})
        finally:
            signal.alarm(0)
        victim.unlink()
        if left := [str(path) for path in work.rglob("*")]:
            wrong.append({"number": i, "file": name, "what": f"left behind: {left}"})
            break
    grown = peak_memory_mb() - before
    return {"tally": tally, "wrong": wrong, "grown": int(grown * 2**20)}


def outcome(path: Path) -> dict[str, Any]:
    """Read a file and report the outcome."""
    said, exhausted = "read", False
    try:
        read(path, path.name)
    except BaseException as error:
        said, exhausted = f"{type(error).__name__}: {error}", out_of_memory(error)
    return {"said": said, "out_of_memory": exhausted}


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds")


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
