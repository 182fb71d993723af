"""The field of several models at once equals the joined fields of each, in every tensor."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from ergnn.engine.features import DenseFeatures, SparseFeatures
from ergnn.engine.field import join_fields, make_field
from ergnn.engine.sampling import Sampling
from ergnn.engine.slots import SlotRows
from ergnn.engine.sparse import SparsePattern
from graphs import random_graph
from nn.cases import model_of

NODES = [[3, 8, 3, 20], [0], [29, 8, 1], [8]]
HEADS = [[[0], [1], [1], [0]], [[1]], [[0], [0], [1]], [[0]]]


def assert_equal(one: Any, other: Any, place: str = "") -> None:
    assert type(one) is type(other), place
    if isinstance(one, Tensor):
        assert one.dtype == other.dtype, place
        assert torch.equal(one, other), place
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), place
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_equal(a, b, f"{place}[{i}]")
    elif dataclasses.is_dataclass(one) or isinstance(one, SlotRows | SparsePattern):
        assert set(vars(one)) == set(vars(other)), place
        for name, value in vars(one).items():
            assert_equal(value, vars(other)[name], f"{place}.{name}")
    else:
        assert one == other, place


@pytest.mark.parametrize(
    ("name", "with_heads", "sparse", "sampling"),
    [
        *((name, True, name in ("gat", "gin"), None) for name in ("gat", "gcn", "sage", "gin", "sgc", "mlp")),
        *((name, False, name == "gat", None) for name in ("gat", "sgc", "mlp")),
        *((name, True, name == "gcn", Sampling((2, 2))) for name in ("gat", "gcn", "sgc")),
    ],
)
def test_one_field_of_several_models_equals_joined_fields(
    name: str, with_heads: bool, sparse: bool, sampling: Sampling | None
) -> None:
    graph, model = random_graph(n=30, f=6, classes=3, seed=2, sparse=sparse), model_of(name, 6, [2, 2])
    nodes = [torch.tensor(part) for part in NODES]
    heads = [torch.tensor(part) if with_heads else None for part in HEADS]
    every = torch.cat([part for part in heads if part is not None]) if with_heads else None
    options = {"slots": 2, "sampling": sampling, "key": 5}
    alone = [make_field(model, graph, a, b, **options) for a, b in zip(nodes, heads, strict=True)]
    together = make_field(model, graph, torch.cat(nodes), every, **options, sizes=[len(part) for part in NODES])
    assert_equal(together, join_fields(alone))
    if name not in ("sgc", "mlp"):
        assert isinstance(together.features, SparseFeatures if sparse else DenseFeatures)


def test_fields_of_several_models_on_two_graphs_are_joined() -> None:
    graphs, model = [random_graph(n=30, f=6, classes=3, seed=s, sparse=True) for s in (2, 3)], model_of("gcn", 6, [2])
    nodes = [torch.tensor(part) for part in NODES]
    zeros = [torch.zeros(len(part), 1, dtype=torch.long) for part in NODES]
    alone = [make_field(model, graphs[i // 2], nodes[i], zeros[i]) for i in range(4)]
    pairs = [
        make_field(model, graphs[k], torch.cat(nodes[i : i + 2]), torch.cat(zeros[i : i + 2]), sizes=sizes)
        for k, i, sizes in ((0, 0, [4, 1]), (1, 2, [3, 1]))
    ]
    assert_equal(join_fields(pairs), join_fields(alone))
