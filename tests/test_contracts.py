"""The contract suite on all registered entries, and on entries that violate it on purpose."""

import random
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from ergnn import testing
from ergnn.config.errors import InputError, UnknownNameError
from ergnn.data import DATASETS, Graph, PublicSplitUnavailable, Split, Task
from ergnn.data.datasets import Dataset, DataUnavailable
from ergnn.learning.learner import Learner
from ergnn.methods import Method
from ergnn.methods.replay import Finetune, Replay
from ergnn.nn.backbones import Backbone
from ergnn.nn.backbones.convolutional import GCN, SGC
from ergnn.nn.examples import Examples
from ergnn.replay import Selection, SelectionContext, Selector
from ergnn.replay.selectors import best_per_class
from ergnn.replay.selectors.baselines import Random
from ergnn.replay.selectors.distances import FeatureMean
from ergnn.testing import Skipped, check_backbone, check_dataset, check_method, check_selector, checks

SMALLER: dict[str, dict[str, Any]] = {"citation-domains": {"width": 16}}
"""Options with which an entry takes less time."""
CHECKS = {"selector": check_selector, "backbone": check_backbone, "method": check_method, "dataset": check_dataset}


# --- everything that is registered -----------------------------------------------------------------------


LARGE = ("citation-domains", "coauthor-cs", "twitch")
"""Data sets that take long to read; tests/data checks their readers on small files."""


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, name, marks=pytest.mark.slow if name in LARGE else ())
        for kind, (registry, _) in testing.KINDS.items()
        for name in registry
    ],
)
def test_registered_entries_satisfy_their_contract(kind: str, name: str) -> None:
    CHECKS[kind](name, **SMALLER.get(name, {}))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("replay", {"replay": "isolated", "per_class": 2, "selector": "cm", "beta": 0.3}),
        ("replay", {"replay": "ego", "selector": "random"}),
        ("derpp", {"replay": "ego", "per_class": 2}),
        ("ewc", {"lam": 1000.0, "fisher_samples": 5}),
        ("gem", {"margin": 0.5, "replay": "isolated", "per_class": 2}),
        ("agem", {"sample": 3, "replay": "ego"}),
    ],
    ids=str,
)
def test_methods_satisfy_the_rules_of_memory_with_other_options(name: str, options: dict[str, Any]) -> None:
    for check in checks("method"):
        if check.rule.startswith(("trains on weighted", "its state_dict is a snapshot")):
            check(name, **options)


# --- how the checks are called ---------------------------------------------------------------------------


def test_a_check_takes_a_name_a_class_a_function_or_an_instance() -> None:
    check = checks("selector")[2]
    for thing in ("mf", FeatureMean, lambda: FeatureMean("cosine"), FeatureMean(normalize=True)):
        check(thing)
    check(FeatureMean, distance="cosine")


def test_a_check_rejects_invalid_subjects() -> None:
    with pytest.raises(UnknownNameError, match="unknown selector 'nope'"):
        check_selector("nope")
    with pytest.raises(InputError, match="check_backbone got GCN"):
        check_backbone(GCN(testing.FEATURES))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="check_method got int"):
        check_method(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="already an instance"):
        check_selector(FeatureMean(), distance="cosine")
    with pytest.raises(InputError, match="unknown kind 'head'"):
        checks("head")


def test_checks_do_not_change_global_random_state() -> None:
    torch.manual_seed(0)
    random.seed(0)
    wanted = torch.rand(3), random.random()
    torch.manual_seed(0)
    random.seed(0)
    check_selector("random")
    assert torch.equal(torch.rand(3), wanted[0])
    assert random.random() == wanted[1]


# --- selectors that break it -----------------------------------------------------------------------------


def broken(base: type, **members: Any) -> type:
    """A subclass that breaks a rule."""
    return type("Broken", (base,), members)


def like_random(change: Callable[[Selection, SelectionContext], Selection]) -> type:
    """A selector that changes a random choice."""
    return broken(Random, select=lambda self, context: change(Random.select(self, context), context))


