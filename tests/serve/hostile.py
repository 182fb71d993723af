"""Requests that a service must refuse, drawn by a seed."""

import gzip
import io
import json
import random
from typing import Any

KNOWN = "n1"
PATHS = ("../base/learner.sqlite", "/etc/passwd", "..\\..\\x", "file:///etc/passwd", "\x00", "spool/../../x")


def values(rng: random.Random) -> Any:
    """A value that is neither an id nor a list of ids."""
    return rng.choice(
        [
            *(None, True, 1.5, -1e308, {}, {"a": 1}, [], [[]], [KNOWN, None], [KNOWN, 1.5], [True], "", "x" * 5000),
            *([10**30], [-(10**400 % 10**50)], ["\ud83d"], [{"id": KNOWN}], [["n1"]], [rng.choice(PATHS)], "n1"),
        ]
    )


def deep(rng: random.Random) -> bytes:
    depth = rng.choice([50, 500, 5_000, 200_000])
    opening, closing = rng.choice([(b"[", b"]"), (b'{"a":', b"}"), (b'{"ids":[', b"]}")])
    return opening * depth + b"1" + closing * rng.choice([0, depth])


def predict_body(rng: random.Random) -> bytes:
    kind = rng.randrange(8)
    if kind == 0:
        return deep(rng)
    if kind == 1:
        return rng.randbytes(rng.randrange(1, 2000))
    if kind == 2:
        return json.dumps({rng.choice(["ids", "nodes", "edges", "classes", "version"]): values(rng)}).encode()
    if kind == 3:
        number = rng.choice(["NaN", "Infinity", "-Infinity", "1e999", "null", '"1"', "true", "[1]", "9" * 5000])
        row = ", ".join([number] * 12)
        return f'{{"nodes": [{{"id": "new", "features": [{row}]}}]}}'.encode()
    if kind == 4:
        row: Any = rng.choice([[0.0] * 11, [0.0] * 13, [], {"12": 1}, {"-1": 1}, {"1e3": 1}, {"999999999": 1}, "0"])
        return json.dumps({"nodes": [{"id": "new", "features": row}]}).encode()
    if kind == 5:
        node = {"id": "new", "features": [0.0] * 12}
        edge = {"source": rng.choice(["new", "ghost", *PATHS]), "target": "nobody"}
        return json.dumps({"nodes": [node], "edges": [edge]}).encode()
    if kind == 6:
        body = {"ids": [KNOWN], "classes": rng.choice([[], ["no class"], "c0", [0], [None]])}
        return json.dumps(body).encode()
    return json.dumps({"ids": [rng.choice([*PATHS, "ghost", "n1; DROP TABLE nodes", "%00", "' OR 1=1 --"])]}).encode()


def table(rng: random.Random) -> tuple[str, bytes]:
    """The name and the bytes of a table that must be refused."""
    kind = rng.randrange(9)
    if kind == 0:  # 32 MB of one value
        return "nodes.csv.gz", _bomb(b"id\n" + b"a\n" * (1 << 24))
    if kind == 1:
        return "nodes.parquet", _parquet_bomb()
    if kind == 2:
        return "nodes.jsonl.gz", _bomb(b'{"id": "' + b"a" * (40 << 20))
    if kind == 3:
        return rng.choice(["nodes.csv", "nodes.parquet", "nodes.jsonl", "nodes.csv.gz"]), rng.randbytes(3000)
    if kind == 4:
        value = rng.choice(["nan", "inf", "-inf", "1e99", "x", ""])
        row = ",".join([value] * 12)
        return "nodes.csv", f"id,{','.join(f'f{i}' for i in range(12))}\nnew,{row}\n".encode()
    if kind == 5:
        return "nodes.csv", rng.choice([b"id\n", b"", b"\n\n", b"id,id\na,b\n", b'id\n"a', b"id\n\x00\n", b"a" * 9000])
    if kind == 6:
        return "nodes.jsonl", b'{"id": "new", "features": ' + deep(rng) + b"}"
    if kind == 7:
        line: Any = rng.choice([1, [], {}, {"id": None}, {"id": "x", "path": "/etc/passwd"}, {"source": "n1"}])
        return "nodes.jsonl", json.dumps(line).encode()
    return "edges.csv", f"source,target\n{rng.choice(['ghost', *PATHS[:3]])},n1\n".encode()


_made: dict[str, bytes] = {}


def _bomb(data: bytes) -> bytes:
    return _made.setdefault(str(data[:9]), gzip.compress(data, 9))


def _parquet_bomb() -> bytes:
    """A hundred million copies of one id, in some kilobytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if "parquet" not in _made:
        out, rows = io.BytesIO(), pa.table({"id": pa.repeat("a" * 200, 1 << 20)})
        with pq.ParquetWriter(out, rows.schema, compression="zstd") as writer:
            for _ in range(100):
                writer.write_table(rows)
        _made["parquet"] = out.getvalue()
    return _made["parquet"]


def make_request(rng: random.Random) -> dict[str, Any]:
    """Arguments of ``httpx.Client.request``."""
    kind = rng.randrange(10)
    json_type = {"content-type": "application/json"}
    if kind < 4:
        return {"method": "POST", "url": "/predict", "content": predict_body(rng), "headers": json_type}
    if kind < 7:
        name, data = table(rng)
        part = name.partition(".")[0]
        folder = rng.choice(["", "../", "/etc/", "..%2f"])
        return {"method": "POST", "url": "/observe", "files": {part: (folder + name, data)}}
    if kind == 7:
        media = rng.choice(["text/csv", "application/x-ndjson", "application/zip", "multipart/form-data", "x", ""])
        headers = {"content-type": media, "content-encoding": rng.choice(["gzip", "br", "deflate", "zip, zip"])}
        return {"method": "POST", "url": "/observe", "content": rng.randbytes(rng.randrange(2000)), "headers": headers}
    if kind == 8:
        url = rng.choice(["/forget", "/rollback"])
        body = rng.choice([deep(rng), rng.randbytes(50), json.dumps({"ids": values(rng), "version": 1.5}).encode()])
        return {"method": "POST", "url": url, "content": body, "headers": json_type}
    path = rng.choice(
        ["/updates/%2e%2e%2fx", f"/updates/{10**30}", "/..%2f..%2fetc", "/spool/", "/updates/-1", "/a?x=%00"]
    )
    return {"method": rng.choice(["GET", "POST", "DELETE", "PATCH"]), "url": path}
