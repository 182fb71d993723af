"""Rules for backbones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ergnn.engine.objective import make_objective
from ergnn.engine.outputs import embed
from ergnn.learning.learner import Learner
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.heads import HEADS
from ergnn.testing.examples import EPOCHS, FEATURES, example_graph, example_stream
from ergnn.testing.rules import Subject, random_state, require, rule, run, same, saved_and_loaded, unchanged


def check_backbone(backbone: str | Callable[..., Backbone], **options: Any) -> None:
    """Check all rules for a backbone: a name, or a factory that takes ``in_channels``, ``out_channels`` and options."""
    run("backbone", backbone, options)


def _backbone(subject: Subject, seed: int = 0, out_channels: int | None = 3) -> Backbone:
    torch.manual_seed(seed)
    model: Backbone = subject.make(in_channels=FEATURES, out_channels=out_channels)
    return model.eval()


def _close(a: Tensor, b: Tensor, tolerance: float) -> bool:
    a, b = a.detach(), b.detach()
    return a.shape == b.shape and bool(torch.allclose(a, b, rtol=tolerance, atol=tolerance * float(b.abs().max() + 1)))


@rule("gives scores [n, out_channels] for each head, and embed() gives [n, embedding_size]", "backbone")
def _backbone_shapes(subject: Subject) -> None:
    model, graph = _backbone(subject), example_graph()
    n = graph.num_nodes
    model.add_head(4)
    require(model.head_widths == [3, 4], f"After add_head(4) head_widths are {model.head_widths}, not [3, 4].")
    for head, width in enumerate(model.head_widths):
        shape = tuple(model(graph.x, graph.edge_index, head).shape)
        require(shape == (n, width), f"forward(x, adj, {head}) has shape {shape}, not {(n, width)}.")
    require(
        torch.equal(model(graph.x, graph.edge_index), model(graph.x, graph.edge_index, 0)), "Head 0 is not the default."
    )
    shape = tuple(model.embed(graph.x, graph.edge_index).shape)
    require(shape == (n, model.embedding_size), f"embed() has shape {shape}; embedding_size is {model.embedding_size}.")
    require(_backbone(subject, out_channels=None).head_widths == [], "It has a head without out_channels.")
    require(model.lr > 0 and model.weight_decay >= 0, f"lr is {model.lr}, weight_decay {model.weight_decay}.")


@rule("gives finite scores on isolated nodes, self-loops, repeated edges and no edges", "backbone")
def _backbone_edges(subject: Subject) -> None:
    model, graph = _backbone(subject), example_graph()
    loops = torch.arange(graph.num_nodes).expand(2, -1)
    cases = {
        "isolated nodes": graph.edge_index,
        "self-loops": torch.cat([graph.edge_index, loops], 1),
        "repeated edges": graph.edge_index.repeat(1, 2),
        "no edges": graph.edge_index[:, :0],
        "one-way edges": graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]],
    }
    for case, edges in cases.items():
        require(bool(torch.isfinite(model(graph.x, edges)).all()), f"With {case} a score is not finite.")


@rule("depends on torch's seed alone, and its state_dict restores it", "backbone")
def _backbone_state(subject: Subject) -> None:
    model, graph = _backbone(subject), example_graph()
    twin = _backbone(subject)
    require(same(dict(model.state_dict()), dict(twin.state_dict())), "The same seed gave different parameters.")
    other = _backbone(subject, seed=1)
    other.load_state_dict(saved_and_loaded(dict(model.state_dict())))
    a, b = (network(graph.x, graph.edge_index) for network in (model, other))
    require(torch.equal(a, b), "After load_state_dict(state_dict()) the scores differ.")


@rule("is deterministic in evaluation, and a forward pass does not modify it", "backbone")
def _backbone_pure(subject: Subject) -> None:
    model, graph = _backbone(subject), example_graph()
    with unchanged("In evaluation the state of a global random generator", random_state):
        first = model(graph.x, graph.edge_index)
    require(torch.equal(first, model(graph.x, graph.edge_index)), "Two passes gave different scores.")
    with (
        unchanged("In training, parameters or buffers", lambda: dict(model.state_dict())),
        unchanged("The features", lambda: graph.x),
    ):
        model.train()(graph.x, graph.edge_index)


@rule("does not depend on the numbering of nodes", "backbone")
def _backbone_relabeling(subject: Subject) -> None:
    model, graph = _backbone(subject).double(), example_graph()
    x, new_id = graph.x.double(), torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(3))
    for function in (model, model.embed):
        plain, moved = function(x, graph.edge_index), function(x[new_id.argsort()], new_id[graph.edge_index])
        require(_close(moved[new_id], plain, 1e-6), "With nodes renumbered, scores or embeddings differ.")


@rule("a node's scores depend only on its own component of the graph", "backbone")
def _backbone_locality(subject: Subject) -> None:
    model, one, two = _backbone(subject), example_graph(), example_graph(seed=1)
    n = one.num_nodes
    edges = torch.cat([one.edge_index, two.edge_index + n], 1)
    for training in (False, True):
        model.train(training)
        scores = []
        for other in (two.x, -3 * two.x):
            torch.manual_seed(5)
            scores.append(model(torch.cat([one.x, other]), edges)[:n])
        mode = "training" if training else "evaluation"
        require(_close(scores[0], scores[1], 1e-5), f"In {mode} they change with the features of another component.")


@rule("is the same function on receptive fields as on the whole graph", "backbone")
def _backbone_fields(subject: Subject) -> None:
    for sparse in (False, True):
        model, graph = _backbone(subject), example_graph(sparse=sparse)
        model.add_head(3)
        nodes = torch.arange(0, graph.num_nodes, 7)
        with torch.no_grad():
            whole = model.embed(graph.dense_x(), graph.edge_index)[nodes]
            require(_close(embed(model, graph, nodes), whole, 1e-4), "embed() differs (see runs_on_fields).")
            for head in (0, 1):
                heads, zeros = torch.full((nodes.numel(), 1), head), torch.zeros_like(nodes)
                objective = make_objective([model], [Examples(graph, nodes, heads, zeros, zeros.float())])
                scores = objective.logits(objective.parameters())
                whole = model.eval()(graph.dense_x(), graph.edge_index, head)[nodes]
                require(_close(scores, whole, 1e-4), f"Scores of head {head} differ (see runs_on_fields).")


@rule(
    "learns a stream with every head: all parameters are trained, and the same seed gives the same bits",
    "backbone",
)
def _backbone_learns(subject: Subject) -> None:
    # five epochs are far from a minimum, where influence needs more damping than its default
    selectors: list[tuple[str, dict[str, Any]]] = [("mf*", {}), ("cm*", {}), ("im", {"damping": 1.0})]
    for head, (selector, options) in zip(HEADS, selectors, strict=True):
        states = []
        for _ in range(2):
            model = _backbone(subject, out_channels=None)
            learner = Learner(model, "replay", head=head, epochs=EPOCHS, selector=selector, selector_options=options)
            for task in example_stream():
                learner.observe(task)
                score = learner.evaluate(task)
                require(0.0 <= score <= 1.0, f"With head {head!r} {task.name} scores {score}.")
            assert learner.model is not None
            states.append(dict(learner.model.state_dict()))
        for name, before in model.named_parameters():
            require(not same(before.detach(), states[0][name]), f"{name} was not trained (see runs_on_fields).")
        require(same(*states), f"With head {head!r} the same seed gave different parameters.")
