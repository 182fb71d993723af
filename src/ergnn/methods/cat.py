"""CaT: each task is condensed to synthetic nodes, and the network is trained on these only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ergnn.config.errors import check_at_least
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.propagation import propagate
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, FolderUse, LearnerView, Method
from ergnn.nn.examples import Examples
from ergnn.replay.buffer import append_graphs


def condense(real: Sequence[Tensor], start: Tensor, draw: Callable[[], Tensor], steps: int, lr: float) -> Tensor:
    """Return rows X̃ ``[classes, m, features]`` whose mean embedding per class matches that of the real rows.

    Gradient descent on ``½ Σ_c ‖mean f(H_c) − mean f(X̃_c)‖²`` with ``f(H) = ReLU(H W) / √width`` and a new W at each
    step. (Adam would scale the noise of features that no node of a class has up to the size of a step.) The gradient
    is written out, as automatic differentiation would take most of the time.

    Args:
        real: H_c ``[n_c, features]`` of each class.
        start: initial X̃.
        draw: returns the next W ``[features, width]``.
        steps, lr: number of steps; learning rate, per row (the gradient has the factor 1/m), which decays to 0.
    """
    rows, sizes, x = torch.cat(list(real)), [h.size(0) for h in real], start.clone()
    for step in range(steps):
        scale = (weight := draw()).size(1) ** -0.5
        wanted = torch.stack([part.mean(0) for part in (torch.relu(rows @ weight) * scale).split(sizes)])
        active = torch.relu(x @ weight)
        error = ((active * scale).mean(1) - wanted) / x.size(1) * scale
        gradient = torch.where(active > 0, error.unsqueeze(1), 0.0) @ weight.T
        x -= lr * (1.0 - step / steps) * x.size(1) * gradient
    return x


@METHODS.register("cat", help="train on condensed tasks only: synthetic nodes with matching class means (CaT)")
class CaT(Method):
    """CaT (Liu et al., 2023): condense and train, with the single propagation of PUMA (Liu et al., 2024).

    Each task is condensed to m synthetic nodes per class without edges, X̃, that minimize
    ``E_W Σ_c ‖mean_{v∈c} ReLU(W h_v) − mean_{i∈c} ReLU(W x̃_i)‖²`` over random encoders W (a GPU draws other ones than a
    CPU), where h are rows of ``S^K X``. X̃ starts as random rows of h, shifted to the class mean. The network is trained
    from new parameters on the synthetic nodes of all tasks so far, including the current one.

    Args:
        per_class: m, number of synthetic nodes per class.
        hops: K, number of propagation steps.
        width: number of outputs of a random encoder.
        steps: number of condensation steps; 0 keeps the start, which matches the means under every linear encoder.
        condense_lr: learning rate of the synthetic features.
    """

    backbone = "gcn"
    comparison = Comparison(search={"hops": (1, 2, 3), "condense_lr": (0.01, 0.05)})
    folder = FolderUse(refused="it stores features that forgetting cannot remove")
    stored = ("x", "y")

    def __init__(
        self, per_class: int = 1, hops: int = 2, width: int = 256, steps: int = 100, condense_lr: float = 0.05
    ) -> None:
        check_at_least(1, per_class=per_class, width=width)
        check_at_least(0, hops=hops, steps=steps, condense_lr=condense_lr)
        self.per_class, self.hops, self.width, self.steps, self.condense_lr = per_class, hops, width, steps, condense_lr
        self.x: list[Tensor] = []
        self.y: list[Tensor] = []
        self._new: tuple[Tensor, Tensor] | None = None

    def restarts(self, learner: LearnerView, task: Task) -> bool:
        return True

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        self._new = self._condensed(learner, task)
        graph, pairs = task.graph, [*zip(self.x, self.y, strict=True), self._new]
        copies = [Graph(x.to_sparse_csr() if graph.is_sparse else x, graph.edge_index[:, :0], y) for x, y in pairs]
        joined = append_graphs(graph, copies)
        synthetic = torch.arange(graph.num_nodes, joined.num_nodes, device=graph.device)
        examples = [learner.examples(joined, task.train, task.id).weighted(0.0)]
        numbers = [*range(len(self.x)), task.id]
        for number, nodes in zip(numbers, synthetic.split([len(y) for _, y in pairs]), strict=True):
            examples.append(learner.examples(joined, nodes, number).weighted(1.0 / synthetic.numel()))
        return Examples.join(examples)

    def _condensed(self, learner: LearnerView, task: Task) -> tuple[Tensor, Tensor]:
        """Return the features and labels of the task's synthetic nodes."""
        h, labels = propagate(task.graph, self.hops, nodes=task.train), task.graph.y[task.train]
        classes = [c for c in task.classes if bool((labels == c).any())]
        generator = task.generator(learner.seed, 67)
        encoders = torch.Generator(h.device).manual_seed(generator.initial_seed()) if h.is_cuda else generator

        def draw() -> Tensor:
            return torch.randn(h.size(1), self.width, generator=encoders, dtype=h.dtype, device=h.device)

        def start(rows: Tensor) -> Tensor:
            chosen = torch.randperm(rows.size(0), generator=generator).repeat(self.per_class)[: self.per_class]
            return (some := rows[chosen.to(rows.device)]) + rows.mean(0) - some.mean(0)

        real = [h[labels == c] for c in classes]
        x = condense(real, torch.stack(list(map(start, real))), draw, self.steps, self.condense_lr).flatten(0, 1)
        return x, torch.tensor(classes, device=h.device).repeat_interleave(self.per_class)

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        assert self._new is not None
        x, y = self._new
        self.x, self.y, self._new = [*self.x, x], [*self.y, y], None
        return {}
