"""Published methods from the command line, with known and unknown tasks."""

import json

import pytest

from ergnn.cli.main import main

METHODS = ["slda", "icarl", "cat", "ssm", "pdgnn-tem", "continualgnn", "tpp"]


@pytest.mark.slow
@pytest.mark.parametrize("head", ["per-task", "growing"])
@pytest.mark.parametrize("method", METHODS)
def test_a_run_reports_accuracy_and_bytes(method: str, head: str, capsys: pytest.CaptureFixture[str]) -> None:
    trained = [] if method == "slda" else ["--epochs", "20"]
    assert main(["run", "cora", "--method", method, "--head", head, "--seeds", "1", "--json", "--quiet", *trained]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["buffer"]["bytes"] > 0
    assert result["pm"]["mean"] > (0.6 if head == "per-task" else 0.4)
