import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ergnn.config.errors import InputError
from ergnn.data import Split, splits


def labels(*counts: int, unlabeled: int = 0) -> torch.Tensor:
    y = torch.cat([torch.full((count,), c) for c, count in enumerate(counts)] + [torch.full((unlabeled,), -1)])
    return y[torch.randperm(y.numel(), generator=torch.Generator().manual_seed(0))]


def parts(split: Split) -> list[set[int]]:
    return [set(part.tolist()) for part in (split.train, split.val, split.test)]


def counts(y: torch.Tensor, nodes: torch.Tensor) -> list[int]:
    return torch.bincount(y[nodes], minlength=int(y.max()) + 1).tolist()


def assert_disjoint_and_labeled(split: Split, y: torch.Tensor) -> None:
    train, val, test = parts(split)
    assert len(train) == split.train.numel()
    assert not train & val
    assert not train & test
    assert not val & test
    assert all(int(y[node]) >= 0 for node in train | val | test)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), unlabeled=st.integers(0, 9), per_class=st.integers(1, 5))
def test_planetoid_like_has_the_requested_sizes(seed: int, unlabeled: int, per_class: int) -> None:
    y = labels(12, 30, 20, unlabeled=unlabeled)
    split = splits.planetoid_like(y, per_class=per_class, num_val=15, num_test=25, seed=seed)
    assert_disjoint_and_labeled(split, y)
    assert counts(y, split.train) == [per_class] * 3
    assert (split.val.numel(), split.test.numel()) == (15, 25)


def test_planetoid_like_draws_only_labeled_nodes() -> None:
    y = labels(40, 40)
    y[1::2] = -1
    split = splits.planetoid_like(y, per_class=3, num_val=5, num_test=6)
    assert set.union(*parts(split)) <= set(range(0, 80, 2))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_scaled_uses_every_node_and_leaves_test_nodes_to_classes_of_two(seed: int, sizes: list[int]) -> None:
    y = labels(*sizes, unlabeled=3)
    split, words = splits.scaled(y, seed=seed)
    assert_disjoint_and_labeled(split, y)
    train, val, test = (counts(y, part) for part in (split.train, split.val, split.test))
    assert [sum(parts) for parts in zip(train, val, test, strict=True)] == sizes
    assert all(train)
    assert all(found for found, size in zip(test, sizes, strict=True) if size > 1)
    assert all(found for found, size in zip(val, sizes, strict=True) if size > 2)
    assert words.startswith("60 %")


def test_scaled_has_planetoids_sizes_only_where_every_class_gets_test_nodes() -> None:
    large = labels(800, 800, 30)
    assert splits.scaled(large, seed=1)[0].test.tolist() == splits.planetoid_like(large, seed=1).test.tolist()
    without = labels(800, 800, 20)  # all of the third class would be training nodes
    assert splits.scaled(without)[1].startswith("60 %")


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), train=st.integers(1, 4), val=st.integers(0, 4), test=st.integers(1, 4))
def test_per_class_has_the_requested_sizes(seed: int, train: int, val: int, test: int) -> None:
    y = labels(12, 30, 20, unlabeled=4)
    split = splits.per_class(y, train=train, val=val, test=test, seed=seed)
    assert_disjoint_and_labeled(split, y)
    sizes = [counts(y, part) for part in (split.train, split.val, split.test)]
    assert sizes == [[train] * 3, [val] * 3, [test] * 3]
    assert counts(y, splits.per_class(y, train=train, val=val).test) == [n - train - val for n in (12, 30, 20)]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000))
def test_fractions_that_add_up_to_one_use_every_labeled_node(seed: int) -> None:
    y = labels(13, 31, 22, unlabeled=5)
    split = splits.fractions(y, train=0.5, val=0.3, test=0.2, seed=seed)
    assert_disjoint_and_labeled(split, y)
    assert set.union(*parts(split)) == set((y >= 0).nonzero().flatten().tolist())
    assert counts(y, split.train) == [round(0.5 * count) for count in (13, 31, 22)]


@pytest.mark.parametrize("draw", [splits.planetoid_like, splits.per_class, splits.fractions])
def test_splits_depend_only_on_the_seed(draw) -> None:
    y = labels(600, 700, 800)
    torch.manual_seed(1)
    first = draw(y, seed=3)
    torch.manual_seed(2)
    again, other = draw(y, seed=3), draw(y, seed=4)
    assert parts(first) == parts(again)
    assert parts(first)[0] != parts(other)[0]


def test_given_takes_ids_lists_arrays_and_masks() -> None:
    mask = np.zeros(6, dtype=bool)
    mask[[4, 5]] = True
    split = splits.given([0, 1], torch.tensor([2]), mask, num_nodes=6)
    assert parts(split) == [{0, 1}, {2}, {4, 5}]
    assert splits.given([0], [], [1], num_nodes=2).val.dtype == torch.long


@pytest.mark.parametrize(
    ("train", "val", "test", "message"),
    [
        ([0, 6], [1], [2], "train: nodes contains 6; nodes are 0 to 5"),
        ([0], [-1], [2], "val: nodes contains -1; nodes are 0 to 5"),
        ([0, 0], [1], [2], r"node 0 is in train and train \(1 such node\(s\)\); a node is in one of them, once"),
        ([0, 1], [2], [3, 1], r"node 1 is in train and test \(1 such node"),
        ([0.5], [1], [2], "train: nodes must be a vector of node ids.* got torch.float64"),
        ([True, False], [1], [2], "train: .* a mask of 6 entries; got torch.bool"),
    ],
)
def test_given_rejects_invalid_ids(train, val, test, message: str) -> None:
    with pytest.raises(InputError, match=message):
        splits.given(train, val, test, num_nodes=6)


def test_check_split_requires_int64_vectors() -> None:
    ids = torch.tensor([0], dtype=torch.int32)
    with pytest.raises(InputError, match=r"mine, train: nodes are torch\.int32; int64 ids are required"):
        splits.check_split(Split(ids, ids, ids), 3, "mine")


@pytest.mark.parametrize(
    ("draw", "options", "message"),
    [
        (splits.planetoid_like, {"per_class": 8}, "class 1 has 7 labeled nodes; 8 are required for training"),
        (splits.planetoid_like, {"per_class": 5}, r"7 labeled nodes are left .* 500 for validation and 1000 for"),
        (splits.planetoid_like, {"per_class": 0}, "per_class is 0; it must be 1 or more"),
        (splits.planetoid_like, {"num_val": -1}, "num_val is -1; it must be 0 or more"),
        (
            splits.per_class,
            {"train": 4, "val": 3},
            "class 1 has 7 labeled nodes, too few for 4 .* 3 .* and the rest .test",
        ),
        (splits.per_class, {"train": 4, "val": 3, "test": 2}, "class 1 has 7 .* and 2 .test"),
        (splits.per_class, {"val": -2}, "val is -2; it must be 0 or more"),
        (splits.fractions, {"train": 1.2}, "the train fraction is 1.2; a fraction is between 0 and 1"),
        (splits.fractions, {"train": 0.01}, "class 0 has 10 labeled nodes, too few for 0.01"),
    ],
)
def test_impossible_sizes_name_the_class_and_the_counts(draw, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw(labels(10, 7), **options)
