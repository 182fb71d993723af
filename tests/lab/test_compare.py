"""``ergnn compare``: plans, equal memory, disjoint search, resumed stores, tables and third-party methods."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ergnn import Learner
from ergnn.cli.main import main
from ergnn.config.errors import InputError, UnknownNameError
from ergnn.data import DATASETS
from ergnn.lab.compare import Condition, Entry, compare, contenders, fit_memory, plan
from ergnn.lab.config import SEARCH_SEED, CompareOptions
from ergnn.lab.engines import GridRunner
from ergnn.lab.report.comparison import Group, benchmark_section, write_comparison
from ergnn.lab.store import RunStore
from ergnn.learning.resolve import default_options
from ergnn.methods import METHODS
from ergnn.testing import example_stream

METHODS_RUN = ("finetune", "replay", "replay:live", "gem", "analytic:statistics", "packnet", "nearest-mean")
RINGS = """
from pathlib import Path

import torch

from ergnn.data import DATASETS, Graph, PublicSplitUnavailable
from ergnn.data.datasets.base import Dataset


class Rings(Dataset):
    \"\"\"Four rings of 60 nodes; features are the ring of a node plus noise.\"\"\"

    name, title = "rings", "Rings"
    nodes, features, classes, edges = 240, 30, 4, 240
    bag_of_words = False
    noise = 0.5

    def load(self, split: str, root: Path | None = None) -> Graph:
        if split == "public":
            raise PublicSplitUnavailable("rings: no split was published")
        node = torch.arange(240)
        ring = node // 60
        following = ring * 60 + (node + 1) % 60
        noise = self.noise * torch.randn(240, 30, generator=torch.Generator().manual_seed(0))
        edges = torch.stack([torch.cat([node, following]), torch.cat([following, node])])
        return Graph(torch.eye(4).repeat(1, 8)[ring, :30] + noise, edges, ring, name=self.name)

    def location(self, root: Path | None = None) -> str:
        return "generated"
