"""Skip-gram continues training, is reproducible, and names a missing dependency."""

import hashlib
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.lab.walks import SkipGram, WalkSettings


def clique_walks(nodes: range, count: int = 200, length: int = 10, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(nodes.start, nodes.stop, (count, length), generator=generator)


def trained(seed: int = 0) -> SkipGram:
    model = SkipGram(WalkSettings(dim=16, window=3), seed)
    model.train(clique_walks(range(10, 20)))
    return model


def test_nodes_of_one_clique_are_alike_and_nodes_without_walks_are_zero() -> None:
    model = SkipGram(WalkSettings(dim=16, window=3, epochs=5))
    model.train(torch.cat([clique_walks(range(5)), clique_walks(range(5, 10))]))
    vectors = model.vectors(12)
    assert vectors.shape == (12, 16)
    assert bool((vectors[10:] == 0).all())
    alike = F.normalize(vectors[:10], dim=1) @ F.normalize(vectors[:10], dim=1).T
    inside = torch.cat([alike[:5, :5].flatten(), alike[5:, 5:].flatten()])
    assert float(inside.min()) > float(alike[:5, 5:].max())


def test_old_vectors_change_only_when_walks_contain_them() -> None:
    model = trained()
    before = model.vectors(20)
    model.train(clique_walks(range(10)))  # smaller numbers, and as many as there are words
    after = model.vectors(20)
    assert torch.equal(after[10:], before[10:])
    assert bool((before[:10] == 0).all())
    assert bool((after[:10].norm(dim=1) > 0).all())
    assert torch.unique(after, dim=0).size(0) == 20
    model.train(clique_walks(range(10, 20), seed=1))
    again = model.vectors(20)
    moved = (again[10:] - before[10:]).norm(dim=1)
    assert bool((moved > 0).all())
    assert torch.equal(again[:10], after[:10])
    afresh = SkipGram(WalkSettings(dim=16, window=3))
    afresh.train(clique_walks(range(10, 20), seed=1))
    assert float(moved.mean()) < float((again[10:] - afresh.vectors(20)[10:]).norm(dim=1).mean())


def test_ended_walks_are_read_up_to_their_end() -> None:
    walks = clique_walks(range(4), length=5)
    padded = F.pad(walks, (0, 3), value=-1)
    one, two = SkipGram(WalkSettings(dim=8)), SkipGram(WalkSettings(dim=8))
    one.train(walks)
    two.train(padded)
    assert torch.equal(one.vectors(4), two.vectors(4))


def test_walks_of_one_node_and_no_walks_at_all() -> None:
    model = SkipGram(WalkSettings(dim=8))
    model.train(torch.empty(0, 5, dtype=torch.long))
    assert bool((model.vectors(3) == 0).all())
    model.train(torch.tensor([[2, -1, -1]]))
    first = model.vectors(3)
    assert bool((first[:2] == 0).all())
    assert float(first[2].norm()) > 0


DIGEST = "import test_skipgram as t; print(t.digest())"


def digest() -> str:
    model = trained()
    model.train(clique_walks(range(5, 15)))
    return hashlib.sha256(model.vectors(20).numpy().tobytes()).hexdigest()


def test_the_same_bits_in_another_process_however_names_are_hashed() -> None:
    folder = os.path.dirname(__file__)
    env = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join([folder, *sys.path])}
    done = subprocess.run([sys.executable, "-c", DIGEST], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest()


def test_without_gensim_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(InputError, match=r"ergnn\[walks\]"):
        SkipGram()
