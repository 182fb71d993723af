from pathlib import Path

import pytest
import torch

from ergnn.data import PublicSplitUnavailable, make_stream
from ergnn.data.datasets import base
from ergnn.data.presets import GraphCache
from raw_files import write_cora, write_reddit


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ERGNN_DATA", raising=False)
    monkeypatch.setattr(base, "cache_root", lambda: tmp_path / "cache")


def test_public_uses_the_public_split(tmp_path: Path) -> None:
    write_cora(tmp_path)
    stream, split, notes = make_stream("cora", root=tmp_path, class_order=[6, 5, 4, 3, 2, 1, 0])
    assert (split, notes) == ("public", ())
    assert stream[0].classes == (6, 5)
    assert set(stream[0].train.tolist()) == {v for v in range(140) if v % 7 in (5, 6)}
    with pytest.raises(PublicSplitUnavailable):
        make_stream("cora", split="public")
    with pytest.raises(TypeError, match="unexpected keyword argument 'edge'"):
        make_stream("cora", edge="own")


def test_bags_of_words_are_row_normalized_by_default(tmp_path: Path) -> None:
    x = make_stream("citeseer").stream[0].graph.dense_x()
    sums = x.sum(dim=1)
    assert torch.allclose(sums[sums > 0], torch.ones(3312))
    assert int((sums == 0).sum()) == 15
    assert set(make_stream("citeseer", normalize=False).stream[0].graph.x.values().tolist()) == {1.0}
    write_reddit(tmp_path)
    vectors = make_stream("reddit", root=tmp_path).stream[0].graph.x.sum(dim=1)
    assert not torch.allclose(vectors, torch.ones_like(vectors))


def test_a_graph_is_read_once_for_several_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: GraphCache = {}
    first = make_stream("cora", split="seeded", graphs=graphs).stream
    monkeypatch.setattr("ergnn.data.presets.load_graph", lambda *_, **__: pytest.fail("the graph was read again"))
    again = make_stream("cora", split="seeded", split_seed=1, edges="seen", graphs=graphs).stream
    assert again[-1].graph.x is first[0].graph.x
    monkeypatch.undo()
    assert make_stream("cora", split="seeded", normalize=False, graphs=graphs).stream[0].graph.x is not first[0].graph.x
    assert make_stream("citeseer", split="seeded", graphs=graphs).stream.name == "citeseer"
    assert len(graphs) == 1
