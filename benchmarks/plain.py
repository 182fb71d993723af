"""The reference: the same training loop with plain PyG layers, on the whole graph, with dense features."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, SGConv

from ergnn.data.stream import Task, TaskStream


class PlainGAT(nn.Module):
    """Two GATConv layers, as in the PyG examples."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first = GATConv(features, 8, heads=8, dropout=0.6)
        self.last = GATConv(64, classes, heads=1, concat=False, dropout=0.6)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.elu(self.first(F.dropout(x, 0.6, self.training), edge_index))
        return self.last(F.dropout(x, 0.6, self.training), edge_index)


class PlainTwoLayers(nn.Module):
    """Two layers of one kind with a ReLU between."""

    def __init__(self, first: nn.Module, last: nn.Module, dropout: float) -> None:
        super().__init__()
        self.first, self.last, self.dropout = first, last, dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.relu(self.first(F.dropout(x, self.dropout, self.training), edge_index))
        return self.last(F.dropout(x, self.dropout, self.training), edge_index)


class PlainSGC(nn.Module):
    """One SGConv with cached propagation."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.conv = SGConv(features, classes, K=2, cached=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)


def plain_model(name: str, features: int, classes: int) -> nn.Module:
    """Create a model of PyG layers in the sizes of :mod:`ergnn.nn.backbones`."""

    def mlp(a: int, b: int, c: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, c))

    if name == "gat":
        return PlainGAT(features, classes)
    if name == "sgc":
        return PlainSGC(features, classes)
    pairs = {
        "gcn": lambda: (GCNConv(features, 16), GCNConv(16, classes), 0.5),
        "sage": lambda: (SAGEConv(features, 128), SAGEConv(128, classes), 0.0),
        "gin": lambda: (GINConv(mlp(features, 16, 16)), GINConv(mlp(16, 16, classes)), 0.5),
    }
    return PlainTwoLayers(*pairs[name]())


class PlainLearner:
    """ER-GNN with one shared head, full-graph steps, and influence by per-node gradients."""

    def __init__(self, backbone: str, features: int, classes: int, epochs: int = 200, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = plain_model(backbone, features, classes)
        self.lr = {"gat": 0.005, "sgc": 0.2}.get(backbone, 0.01)
        self.epochs = epochs
        self.buffer: list[tuple[int, int]] = []

    def observe(self, task: Task, select: bool = True) -> None:
        x, edges = task.graph.dense_x(), task.graph.edge_index
        train, target = task.train, task.targets(task.train)
        old = torch.tensor([node for node, _ in self.buffer], dtype=torch.long)
        old_target = torch.tensor([y for _, y in self.buffer], dtype=torch.long)
        optimizer = torch.optim.Adam(self.model.parameters(), lr=self.lr, weight_decay=5e-4)
        self.model.train()
        for _ in range(self.epochs):
            optimizer.zero_grad()
            out = self.model(x, edges)
            loss = F.cross_entropy(out[train], target)
            if len(old):
                beta = len(old) / (len(old) + len(train))
                loss = beta * F.cross_entropy(out[train], target, reduction="sum")
                loss = loss + (1 - beta) * F.cross_entropy(out[old], old_target, reduction="sum")
            loss.backward()
            optimizer.step()
        if select:
            scores = self.influence(task)
            for c in range(len(task.classes)):
                members = (target == c).nonzero().flatten()
                best = members[scores[members].argmax()]
                self.buffer.append((int(train[best]), c))

    def influence(self, task: Task, damping: float = 0.01, iterations: int = 10) -> Tensor:
        """Compute the negative influence of each training node, by conjugate gradients and one gradient per node."""
        self.model.eval()
        x, edges = task.graph.dense_x(), task.graph.edge_index
        params = list(self.model.parameters())
        target = task.targets(task.train)

        def flat(grads: tuple[Tensor, ...]) -> Tensor:
            return torch.cat([g.reshape(-1) for g in grads])

        def gauss_newton(vector: Tensor) -> Tensor:
            logits = self.model(x, edges)[task.train]
            probe = torch.zeros_like(logits, requires_grad=True)
            pulled = flat(torch.autograd.grad(logits, params, probe, create_graph=True))
            along = torch.autograd.grad(pulled, probe, vector, retain_graph=True)[0].detach()
            p = logits.detach().softmax(1)
            inner = p * (along - (p * along).sum(1, keepdim=True)) / len(target)
            return flat(torch.autograd.grad(logits, params, inner)) + damping * vector

        val_loss = F.cross_entropy(self.model(x, edges)[task.val], task.targets(task.val), reduction="sum")
        b = flat(torch.autograd.grad(val_loss, params))
        w, r = torch.zeros_like(b), b.clone()
        d, rr = r.clone(), r @ r
        for _ in range(iterations):
            a_d = gauss_newton(d)
            step = rr / (d @ a_d)
            w, r = w + step * d, r - step * a_d
            new = r @ r
            if new.sqrt() <= 1e-3 * b.norm():
                break
            d, rr = r + new / rr * d, new
        losses = F.cross_entropy(self.model(x, edges)[task.train], target, reduction="none")
        grads = [flat(torch.autograd.grad(loss, params, retain_graph=True)) for loss in losses]
        return torch.stack(grads) @ w

    @torch.no_grad()
    def evaluate(self, task: Task, graph_of: Task) -> float:
        self.model.eval()
        out = self.model(graph_of.graph.dense_x(), graph_of.graph.edge_index)
        return float((out[task.test].argmax(1) == task.targets(task.test)).float().mean())


def plain_stream(stream: TaskStream, backbone: str = "gat", epochs: int = 200, seed: int = 0) -> list[list[float]]:
    """Train the reference on the whole stream; return the rows of the accuracy matrix."""
    learner = PlainLearner(backbone, stream.num_features, stream[0].num_classes, epochs, seed)
    rows = []
    for task in stream:
        learner.observe(task)
        rows.append([learner.evaluate(stream[j], task) for j in range(task.id + 1)])
    return rows
