"""Segments, tables and merges against plain Python dictionaries."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from ergnn.folder import table
from ergnn.folder.files import FolderError
from ergnn.folder.graph_store import SPLITS, GraphStore, layout_of, make_arrays
from ergnn.folder.merging import merge_segments
from ergnn.folder.segment import BLOCK, FileSegment, Segment, write_segment
from ergnn.folder.versions import open_segment

FEATURES = 20


class Truth:
    """A graph in dictionaries, and its segments."""

    def __init__(self, seed: int, updates: int, place: Path) -> None:
        rng = np.random.default_rng(seed)
        self.ids: list[str] = []
        self.x = scipy.sparse.csr_matrix((0, FEATURES), dtype=np.float32)
        self.edges: set[tuple[int, int]] = set()
        self.label: dict[int, tuple[int, int, int]] = {}
        self.place, self.segments, self.updates = place, [], updates
        for number in range(updates):
            self._update(number, rng)

    def _update(self, number: int, rng: np.random.Generator) -> None:
        first, count = len(self.ids), int(rng.integers(0, 120))
        ids = [f"né{first + i}" for i in range(count)]
        x = scipy.sparse.random(count, FEATURES, 0.2, "csr", dtype=np.float32, random_state=number)
        total = first + count
        pairs = {(int(a), int(b)) for a, b in rng.integers(0, max(total, 1), (300 if total else 0, 2))} - self.edges
        nodes = rng.permutation([n for n in range(total) if n not in self.label])[: count // 2].astype(np.int64)
        labels, splits = rng.integers(0, 5, len(nodes)), rng.integers(0, 3, len(nodes))
        edges = np.array(sorted(pairs), np.int64).reshape(-1, 2).T
        arrays = make_arrays(ids, (x.indptr, x.indices, x.data), first, number, edges, (nodes, labels, splits))
        self.segments.append(self.write(arrays, f"{number:06d}"))
        self.ids += ids
        self.x = scipy.sparse.vstack([self.x, x]).tocsr()
        self.edges |= pairs
        self.label |= {int(n): (int(c), int(s), number) for n, c, s in zip(nodes, labels, splits, strict=True)}

    def write(self, arrays: dict, name: str) -> FileSegment:
        return self.written(layout_of(arrays), name)

    def written(self, layout: dict, name: str) -> FileSegment:
        entry = write_segment(self.place / f"{name}.safetensors", layout)
        return open_segment(self.place / entry["name"], entry)

    def check(self, segments: list[Segment], gone: frozenset[int] = frozenset()) -> None:
        store = GraphStore(segments, FEATURES)
        total = len(self.ids)
        assert store.num_nodes == total
        nodes = np.random.default_rng(9).permutation(total)[: max(total // 2, 1)].astype(np.int64)
        found = store.find([*(self.ids[i] for i in nodes), "nobody"])
        assert found.tolist() == [-1 if i in gone else i for i in nodes.tolist()] + [-1]
        assert store.names(nodes) == ["" if i in gone else self.ids[i] for i in nodes]
        assert store.alive(nodes).tolist() == [i not in gone for i in nodes.tolist()]
        row, source = store.incoming(nodes)
        wanted = {(a, b) for a, b in self.edges if b in set(nodes.tolist()) and not {a, b} & gone}
        assert len(row) == len(wanted)
        assert set(zip(source.tolist(), nodes[row].tolist(), strict=True)) == wanted
        labels = np.stack(store.labels(nodes)).T.tolist()
        for node, label in zip(nodes.tolist(), labels, strict=True):
            known = self.label.get(node) if node not in gone else None
            assert tuple(label) == known if known else label[0] == -1
        pointers, col, value = store.rows(nodes)
        x = self.x[nodes].toarray()
        x[np.isin(nodes, list(gone))] = 0
        np.testing.assert_array_equal(scipy.sparse.csr_matrix((value, col, pointers), x.shape).toarray(), x)
        for update in range(self.updates):
            for place, split in enumerate(SPLITS):
                members = [n for n, (_, s, u) in self.label.items() if (u, s) == (update, place) and n not in gone]
                assert store.members(update, split).tolist() == sorted(members)


@pytest.mark.parametrize("seed", range(3))
def test_reads_and_merges_like_dictionaries(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "PIECE", 64)  # so that a merge takes many pieces
    truth = Truth(seed, 6, tmp_path)
    parts = truth.segments
    truth.check(parts)
    whole = truth.written(merge_segments(parts, 0), "100000")
    truth.check([whole])
    first = int(GraphStore(parts[:3], 0).num_nodes)
    truth.check([*parts[:3], truth.written(merge_segments(parts[3:], first), "100001")])
    gone = np.sort(np.random.default_rng(seed).permutation(len(truth.ids))[:40]).astype(np.int64)
    less = truth.written(merge_segments(parts, 0, gone), "100002")
    truth.check([less], frozenset(gone.tolist()))
    again = truth.written(merge_segments([less], 0), "100003")
    again.verify()
    truth.check([again], frozenset(gone.tolist()))
    for node in gone:
        assert truth.ids[node].encode() not in _texts(less)


def _texts(segment: FileSegment) -> set[bytes]:
    return {name.encode() for name in GraphStore([segment], FEATURES).names(np.arange(segment.size("node.alive")))}


def test_segments_are_safetensors_files(tmp_path: Path) -> None:
    truth = Truth(0, 1, tmp_path)
    arrays = load_file(tmp_path / "000000.safetensors")
    assert set(arrays) == {*truth.segments[0].names(), "digests"}
    for name in truth.segments[0].names():
        own = truth.segments[0].slice(name, 0, truth.segments[0].size(name))
        np.testing.assert_array_equal(own, arrays[name])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 9)), max_size=60), st.lists(st.integers(-6, 6), unique=True)
)
def test_a_table_finds_all_values_of_a_key(entries: list[tuple[int, int]], keys: list[int]) -> None:
    arrays = table.make_table("t", np.array([k for k, _ in entries], np.int64), np.array([v for _, v in entries]))
    row, value = table.look_up(Segment(arrays), "t", np.array(keys, np.int64))
    found = sorted((keys[r], v) for r, v in zip(row, value, strict=True))
    assert found == sorted(entry for entry in entries if entry[0] in keys)


def test_every_flipped_bit_is_noticed_where_it_is_read(tmp_path: Path) -> None:
    truth = Truth(1, 1, tmp_path)
    path = tmp_path / "000000.safetensors"
    data = path.read_bytes()
    segment = truth.segments[0]
    size, payload, root = len(data), segment.payload, _root(data, segment.payload)
    rng = np.random.default_rng(0)
    for at in rng.integers(0, size, 40):
        broken = bytearray(data)
        broken[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(broken)
        with pytest.raises(FolderError, match="damaged"):
            FileSegment(path, size, payload, root).verify()
    for cut in (0, 7, BLOCK, size - 1):
        path.write_bytes(data[:cut])
        with pytest.raises(FolderError, match="bytes"):
            FileSegment(path, size, payload, root)


def test_a_block_that_is_not_touched_is_not_read(tmp_path: Path) -> None:
    values = np.arange(100_000, dtype=np.int64)
    entry = write_segment(tmp_path / "000000.safetensors", layout_of({"a.x": values}))
    path = tmp_path / entry["name"]
    data = bytearray(path.read_bytes())
    data[entry["payload"] - 1] ^= 1  # in the last block
    path.write_bytes(data)
    segment = open_segment(path, entry)
    assert segment.take("a.x", np.array([5, 70_000])).tolist() == [5, 70_000]
    assert len(segment._blocks) <= 3
    with pytest.raises(FolderError, match="block"):
        segment.take("a.x", np.array([99_999]))


def _root(data: bytes, payload: int) -> str:
    return hashlib.sha256(data[payload:]).hexdigest()