def scored_by(score: Callable[[SelectionContext], Tensor]) -> type:
    return broken(Selector, score=lambda self, context: score(context))


class Peeks(Selector):
    """Reads test labels behind the context's back."""

    def score(self, context: SelectionContext) -> Tensor:
        graph, test = context.graph, context.task.test
        first = graph.rows(test[graph.y[test] == context.task.classes[0]]).mean(0)
        return -(graph.rows(context.nodes) - first).norm(dim=1)


class Trains(FeatureMean):
    def score(self, context: SelectionContext) -> Tensor:
        with torch.no_grad():
            next(context.model.parameters()).add_(1.0)
        return super().score(context)


class Writes(FeatureMean):
    def score(self, context: SelectionContext) -> Tensor:
        score = super().score(context)
        if not context.graph.is_sparse:
            context.graph.x.mul_(2.0)
        return score


class DrawsWhenMade(FeatureMean):
    def __init__(self) -> None:
        super().__init__()
        self.offset = torch.rand(1)


class Reseeds(Selector):
    def __init__(self) -> None:
        self.calls = 0

    def score(self, context: SelectionContext) -> Tensor:
        self.calls += 1
        return torch.rand(context.nodes.numel(), generator=torch.Generator().manual_seed(self.calls))


class FirstOfTies(FeatureMean):
    """The order of the list decides between equal nodes."""

    def select(self, context: SelectionContext) -> Selection:
        order = -torch.arange(context.nodes.numel()).double()
        return best_per_class(self.score(context).double() + 1e-9 * order, context)


CHOICE, PURE = "chooses e different training nodes", "does not modify the model, the graph"


@pytest.mark.parametrize(
    ("selector", "rule", "seen"),
    [
        (like_random(lambda s, c: replace(s, nodes=c.task.test[:1])), CHOICE, "not a training node of the task (test)"),
        (
            like_random(lambda s, _: Selection(s.nodes[:-1], s.scores[:-1])),
            CHOICE,
            "With e = 1 and classes (2, 3) the chosen nodes' classes are [2]",
        ),
        (
            like_random(lambda s, _: replace(s, nodes=s.nodes[:1].expand(s.nodes.numel()))),
            CHOICE,
            "A node was chosen twice",
        ),
        (like_random(lambda s, context: replace(s, info={"nodes": context.nodes})), CHOICE, "raised TypeError"),
        (scored_by(lambda context: context.nodes + context.split("test").numel()), CHOICE, "raised LeakageError"),
        (Peeks, "does not use test labels unless it is leaky", "Different test labels"),
        (broken(FeatureMean, leaky="sometimes"), "leaky is a bool", "leaky is 'sometimes'"),
        (Trains, PURE, "The model changed"),
        (Writes, PURE, "The graph changed"),
        (scored_by(lambda context: torch.rand(context.nodes.numel())), PURE, "global random generator changed"),
        (
            scored_by(lambda context: torch.from_numpy(np.random.rand(context.nodes.numel()))),  # noqa: NPY002
            PURE,
            "global random generator changed",
        ),
        (DrawsWhenMade, "its constructor only stores", "drew random numbers"),
        (Reseeds, "same choice for the same seed", "After another selection"),
        (scored_by(lambda c: -c.nodes.double()), "does not depend on the numbering of nodes", "With nodes renumbered"),
        (FirstOfTies, "breaks ties by seed", "eight seeds gave the same choice"),
        (type("Other", (), {}), "its constructor only stores", "does not derive from Selector"),
    ],
)
def test_a_broken_selector_is_caught(selector: type, rule: str, seen: str) -> None:
    assert_broken("selector", selector, rule, seen)


def test_a_leaky_selector_may_use_test_labels() -> None:
    check_selector(broken(Peeks, leaky=True))


