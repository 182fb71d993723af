"""Invalid options of selectors are refused, and the message names the value or the choices."""

from dataclasses import replace
from typing import Any

import pytest

from ergnn.config.errors import InputError
from ergnn.replay import SELECTORS
from ergnn.testing import example_context


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nearest", {}, "choose one of: cm, cm"),
        ("im", {"target": "future"}, "choose one of: test, train, val"),
        ("im", {"damping": -1.0}, "damping is -1.0; it must be 0 or more"),
        ("im", {"sign": "best"}, "choose one of: harmful, helpful, magnitude"),
        ("mf", {"distance": "manhattan"}, "choose one of: cosine, euclidean"),
        ("rim", {"target": "test"}, "choose one of: train, val$"),
        ("herding", {"space": "edges"}, "unknown space 'edges'"),
        ("cm", {"quantile": 1.0}, "quantile is 1.0"),
        ("cm", {"d": 0.0}, "d is 0.0"),
        ("cm", {"radius": 1.0}, "no option 'radius'"),
        ("dslr", {"ratio": 0.0}, "ratio is 0.0; it must be above 0"),
        ("pagerank", {"damping": 1.0}, "damping is 1.0; it must be 0 or more and below 1"),
        ("mf-s2", {"hops": -2}, "hops is -2"),
        *(("s2-ridge", {option: -1}, f"{option} is -1") for option in ("pool", "targets", "hops")),
    ],
)
def test_invalid_options_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SELECTORS.create(name, **options)


@pytest.mark.parametrize("name", ["im", "rim"])
def test_missing_validation_nodes_need_another_target(name: str) -> None:
    context = example_context()
    context = replace(context, task=replace(context.task, val=context.task.val[:0]))
    with pytest.raises(InputError, match=r"no val nodes.*train, val, test"):
        SELECTORS.create(name).select(context)
    assert SELECTORS.create(name, target="train").select(context).nodes.numel() == 2