"""
OPTIONS = CompareOptions(
    *(METHODS_RUN, ("rings", "noisy"), ("task", "class"), ("all",)), seeds=2, class_orders=1, epochs=2, trials=2
)


@pytest.fixture(scope="module")
def rings() -> Iterator[None]:
    """Two small data sets by name."""
    scope: dict[str, Any] = {}
    exec(RINGS, scope)
    with pytest.MonkeyPatch.context() as patch:
        for name, noise in (("rings", 0.5), ("noisy", 1.5)):
            kind = type(name, (scope["Rings"],), {"name": name, "noise": noise})
            patch.setitem(DATASETS._entries, name, kind)
            patch.setitem(DATASETS._help, name, "rings")
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compared")


@pytest.fixture(scope="module")
def done(folder: Path, rings: None) -> list[Entry]:
    entries, left_out = compare(OPTIONS, GridRunner(folder))
    write_comparison(entries, left_out, folder, "ergnn compare …", quick=True)
    return entries


def of(done: list[Entry], method: str, dataset: str = "rings", scenario: str = "class") -> Entry:
    (entry,) = [e for e in done if (e.method, e.condition) == (method, Condition(dataset, scenario, "all"))]
    return entry


def test_unsupported_pairs_are_planned_with_a_reason_and_not_run(done: list[Entry]) -> None:
    assert len(done) == len(METHODS_RUN) * 4
    reasons = {(e.method, e.condition.scenario): e.reason for e in done if e.reason}
    reason = "method 'packnet' does not support head 'growing', as it must know the task of a node; choose one of: "
    reason += "shared, per-task"
    assert reasons == {("packnet", "class"): reason}
    assert all(len(e.runs) == 2 for e in done if not e.reason)


def test_memories_are_as_large_as_the_budget_allows(done: list[Entry]) -> None:
    for entry in done:
        if entry.sizes is not None:
            assert entry.ranked
            option, largest = entry.sizes
            size = entry.memory[option]
            assert size == largest or entry.nbytes * (size + 1) / size > 0.9 * entry.budget, (entry.method, size)
    replay, live = of(done, "replay"), of(done, "replay:live")
    assert replay.memory["replay"] == "ego"
    assert live.needs_graph
    assert not live.ranked
    assert live.nbytes == 4 * 6 * 16  # ids and labels of all training nodes


def test_the_search_uses_no_reported_seed_and_no_test_node(done: list[Entry], folder: Path) -> None:
    with RunStore(folder / "search.sqlite", create=False) as store:
        searched = store.runs()
    assert {run.seed for run in searched} == {run.order for run in searched} == {SEARCH_SEED + i for i in range(3)}
    trials = [run for run in searched if "score" in run.config]
    assert trials
    assert {(run.config["score"], run.config["first_tasks"], run.matrix.num_tasks) for run in trials} == {("val", 2, 2)}
    assert all(run.config["epochs"] == 1 for run in searched if "score" not in run.config)
    assert {run.seed for entry in done for run in entry.runs} == {0, 1}
    for entry in done:
        assert len(entry.trials) == (0 if entry.reason else 2)


def test_a_finished_comparison_resumes_without_runs_and_gives_the_same_tables(folder: Path, done: list[Entry]) -> None:
    with pytest.raises(InputError, match=r"contains \d+ finished runs; use --resume to continue"):
        GridRunner(folder)
    before = {path.name: path.read_bytes() for path in folder.glob("*.md")}
    runner = GridRunner(folder, resume=True)
    again = compare(OPTIONS, runner)
    assert not runner.outcomes
    write_comparison(*again, folder, "ergnn compare …", quick=True)
    assert {path.name: path.read_bytes() for path in folder.glob("*.md")} == before
    assert sorted(before) == ["benchmark.md", "details.md", "search.md"]
    more, _ = compare(replace(OPTIONS, seeds=3), GridRunner(folder, run=False))
    assert {entry.reason for entry in more if entry.method == "replay"} == {"1 runs are not finished"}


def test_tables_show_the_stored_runs(folder: Path, done: list[Entry]) -> None:
    text = (folder / "benchmark.txt").read_text(encoding="utf-8")
    details = (folder / "details.md").read_text(encoding="utf-8")
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    entry = of(done, "analytic:statistics")
    values = [100 * float(np.mean(run.matrix.values[-1])) for run in entry.runs]
    assert f"{np.mean(values):.2f} (n = 2)" in text
    assert " replay:live + graph " in text
    assert "packnet is left out on rings, noisy: method 'packnet' does not support head 'growing'" in text
    assert "QUICK" in text
    assert f"{entry.nbytes:,.0f}" in details
    (row,) = [r for r in results["entries"] if (r["method"], r["dataset"], r["scenario"]) == (*OURS, "class")]
    assert row["aa"]["mean"] == pytest.approx(np.mean(values) / 100)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count('<svg class="figure') == 1
    assert "analytic:statistics" in page
    assert "https://" not in page


OURS = ("analytic:statistics", "rings")


def test_the_overview_has_the_gap_to_our_method_of_every_other_one(folder: Path, done: list[Entry]) -> None:
    text = (folder / "overview.svg").read_text(encoding="utf-8")
    panels = text.split("<svg ")[2:]
    marks = [re.findall(r'c-\w+( alt)?"><circle class="mark" cx="([\d.]+)" [^>]*data-tip="([^"]+)"', p) for p in panels]
    others = [e for e in done if e.runs and e.method != "analytic:statistics"]
    assert len(panels) == 2
    assert sum(map(len, marks)) == len(others)
    for entry in others:
        ours = of(done, "analytic:statistics", entry.condition.dataset, entry.condition.scenario)
        mean, own = (100 * np.mean([np.mean(run.matrix.values[-1]) for run in e.runs]) for e in (entry, ours))
        tip = f"{entry.method}, {entry.condition.dataset}: {mean - own:+.1f}"
        assert (" alt" if not entry.ranked else "", tip) in {(alt, shown) for panel in marks for alt, _, shown in panel}
    for panel, drawn in zip(panels, marks, strict=True):  # worse is left of the line
        (zero,) = (float(x) for x in re.findall(r'class="zero" d="M([\d.]+) ', panel))
        assert all((float(x) - zero) * float(shown.rsplit(" ", 1)[1]) >= 0 for _, x, shown in drawn)


def test_micro_accuracy_counts_every_test_node_once(done: list[Entry]) -> None:
    entry = of(done, "nearest-mean")
    run = entry.runs[0]
    sizes = [record["test_nodes"] for record in run.history]
    correct = [n * a for n, a in zip(sizes, run.matrix.values[-1], strict=True)]
    assert sum(sizes) == 192  # 80 % of the nodes
    assert entry.result.by_member("micro")[run.seed, run.order] == pytest.approx(sum(correct) / 192)
    assert correct == pytest.approx(np.rint(correct))


def fake_entry(method: str, dataset: str, scores: list[float], done: list[Entry], nbytes: int = 0) -> Entry:
    """An entry whose runs have the given AA."""
    like, runs = of(done, "nearest-mean", dataset), []
    for seed, score in enumerate(scores):
        matrix = type(like.runs[0].matrix)(np.full((2, 2), score))
        runs.append(replace(like.runs[0], seed=seed, matrix=matrix, buffer_bytes=nbytes, seconds=1.0))
    return replace(like, method=method, runs=runs, budget=100)


def test_better_rivals_are_named_and_only_methods_within_the_budget_are_ranked(done: list[Entry]) -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(0.7, 0.02, 12)
    entries = [
        fake_entry(method, dataset, (base + shift).tolist(), done, nbytes)
        for dataset in ("rings", "noisy")
        for method, shift, nbytes in (
            ("analytic:statistics", 0.0, 90),
            ("rival", 0.05, 100),
            ("worse", -0.05, 10),
            ("large", 0.1, 101),
        )
    ]
    group = Group("class", "all", entries)
    assert list(group.ranking.names) == ["rival", "analytic:statistics", "worse"]
    assert group.methods[-1] == "large"
    assert group.pareto == {"rival", "worse", "analytic:statistics", "large"}
    text = benchmark_section(group).render("text")
    assert "better than analytic:statistics at equal bytes: rival on rings (+5.00 ± 0.00), rival on noisy" in text
    cells = {line.split()[0]: line for line in text.splitlines() if "│" in line}
    assert cells["rival"].count("▲") == cells["worse"].count("▼") == cells["large"].count("!") == 2
    assert not any(mark in cells["analytic:statistics"] for mark in "▲▼!")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"methods": ["nope"]}, "unknown method 'nope'"),
        ({"methods": ["replay:nope"]}, "unknown variant 'replay:nope'.*; choose one of: replay"),
        ({"datasets": ["nope"]}, "unknown dataset 'nope'"),
        ({"scenarios": ["nope"]}, "unknown scenario 'nope'"),
        ({"edges": ["nope"]}, "unknown edges 'nope'"),
        ({"backbone": "nope"}, "unknown backbone 'nope'"),
        ({"trials": 0}, "trials is 0; it must be 1 or more"),
        ({"first_seed": SEARCH_SEED}, "seeds must be 0 to 999999"),
    ],
)
def test_unknown_names_are_refused_before_any_work(given: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message):
        plan(CompareOptions(**given))


def test_every_method_declares_a_space_of_its_own_options() -> None:
    for name in METHODS.names():
        kind = METHODS.get(name)
        for option, values in kind.comparison.search.items():
            for value in values:
                METHODS.create(name, **{option: value})
        for options in kind.comparison.variants.values():
            METHODS.create(name, **options)
    assert {"replay", "replay:live", "analytic", "analytic:statistics"} <= set(contenders(None))
    assert "er-ace:live" not in contenders(None)  # a variant of its base class


@pytest.mark.parametrize("label", sorted(contenders(None)))
def test_bytes_count_all_tensors_that_a_method_keeps(label: str) -> None:
    """All tensors in the state, except for scores and for what follows from other parts of it."""
    name, variant = contenders([label])[label]
    known = default_options(name)
    mode = {"replay": "ego"} if "replay" in known and "replay" not in variant else {}
    head = "per-task" if "per-task" in METHODS.get(name).supported_heads else "growing"
    learner = Learner(method=METHODS.create(name, **variant, **mode), head=head, backbone="gcn", epochs=2)
    for task in example_stream():
        learner.observe(task)

    def kept(value: Any) -> int:
        if isinstance(value, torch.Tensor):
            return value.numel() * value.element_size()
        if isinstance(value, dict):  # ranks of nodes, hidden labels of neighbors, and the parameters of a head
            return sum(kept(part) for key, part in value.items() if key not in ("scores", "y", "solution"))
        return sum(map(kept, value)) if isinstance(value, list | tuple) else 0

    state = learner.method.state_dict()
    if name == "analytic" and not (state["kept"] or state["statistics"]):
        del state["scales"]  # of columns of the graph at hand
    synthetic = kept(state["y"]) if "y" in state else 0
    assert learner.method.nbytes >= kept(state) + synthetic


PLUGIN = '''
from ergnn.methods import METHODS
from ergnn.methods.replay import Finetune

@METHODS.register("my-method", help="finetuning with memory of its own")
class Mine(Finetune):
    """Finetuning.

    Args:
        per_class: rows to keep.
    """

    search = {"speed": (1, 2)}

    def __init__(self, per_class: int = 1, speed: int = 1) -> None:
        self.per_class = per_class

    @property
    def nbytes(self) -> int:
        return 1000 * self.per_class
'''


@pytest.mark.usefixtures("rings", "_plugins_are_forgotten")
def test_a_users_method_joins_by_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN, encoding="utf-8")
    out = tmp_path / "out"
    words = f"compare --import {tmp_path / 'mine.py'} --methods my-method,finetune --datasets rings --scenarios class"
    words += f" --edges own --seeds 2 --class-orders 1 --epochs 1 --trials 2 --budget 7500 --jobs 1 --out {out} --quiet"
    assert main(words.split()) == 0
    assert "my-method" in capsys.readouterr().out
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    (row,) = [row for row in results["entries"] if row["method"] == "my-method"]
    assert (row["memory"], row["bytes"], row["runs"]) == ({"per_class": 6}, 6000.0, 2)
    assert len(row["trials"]) == 2
    assert main([*words.split(), "--no-run"]) == 0


def test_the_smallest_memory_is_used_if_nothing_fits() -> None:
    entry = Entry(Condition("cora", "class", "all"), "replay", None, budget=10, sizes=("per_class", 5))
    entry.modes = ({"replay": "ego"}, {"replay": "isolated"})
    search = fit_memory(entry)
    assert next(search) == {"replay": "ego", "per_class": 1}
    assert search.send(100) == {"replay": "isolated", "per_class": 1}
    with pytest.raises(StopIteration) as end:
        search.send(11)
    assert end.value.value == {"replay": "isolated", "per_class": 1}


def test_with_a_preset_of_networks_all_trained_methods_search_widths_and_joint_training_keeps_its_best_epoch() -> None:
    split = "0.6/0.2/0.2"
    options = CompareOptions(["joint", "replay", "slda"], ["cora"], ["class"], ["all"], network="tuned", split=split)
    joint, replay, slda = plan(options)[0]
    for entry, best in ((joint, True), (replay, False)):
        learner = entry.config.resolved().learner
        assert (learner.best_epoch, learner.lr, entry.config.split) == (best, 0.001, split)
        widths = entry.space["backbone_options"]
        assert learner.backbone_options == widths[0]
        assert [one["hidden"] for one in widths] == [64, 128, 256]
        assert entry.resolved({"backbone_options": widths[1]}).learner.backbone_options["layers"] == 3
    assert "backbone_options" not in slda.space
    with pytest.raises(InputError, match="network"):
        CompareOptions(network="huge").check()