def assert_broken(kind: str, thing: type, rule: str, seen: str) -> None:
    (check,) = [check for check in checks(kind) if rule in check.rule]
    with pytest.raises(AssertionError) as caught:
        check(thing)
    message = str(caught.value)
    assert message.startswith(f"{kind} {thing.__name__} breaks the rule {check.rule!r}. ")
    assert seen in message


# --- backbones that break it -----------------------------------------------------------------------------


def embeds(change: Callable[[Callable[..., Tensor], Tensor, Tensor], Tensor], **members: Any) -> type:
    """A GCN with other embeddings, computed from its own function, features and edges."""
    return broken(GCN, embed=lambda self, x, adj: change(partial(GCN.embed, self), x, adj), **members)


class WrongSize(GCN):
    def __init__(self, in_channels: int, out_channels: int | None = None) -> None:
        super().__init__(in_channels, out_channels)
        self.embedding_size = 17

    def make_head(self, out_channels: int) -> nn.Module:
        return GCNConv(16, out_channels)


class DividesByDegree(GCN):
    def forward(self, x: Tensor, adj: Tensor, head: int = 0) -> Tensor:
        degree = torch.bincount(adj[1], minlength=x.size(0)).unsqueeze(1)
        return super().forward(x, adj, head) / degree


class Idle(GCN):
    def __init__(self, in_channels: int, out_channels: int | None = None) -> None:
        super().__init__(in_channels, out_channels)
        self.unused = nn.Parameter(torch.ones(3))


class BatchNormed(Backbone):
    def __init__(self, in_channels: int, out_channels: int | None = None) -> None:
        super().__init__(out_channels, [nn.Linear(in_channels, 8)], nn.BatchNorm1d(8), 0.0, 8)

    def make_head(self, out_channels: int) -> nn.Module:
        return nn.Linear(8, out_channels)


class Seedless(SGC):
    def make_head(self, out_channels: int) -> nn.Module:
        head = nn.Linear(self.embedding_size, out_channels)
        nn.init.normal_(head.weight, generator=torch.Generator().manual_seed(random.SystemRandom().getrandbits(32)))
        return head


@pytest.mark.parametrize(
    ("backbone", "rule", "seen"),
    [
        (WrongSize, "gives scores [n, out_channels]", "embed() has shape (90, 16); embedding_size is 17"),
        (
            broken(GCN, add_head=lambda self, width: self.heads.append(self.make_head(width))),
            "gives scores [n, out_channels]",
            "head_widths are []",
        ),
        (DividesByDegree, "finite scores on isolated nodes", "With isolated nodes a score is not finite"),
        (
            embeds(lambda embed, x, adj: F.dropout(embed(x, adj), 0.5, training=True)),
            "gives scores [n, out_channels]",
            "Head 0 is not the default",
        ),
        (Idle, "learns a stream with every head", "unused was not trained"),
        (
            embeds(lambda embed, x, adj: embed(x + torch.arange(len(x), dtype=x.dtype).unsqueeze(1) / len(x), adj)),
            "does not depend on the numbering of nodes",
            "With nodes renumbered",
        ),
        (
            embeds(lambda embed, x, adj: embed(x - x.mean(0), adj)),
            "only on its own component",
            "In evaluation they change",
        ),
        (BatchNormed, "a forward pass does not modify it", "In training, parameters or buffers changed"),
        (
            embeds(lambda embed, x, adj: 2.0 * embed(x, adj), runs_on_fields=True),
            "the same function on receptive fields",
            "embed() differs",
        ),
        (Seedless, "depends on torch's seed alone", "The same seed gave different parameters"),
    ],
)
def test_a_broken_backbone_is_caught(backbone: type, rule: str, seen: str) -> None:
    assert_broken("backbone", backbone, rule, seen)


# --- methods that break it -------------------------------------------------------------------------------


def examples_of(change: Callable[[Examples, Task], Examples], base: type[Method] = Finetune) -> type:
    """A method that changes the examples of another."""
    return broken(base, examples=lambda self, learner, task: change(base.examples(self, learner, task), task))


