"""Permuted MNIST: files, permutations, tasks with separate graphs, and learning a stream."""

import gzip
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ergnn.config.errors import InputError
from ergnn.data import PublicSplitUnavailable, TaskStream, make_stream
from ergnn.data.datasets import DataUnavailable, base
from ergnn.data.datasets.mnist import FILES, PermutedMNIST, permutation, read_idx
from ergnn.learning.learner import Learner
from ergnn.learning.metrics import accuracy

SIZES = {"tasks": 3, "train": 200, "val": 30, "test": 60}
SIDE = 6


def idx(values: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.astype(np.uint8).tobytes()


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content))
    return path


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files like MNIST's, with 500 + 100 images of 6 × 6 pixels: a class's own pattern, and noise."""
    monkeypatch.delenv("ERGNN_DATA", raising=False)
    monkeypatch.setattr(base, "cache_root", lambda: tmp_path / "cache")
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 200, (10, SIDE, SIDE))
    for count, images, labels in ((500, *FILES[:2]), (100, *FILES[2:])):
        y = rng.permutation(np.arange(count) % 10)
        pixels = patterns[y] + rng.integers(0, 56, (count, SIDE, SIDE))
        write(tmp_path / "mnist/MNIST/raw" / images, idx(pixels))
        write(tmp_path / "mnist/MNIST/raw" / labels, idx(y))
    return tmp_path


# --- the files -------------------------------------------------------------------------------------------


def test_an_idx_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (3, 4, 5))
    assert torch.equal(read_idx(write(tmp_path / "a.gz", idx(values)), 3), torch.from_numpy(values).to(torch.uint8))


@pytest.mark.parametrize(
    "content",
    [
        b"\0\0\x08\x03" + bytes(12),
        b"\0\0\x0d\x01" + bytes(12),
        idx(np.zeros(9))[:-1],
        b"\0\0\x08\x01" + struct.pack(">I", 2**32 - 1),
    ],
)
def test_a_broken_idx_file_is_rejected_by_name(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InputError, match=r"broken\.gz: cannot be read as a gzipped IDX file of bytes in 1 dim"):
        read_idx(write(tmp_path / "broken.gz", content), 1)


def test_files_that_are_no_gzip_files_are_rejected(tmp_path: Path) -> None:
    whole = write(tmp_path / "half.gz", idx(np.arange(200))).read_bytes()
    (tmp_path / "half.gz").write_bytes(whole[:-30])
    (tmp_path / "text.gz").write_text("not found")
    for name in ("half", "text", "none"):
        with pytest.raises(InputError, match=rf"{name}\.gz: cannot be read as a gzipped IDX file"):
            read_idx(tmp_path / f"{name}.gz", 1)


def test_files_that_do_not_belong_together_are_rejected(root: Path) -> None:
    write(root / "mnist/MNIST/raw" / FILES[3], idx(np.zeros(99)))
    with pytest.raises(InputError, match=r"cannot be read as MNIST \(600 images, 599 labels up to 9\)"):
        make_stream("permuted-mnist", root=root, dataset_options=SIZES)
    write(root / "mnist/MNIST/raw" / FILES[3], idx(np.full(100, 10)))
    with pytest.raises(InputError, match="600 images, 600 labels up to 10"):
        make_stream("permuted-mnist", root=root, dataset_options=SIZES)


# --- the stream ------------------------------------------------------------------------------------------


def test_tasks_have_all_classes_in_separate_graphs(root: Path) -> None:
    before = sorted((p, p.stat().st_mtime_ns) for p in root.rglob("*"))
    stream, split, notes = make_stream("permuted-mnist", root=root, dataset_options=SIZES)
    assert (len(stream), split, notes, stream.name) == (3, "seeded", (), "permuted-mnist")
    for number, task in enumerate(stream):
        assert task.id == number
        assert task.own_graph
        assert task.classes == tuple(range(10))
        assert (task.train.numel(), task.val.numel(), task.test.numel()) == (200, 30, 60)
        assert torch.cat([task.train, task.val, task.test]).unique().numel() == task.graph.num_nodes == 290
        assert task.graph.num_edges == 0
        assert 0.0 <= float(task.graph.x.min()) < 0.2 < 0.8 < float(task.graph.x.max()) <= 1.0
    assert stream.classes == tuple(range(10)) * 3
    assert sorted((p, p.stat().st_mtime_ns) for p in root.rglob("*")) == before


def test_a_task_is_the_images_under_its_own_order_of_pixels(root: Path) -> None:
    raw = root / "mnist/MNIST/raw"
    pixels = read_idx(raw / FILES[2], 3).flatten(1).float() / 255
    labels = read_idx(raw / FILES[3], 1).long()
    stream = make_stream("permuted-mnist", root=root, dataset_options={**SIZES, "test": 100}).stream
    orders = [permutation(0, i, SIDE * SIDE) for i in range(3)]
    assert orders[0].tolist() == list(range(SIDE * SIDE))
    assert orders[1].tolist() != orders[2].tolist() != orders[0].tolist()
    for task, order in zip(stream, orders, strict=True):
        assert order.sort().values.tolist() == list(range(SIDE * SIDE))
        assert torch.equal(task.graph.x[task.test], pixels[:, order])
        assert torch.equal(task.graph.y[task.test], labels)


def test_a_seed_decides_everything_but_the_test_images(root: Path) -> None:
    def stream(seed: int) -> TaskStream:
        return make_stream("permuted-mnist", root=root, split_seed=seed, dataset_options=SIZES).stream

    one, again, other = stream(1), stream(1), stream(2)
    for a, b, c in zip(one, again, other, strict=True):
        assert torch.equal(a.graph.x, b.graph.x)
        assert not torch.equal(a.graph.x[a.train].sum(1), c.graph.x[c.train].sum(1))
        assert torch.allclose(a.graph.x[a.test].sum(1), c.graph.x[c.test].sum(1), atol=1e-4)
    assert not torch.equal(one[1].graph.x[one[1].test], other[1].graph.x[other[1].test])


def test_tasks_are_built_on_access_and_reproducible(root: Path) -> None:
    stream = make_stream("permuted-mnist", root=root, num_tasks=5, dataset_options=SIZES).stream
    assert len(stream) == len(list(stream)) == 5
    first, last = stream[1].graph.x, stream[-1].graph.x
    assert torch.equal(stream[1].graph.x, first)
    assert [task.id for task in stream[3:]] == [3, 4]
    assert torch.equal(stream[4].graph.x, last)
    with pytest.raises(IndexError):
        stream[5]
    assert [task.id for task in stream.first(2)] == [0, 1]
    doubled = stream.map(lambda task: replace(task, graph=replace(task.graph, x=2 * task.graph.x)))
    assert len(doubled) == 5
    assert torch.equal(doubled[4].graph.x, 2 * last)
    assert torch.equal(stream.to("cpu")[4].graph.x, last)


def test_invalid_options_are_rejected(root: Path) -> None:
    with pytest.raises(InputError, match="tasks is 0; it must be 1 or more"):
        PermutedMNIST(tasks=0)
    with pytest.raises(InputError, match="1,000 training, 1,000 validation and 10,000 test images requested"):
        make_stream("permuted-mnist", root=root)
    with pytest.raises(InputError, match="has no train nodes"):
        make_stream("permuted-mnist", root=root, dataset_options={**SIZES, "train": 10})
    for options in ({"class_order": "shuffled"}, {"classes_per_task": 2}, {"normalize": True}):
        with pytest.raises(InputError, match="but permuted-mnist is not split by class; omit it"):
            make_stream("permuted-mnist", root=root, dataset_options=SIZES, **options)  # type: ignore[arg-type]
    with pytest.raises(PublicSplitUnavailable, match="use split='seeded'"):
        make_stream("permuted-mnist", root=root, split="public", dataset_options=SIZES)
    with pytest.raises(InputError, match="num_tasks is 0"):
        make_stream("permuted-mnist", root=root, num_tasks=0, dataset_options=SIZES)


def test_missing_files_are_named(root: Path) -> None:
    with pytest.raises(DataUnavailable, match="nor the cache folder has mnist/MNIST/raw"):
        make_stream("permuted-mnist", root=root / "nowhere")


# --- learning it -----------------------------------------------------------------------------------------

SETTINGS = {"head": "shared", "epochs": 3, "lr": 0.1, "optimizer": "sgd", "batch_size": 10}


def learner(method: str, seed: int = 0, **options: object) -> Learner:
    return Learner("mlp", method, seed=seed, backbone_options={"hidden": 32}, **{**SETTINGS, **options})  # type: ignore[arg-type]


def test_an_earlier_task_is_scored_in_its_own_graph(root: Path) -> None:
    stream = make_stream("permuted-mnist", root=root, dataset_options=SIZES).stream
    model = learner("finetune")
    for task in stream:
        model.observe(task)
    net = model.model
    assert net is not None
    for task in stream:
        out = net(task.graph.x, task.graph.edge_index)[task.test].argmax(1)
        assert model.evaluate(task) == pytest.approx(accuracy(out, task.graph.y[task.test]))
    assert model.evaluate(stream[2]) > 0.5


@pytest.mark.parametrize("method", ["replay", "gem", "agem"])
def test_stored_images_are_copies_and_ids_may_repeat(root: Path, method: str) -> None:
    stream = make_stream("permuted-mnist", root=root, dataset_options=SIZES).stream
    model = learner(method, replay="isolated", per_class=8)
    for task in stream:
        model.observe(task)
    buffer = model.method.buffer
    assert len(buffer) == 3 * 80
    assert buffer.nodes.unique().numel() < len(buffer)  # 240 of 200 ids
    for task, part in zip(stream, buffer.experiences, strict=True):
        assert torch.equal(part.copy.x, task.graph.x[part.nodes])
    graph, ids = buffer.attach(stream[2].graph)
    assert torch.equal(graph.x[ids[0]], stream[0].graph.x[buffer.experiences[0].nodes])


def test_live_replay_of_an_unavailable_graph_is_rejected(root: Path) -> None:
    task = make_stream("permuted-mnist", root=root, dataset_options=SIZES).stream[0]
    with pytest.raises(InputError, match=r"has its own graph.* use 'isolated' or 'ego'"):
        learner("replay").observe(task)


def test_joint_training_in_many_graphs_is_rejected(root: Path) -> None:
    task = make_stream("permuted-mnist", root=root, dataset_options=SIZES).stream[0]
    with pytest.raises(InputError, match="joint training needs all tasks in one graph"):
        learner("joint").observe(task)


# --- the real thing --------------------------------------------------------------------------------------


def test_the_real_mnist_is_as_described(data_root: Path) -> None:
    if not (data_root / "mnist/MNIST/raw").is_dir():
        pytest.skip("ERGNN_DATA has no mnist/MNIST")
    stream = make_stream("permuted-mnist", root=data_root).stream
    assert len(stream) == 23
    task = stream[0]
    assert (task.train.numel(), task.val.numel(), task.test.numel()) == (1_000, 1_000, 10_000)
    assert task.graph.y[task.test][:5].tolist() == [7, 2, 1, 0, 4]
    assert torch.bincount(task.graph.y[task.test]).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
