"""Rules for selectors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from ergnn.nn.heads import HEADS
from ergnn.replay import Selection, SelectionContext, Selector
from ergnn.testing.examples import example_context, example_stream, in_graph, relabeled, scrambled
from ergnn.testing.rules import Subject, random_state, require, rule, run, same, unchanged


def check_selector(selector: str | Selector | Callable[..., Selector], **options: Any) -> None:
    """Check all rules for a selector; ``options`` go to the constructor."""
    run("selector", selector, options)


def _select(subject: Subject, context: SelectionContext) -> Selection:
    selector = subject.make()
    return selector.select(replace(context, allow_test=selector.leaky))


@rule("chooses e different training nodes of each class of the task, grouped by class", "selector")
def _selector_choice(subject: Subject) -> None:
    for sparse in (False, True):
        for classes in (2, 3):
            context = example_context(sparse=sparse, classes_per_task=classes, head=HEADS[classes + sparse - 2])
            for e in (1, 2, 6):
                _check_choice(_select(subject, replace(context, per_class=e)), replace(context, per_class=e))


def _check_choice(selection: Selection, context: SelectionContext) -> None:
    task, e = context.task, context.per_class
    require(isinstance(selection, Selection), f"select() returned {type(selection).__name__}, not a Selection.")
    nodes = selection.nodes
    require(nodes.dtype == torch.long and nodes.dim() == 1, f"nodes are {nodes.dtype} of shape {tuple(nodes.shape)}.")
    stray = nodes[~torch.isin(nodes, task.train)].tolist()
    where = [role for role in ("val", "test") if stray and stray[0] in getattr(task, role).tolist()]
    require(not stray, f"Node {stray[:1]} is not a training node of the task ({where[0] if where else 'elsewhere'}).")
    require(nodes.unique().numel() == nodes.numel(), f"A node was chosen twice: {nodes.tolist()}.")
    wanted = [c for c in task.classes for _ in range(e)]
    given = context.graph.y[nodes].tolist()
    require(given == wanted, f"With e = {e} and classes {task.classes} the chosen nodes' classes are {given}.")
    require(selection.scores.shape == nodes.shape, f"scores have shape {tuple(selection.scores.shape)}.")
    require(bool(torch.isfinite(selection.scores).all()), f"A score is not finite: {selection.scores.tolist()}.")
    json.dumps(selection.info)


@rule("does not modify the model, the graph, the task or global random generators", "selector")
def _selector_pure(subject: Subject) -> None:
    context = example_context(per_class=2)
    task, graph = context.task, context.graph
    with (
        unchanged("The model", context.model.state_dict),
        unchanged("The graph", lambda: [graph.x, graph.edge_index, graph.y]),
        unchanged("The task", lambda: [task.train, task.val, task.test]),
        unchanged("The state of a global random generator", random_state),
    ):
        _select(subject, context)


@rule("makes the same choice for the same seed, independent of earlier choices", "selector")
def _selector_deterministic(subject: Subject) -> None:
    context = example_context(per_class=2)
    torch.manual_seed(1)
    first = _select(subject, context)
    torch.manual_seed(2)
    require(same(first.nodes, _select(subject, context).nodes), "A second instance made a different choice.")
    used = subject.make()
    used.select(replace(example_context(classes_per_task=3), allow_test=used.leaky))
    again = used.select(replace(context, allow_test=used.leaky))
    require(same(first.nodes, again.nodes), "After another selection, the same instance made a different choice.")


@rule("does not use test labels unless it is leaky", "selector")
def _selector_leakage(subject: Subject) -> None:
    if subject.make().leaky:
        return
    context = example_context(per_class=2)
    other = in_graph(context, scrambled(example_stream())[context.task.id].graph)
    a, b = (_select(subject, replace(c, allow_test=False)) for c in (context, other))
    require(same([a.nodes, a.scores], [b.nodes, b.scores]), "Different test labels gave a different choice or score.")


@rule("does not depend on the numbering of nodes", "selector")
def _selector_relabeling(subject: Subject) -> None:
    context = example_context(per_class=2)
    context.model.double()
    context = in_graph(context, replace(context.graph, x=context.graph.x.double()))
    new_id = torch.randperm(context.graph.num_nodes, generator=torch.Generator().manual_seed(3))
    chosen, moved = _select(subject, context).nodes, _select(subject, relabeled(context, new_id)).nodes
    require(same(new_id[chosen], moved), "With nodes renumbered (candidates in the same order), the choice differs.")


@rule("breaks ties by seed, never by node order", "selector")
def _selector_ties(subject: Subject) -> None:
    context = example_context()
    alike = replace(context.graph, x=torch.ones_like(context.graph.x), edge_index=context.graph.edge_index[:, :0])
    context = in_graph(context, alike)
    choices = {tuple(_select(subject, replace(context, seed=seed)).nodes.tolist()) for seed in range(8)}
    require(len(choices) > 1, "With identical nodes, eight seeds gave the same choice; use context.generator().")