class LearnsFromVal(Finetune):
    def examples(self, learner: Learner, task: Task) -> Examples:
        nodes = torch.cat([task.train, task.val])
        return learner.examples(task.graph, nodes, task.id).weighted(1.0 / nodes.numel())


def weighted_by_test(examples: Examples, task: Task) -> Examples:
    """Weight training nodes by the number of test nodes of their class."""
    y = task.graph.y
    near = (y[task.train].unsqueeze(1) == y[task.test[:3]]).float().sum(1) + 1
    return examples.weighted(near / near.sum())


class SharesMemory(Finetune):
    seen: ClassVar[list[int]] = []

    def examples(self, learner: Learner, task: Task) -> Examples:
        self.seen.append(task.id)
        return super().examples(learner, task).weighted(1.0 / len(self.seen))


class Neighbor(Finetune):
    """Weights a task by what the last learner of this process was."""

    last: ClassVar[list[int]] = [0]

    def examples(self, learner: Learner, task: Task) -> Examples:
        weight = 1.0 + (self.last[0] != learner.seed)
        self.last[0] = learner.seed
        return super().examples(learner, task).weighted(weight)


class Counts(Finetune):
    """Does otherwise at every task, without saving how many there were."""

    def __init__(self) -> None:
        self.count = 0

    def examples(self, learner: Learner, task: Task) -> Examples:
        self.count += 1
        return super().examples(learner, task).weighted(0.1 * self.count)


