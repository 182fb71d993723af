import pytest
import torch

from ergnn.config.errors import InputError
from ergnn.nn.examples import Examples
from graphs import random_graph

GRAPH = random_graph()


def examples(nodes: list[int]) -> Examples:
    index = torch.tensor(nodes)
    return Examples(GRAPH, index, index.unsqueeze(1) % 2, index % 3, index / 10)


def test_joined_examples_are_in_order() -> None:
    joined, expected = Examples.join([examples([3, 1]), examples([4])]), examples([3, 1, 4])
    assert len(joined) == 3
    for key in ("nodes", "heads", "targets", "weights"):
        assert torch.equal(getattr(joined, key), getattr(expected, key))


def test_examples_of_two_graphs_cannot_be_joined() -> None:
    other = Examples(random_graph(), *(torch.zeros(1, dtype=torch.long) for _ in range(4)))
    with pytest.raises(InputError, match="different graphs"):
        Examples.join([examples([3]), other])
