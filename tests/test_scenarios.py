"""Every method in a scenario that it supports, and selectors of each family, from the command line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ergnn.cli.main import main
from ergnn.config.learner_config import SCENARIOS
from ergnn.data import DATASETS, Graph, PublicSplitUnavailable
from ergnn.data.datasets.base import Dataset, PartedDataset
from ergnn.methods import METHODS
from ergnn.testing.examples import FEATURES, example_graph

PER_CLASS = 60


class Tiny(Dataset):
    """A small random graph of six classes."""

    name, title = "tiny", "Tiny"
    nodes, features, classes, edges = 6 * PER_CLASS, FEATURES, 6, 1_000
    bag_of_words = False

    def load(self, split: str, root: Path | None = None) -> Graph:
        if split == "public":
            raise PublicSplitUnavailable("no split was published")
        graph = example_graph(per_class=PER_CLASS)
        return Graph(graph.x, graph.edge_index, graph.y, name=self.name)

    def location(self, root: Path | None = None) -> str:
        return "generated"


class TinyDomains(Tiny, PartedDataset):
    """The same graph with three domains."""

    name, title = "tiny-domains", "Tiny domains"
    scenarios = ("domain",)
    num_tasks = 3  # type: ignore[assignment]

    def parts(self) -> Tensor:
        return torch.arange(self.nodes) % 3


class TinyYears(TinyDomains):
    """The same graph with three periods."""

    name, title = "tiny-years", "Tiny years"
    scenarios = ("time",)


DATA = {"domain": "tiny-domains", "time": "tiny-years"}
"""The data set of a scenario; by default ``tiny``."""


@pytest.fixture(scope="module", autouse=True)
def _tiny_data_sets() -> Iterator[None]:
    for dataset in (Tiny, TinyDomains, TinyYears):
        DATASETS.register(dataset.name)(dataset)
    yield
    for dataset in (Tiny, TinyDomains, TinyYears):
        del DATASETS._entries[dataset.name]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = main(["run", *words, "--seeds", "1", "--json", "--quiet"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    result: dict[str, Any] = json.loads(printed.out)
    return result


def runs() -> list[tuple[str, str]]:
    """Every method in one scenario that it supports, which scenarios take in turns; two methods in every scenario.

    The contract of methods (tests/test_contracts.py) crosses them with heads and with classes that come again.
    """
    pairs = []
    for number, method in enumerate(METHODS):
        heads = METHODS.get(method).supported_heads
        supported = [scenario for scenario, preset in SCENARIOS.items() if preset["head"] in heads]
        if method not in ("replay", "analytic"):
            supported = [supported[number % len(supported)]]
        pairs += [(method, scenario) for scenario in supported]
    return pairs


@pytest.mark.parametrize(("method", "scenario"), runs())
def test_methods_run_in_their_scenarios(method: str, scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [DATA.get(scenario, "tiny"), "--method", method, "--scenario", scenario]
    words += [] if "epochs" in METHODS.create(method).unused_settings else ["--epochs", "2"]
    result = run(capsys, *words)
    assert (result["scenario"], result["head"]) == (scenario, SCENARIOS[scenario]["head"])
    assert result["edges"] == SCENARIOS[scenario].get("edges", "all")
    assert len(result["matrix"]) == 3
    seen = {c for classes in result["runs"][0]["classes"] for c in classes}
    repeated = sum(len(classes) for classes in result["runs"][0]["classes"]) > len(seen)
    assert repeated == (scenario in ("domain", "time", "blurred"))


@pytest.mark.parametrize("selector", ["cm", "herding", "im", "s2-ridge"])
def test_selectors_run_where_a_class_has_few_nodes(selector: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tiny", "--selector", selector, "--per-class", "2", "--scenario", "blurred", "--epochs", "2"]
    result = run(capsys, *words, "--backbone", "gcn", "--class-balance", "none")
    assert result["selector"] == selector
    assert result["buffer"]["nodes"] >= 12


def test_a_data_set_with_one_scenario_uses_it_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    result = run(capsys, "tiny-years", "--method", "nearest-mean")
    assert (result["scenario"], result["head"], result["edges"]) == ("time", "growing", "seen")


def test_edges_are_always_shown_and_own_edges_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    for edges, dataset, marked in (("all", "tiny", False), ("own", "tiny", True), ("own", "tiny-years", False)):
        assert main(["run", dataset, "--method", "nearest-mean", "--seeds", "1", "--edges", edges, "--quiet"]) == 0
        printed = capsys.readouterr().out
        assert f"{edges} edges" in printed
        assert ("OWN EDGES (edges between tasks are left out, which reveals label" in printed) == marked


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("tiny --scenario class --method packnet", "method 'packnet' does not support head 'growing'"),
        ("tiny --scenario time", "tiny does not support scenario 'time'; choose one of: task, class, blurred"),
        ("tiny-years --scenario task", "tiny-years does not support scenario 'task'; choose one of: time"),
        (
            "tiny --scenario blurred --leftover context",
            "leftover is 'context', which has no effect in scenario 'blurred'",
        ),
        ("tiny-domains --classes-per-task 2", "classes_per_task is 2, but tiny-domains is not split by class; omit it"),
        ("tiny-domains --class-order 0,1", "class_order is [0, 1]; it must have each domain, 0 to 2, once"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--method", "nearest-mean", *words.split()]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert len(printed.strip().splitlines()) == 1
