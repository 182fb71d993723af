"""Rules for data sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ergnn.data import UNLABELED, Graph, Split, TaskStream, splits
from ergnn.data.datasets import Dataset, DataUnavailable, PublicSplitUnavailable
from ergnn.data.datasets.storage import OFFLINE_VARIABLE
from ergnn.data.stream import METRICS
from ergnn.testing.rules import Broken, Skipped, Subject, offline, random_state, require, rule, run, same, unchanged


def check_dataset(dataset: str | Dataset | Callable[..., Dataset], **options: Any) -> None:
    """Check all rules for a data set, with downloads forbidden.

    Raises:
        Skipped: the files are not on disk, so that only the metadata could be checked.
    """
    run("dataset", dataset, options)


def _load(dataset: Dataset, split: str) -> Graph:
    """Load the graph, if its files are on disk."""
    with offline() as attempts:
        try:
            return dataset.load(split)
        except DataUnavailable as error:
            raise Skipped(f"{dataset.name}, {split} split: {error}") from error
        finally:
            require(not attempts, f"It tried to reach {attempts[0] if attempts else ''} with {OFFLINE_VARIABLE}=1.")


def _check_nodes(split: Split, graph: Graph) -> None:
    splits.check_split(split, graph.num_nodes)
    for role in ("train", "val", "test"):
        nodes = getattr(split, role)
        require(bool((graph.y[nodes] != UNLABELED).all()), f"A {role} node has no label.")
        require(role == "val" or nodes.numel() > 0, f"There are no {role} nodes.")


@rule("has metadata (names, counts, tasks and metric) without loading anything", "dataset")
def _dataset_facts(subject: Subject) -> None:
    dataset = subject.make()
    require(
        subject.name in (None, dataset.name), f"It is registered as {subject.name!r}; its name is {dataset.name!r}."
    )
    require(bool(dataset.title.strip()), "title is empty.")
    for fact in ("nodes", "features", "classes"):
        value = getattr(dataset, fact)
        require(isinstance(value, int) and value > 0, f"{fact} is {value!r}.")
    require(isinstance(dataset.edges, int) and dataset.edges >= 0, f"edges is {dataset.edges!r}.")
    names = dataset.class_names
    require(names is None or len(names) == dataset.classes, f"{len(names or ())} names for {dataset.classes} classes.")
    per_task = dataset.classes_per_task
    require(1 <= per_task <= dataset.classes, f"classes_per_task is {per_task}; there are {dataset.classes} classes.")
    require(dataset.metric in METRICS, f"metric is {dataset.metric!r}; choose one of: {', '.join(METRICS)}.")
    with offline() as attempts:
        require(bool(dataset.location().strip()), "location() is empty.")
    require(not attempts, "location() tried to reach a host.")


@rule("loads the graph that its metadata describe, and splits it by seed into disjoint, labeled parts", "dataset")
def _dataset_graph(subject: Subject) -> None:
    dataset = subject.make()
    graph = _load(dataset, "seeded").validate()
    source, target = graph.edge_index
    low, high = torch.minimum(source, target), torch.maximum(source, target)
    pairs = (low * graph.num_nodes + high)[low != high]
    counts = {
        "nodes": graph.num_nodes,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "edges": pairs.unique().numel(),
    }
    for fact, count in counts.items():
        require(count == getattr(dataset, fact), f"{fact} is {getattr(dataset, fact)}; the graph has {count}.")
    missing = set(range(dataset.classes)) - set(graph.y.unique().tolist())
    require(not missing, f"Class {min(missing, default=0)} has no nodes.")
    require(graph.name == dataset.name, f"The graph's name is {graph.name!r}.")
    _check_seeded_split(dataset, graph)


def _check_seeded_split(dataset: Dataset, graph: Graph) -> None:
    with unchanged("The state of a global random generator", random_state):
        split = dataset.seeded_split(graph, 0)
    _check_nodes(split, graph)
    again, other = dataset.seeded_split(graph, 0), dataset.seeded_split(graph, 1)
    require(same(split.train, again.train) and same(split.test, again.test), "Seed 0 gave two splits.")
    require(not same(split.train, other.train), "Seeds 0 and 1 gave the same training nodes.")
    TaskStream.from_classes(graph, classes_per_task=dataset.classes_per_task, split=split, metric=dataset.metric)


@rule("its public split is disjoint if it has one, and raises PublicSplitUnavailable if not", "dataset")
def _dataset_public(subject: Subject) -> None:
    dataset = subject.make()
    if dataset.public_split:
        graph = _load(dataset, "public")
        require(
            graph.public_split is not None, "public_split is True, but load('public') returned a graph without one."
        )
        assert graph.public_split is not None
        _check_nodes(graph.public_split, graph)
        return
    try:
        with offline():
            dataset.load("public")
    except PublicSplitUnavailable:
        return
    raise Broken("public_split is False, but load('public') did not raise.")
