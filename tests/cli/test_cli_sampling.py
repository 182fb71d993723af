"""A large graph on the command line: generated, learned in batches with sampled neighbors, scored exactly."""

import json
from typing import Any

import pytest

from ergnn.cli.main import main

RUN = ["run", "reddit-like", "--import", "benchmarks.reddit_like", "--seeds", "1"]
RUN += ["--dataset-options", "nodes=2500,edges=50000,features=32,signal=0.5"]
QUICK = ["--epochs", "3", "--selector", "mf", "--quiet", "--json"]


def result(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    code = main([*RUN, *QUICK, *options])
    out = capsys.readouterr()
    assert code == 0, out.err
    return json.loads(out.out)


def test_a_stream_is_learned_in_batches_with_sampled_neighbors(capsys: pytest.CaptureFixture[str]) -> None:
    first, again = (result(capsys, "--fanout", "6,4", "--batch-size", "64", "--backbone", "sage") for _ in range(2))
    assert (len(first["matrix"]), first["metric"], first["split"]) == (8, "micro-f1", "public")
    assert first["pm"]["mean"] > 0.6  # five classes: chance is 0.2
    assert first["buffer"]["nodes"] == 40
    assert first["matrix"] == again["matrix"]
    exact = result(capsys, "--batch-size", "64", "--backbone", "sage")
    assert first["matrix"] != exact["matrix"]
    assert abs(first["aa"]["mean"] - exact["aa"]["mean"]) < 0.15


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fanout", "6,0", "--batch-size", "9"], "fanout is (6, 0); its numbers must be 1 or more"),
        (["--fanout", "6", "--batch-size", "9"], "GAT aggregates neighbors in 2 layer(s): use 2 number(s)"),
        (["--dataset-options", "nods=7"], "dataset 'reddit-like' has no option 'nods'"),
    ],
)
def test_invalid_options_are_rejected(capsys: pytest.CaptureFixture[str], options: list[str], message: str) -> None:
    assert main([*RUN, *QUICK, *options]) == 2
    assert message in capsys.readouterr().err