class GivesItsOwnList(Counts):
    """Hands out its state by reference."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[int] = []

    def after_task(self, learner: Learner, task: Task, trained_on: Examples) -> dict[str, Any]:
        self.counts.append(self.count)
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"counts": self.counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.counts = list(state["counts"])
        self.count = len(self.counts)


class GuessesTheTaskOfAll(Finetune):
    """Predicts all nodes of a call with the head of the one task that scores highest on average."""

    supported_heads = ("growing",)

    def scorer(self, learner: Learner, graph: Graph, task: int | None) -> Any:
        scores_of, classes = super().scorer(learner, graph, task), learner.classes(task).tolist()
        columns = [[classes.index(c) for c in learner.classes(i).tolist()] for i in range(learner.num_tasks)]

        def score(nodes: Tensor) -> Tensor:
            scores = scores_of(nodes)
            best = max(columns, key=lambda of_task: float(scores[:, of_task].max(1).values.mean()))
            others = [i for i in range(len(classes)) if i not in best]
            return scores.index_fill(1, torch.tensor(others, dtype=torch.long), -1e9)

        return score


MEMORY, EXAMPLES = "its state_dict is a snapshot", "trains on weighted training nodes"


@pytest.mark.parametrize(
    ("method", "rule", "seen"),
    [
        (examples_of(lambda given, _: given.weighted(-1.0)), EXAMPLES, "weights must be finite, 0 or more"),
        (
            examples_of(lambda given, _: given[torch.arange(len(given)).flip(0)], Replay),
            EXAMPLES,
            "the first examples are not the task's training nodes",
        ),
        (LearnsFromVal, EXAMPLES, "is not a training node of this or an earlier task"),
        (examples_of(weighted_by_test), "does not use test labels", "Different test labels gave a different result"),
        (SharesMemory, "gives the same bits for the same seed", "A second run with the same seed"),
        (Neighbor, "shares nothing between learners", "when another one learned at the same time"),
        (Counts, MEMORY, "A resumed run gave a different result"),
        (GivesItsOwnList, MEMORY, "changed during later learning"),
        (GuessesTheTaskOfAll, "predicts each node on its own", "predicted alone has other probabilities"),
        (broken(Finetune, state_dict=lambda self: {"object": Path("object")}), MEMORY, "It raised UnpicklingError"),
        (
            examples_of(lambda given, _: given.weighted(torch.rand(len(given)))),
            "does not touch global random generators",
            "global random generator changed",
        ),
        (
            broken(Finetune, after_task=lambda self, learner, task, trained_on: {"nodes": trained_on.nodes}),
            "learns three tasks with every kind of head",
            "It raised TypeError",
        ),
        (
            examples_of(lambda given, _: replace(given, heads=given.heads[:, :1])),
            "its loss is one finite value per example",
            "It raised IndexError",
        ),
    ],
)
def test_a_broken_method_is_caught(method: type, rule: str, seen: str) -> None:
    assert_broken("method", method, rule, seen)


# --- data sets -------------------------------------------------------------------------------------------


class Ring(Dataset):
    """A ring of 60 nodes, made on the spot."""

    name = "ring"
    title = "Ring"
    nodes, features, classes, edges = 60, 3, 3, 60
    bag_of_words = False
    classes_per_task = 1

    def load(self, split: str, root: Path | None = None) -> Graph:
        if split == "public":
            raise PublicSplitUnavailable("nobody published a split of the ring")
        node = torch.arange(self.nodes)
        there = torch.stack([node, (node + 1) % self.nodes])
        y = node % 3
        return Graph(F.one_hot(y, 3).float(), torch.cat([there, there.flip(0)], 1), y, name=self.name)

    def location(self, root: Path | None = None) -> str:
        return "made on the spot"

    def seeded_split(self, graph: Graph, seed: int) -> Split:
        order = torch.randperm(self.nodes, generator=torch.Generator().manual_seed(seed))
        return Split(order[:20], order[20:30], order[30:])


class Fetches(Ring):
    """Downloads although that is forbidden, and hides the failure."""

    def load(self, split: str, root: Path | None = None) -> Graph:
        try:
            socket.create_connection(("data.example", 443))
        except OSError as error:
            raise DataUnavailable("no network") from error
        return super().load(split, root)


class Absent(Ring):
    def load(self, split: str, root: Path | None = None) -> Graph:
        if split == "public":
            return super().load(split, root)
        raise DataUnavailable("ring: the files are elsewhere")


def overlapping(self: Ring, graph: Graph, seed: int) -> Split:
    given = Ring.seeded_split(self, graph, seed)
    return Split(given.train, given.train, given.test)


def any_split(self: Ring, split: str, root: Path | None = None) -> Graph:
    return Ring.load(self, "seeded", root)


GRAPH = "loads the graph that its metadata describe"


@pytest.mark.parametrize(
    ("dataset", "rule", "seen"),
    [
        (broken(Ring, edges=61), GRAPH, "edges is 61; the graph has 60"),
        (broken(Ring, class_names=("a", "b")), "has metadata", "2 names for 3 classes"),
        (broken(Ring, seeded_split=overlapping), GRAPH, "is in train and val"),
        (
            broken(Ring, seeded_split=lambda self, graph, seed: Ring.seeded_split(self, graph, 0)),
            GRAPH,
            "Seeds 0 and 1 gave the same training nodes",
        ),
        (broken(Ring, load=any_split), "its public split", "load('public') did not raise"),
        (broken(Ring, load=any_split, public_split=True), "its public split", "returned a graph without one"),
        (Fetches, GRAPH, "It tried to reach ('data.example', 443)"),
    ],
)
def test_a_broken_data_set_is_caught(dataset: type, rule: str, seen: str) -> None:
    assert_broken("dataset", dataset, rule, seen)


def test_a_valid_custom_data_set_passes() -> None:
    check_dataset(Ring)
    check_dataset(Ring())


def test_a_data_set_that_is_not_on_disk_is_skipped_with_the_reason() -> None:
    with pytest.raises(Skipped, match=r"ring, seeded split: ring: the files are elsewhere"):
        check_dataset(Absent)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [("circle", "a ring", "registered as 'circle'; its name is 'ring'"), ("ring", "", "help= is empty")],
)
def test_a_registered_data_set_has_its_name_and_a_help_text(
    name: str, text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DATASETS._entries, name, Ring)
    monkeypatch.setitem(DATASETS._help, name, text)
    with pytest.raises(AssertionError, match=message):
        check_dataset(name)
