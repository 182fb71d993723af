"""TPP: task profiles, and prompts for each task on a frozen encoder."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import check_at_least
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.losses import MASKED
from ergnn.engine.propagation import propagate
from ergnn.engine.recording import Recorded, side_stream
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView, Method, Scorer, num_bytes, random_encoder
from ergnn.nn.examples import Examples


@METHODS.register("tpp", help="prompts and a classifier for each task on a frozen encoder, with task profiles (TPP)")
class TPP(Method):
    """Task profiling and prompting (Niu et al., 2024); the task of a node is guessed for each node on its own.

    h_v is v's row of ``S^K X`` divided by its norm. The profile of a task is ``p_t = mean h_v`` over its training
    nodes. If the task is unknown, it is ``argmin_t ‖h_v − p_t‖``, from this node alone. (The original compares the mean
    of a whole test set, which reveals the task.) The outputs of task t are

        U_t ReLU(W (h_v + Σ_j α_vj φ_tj)) + b_t   with   α_v = softmax(Q_t h_v),

    where W is a Gaussian encoder, drawn by seed and frozen (the original pretrains one on the first task). The prompts
    φ_t, the queries Q_t and the classifier U_t, b_t minimize the mean cross-entropy of the task's training nodes by
    Adam, and never change afterwards. The backbone is not used.

    Args:
        prompts: number of prompts per task; 0 trains the classifier alone.
        hops: K, number of propagation steps.
        width: number of outputs of the encoder.
    """

    trains_network, backbone = False, "gcn"
    comparison = Comparison(search={"hops": (1, 2, 3)})

    def __init__(self, prompts: int = 3, hops: int = 2, width: int = 256) -> None:
        check_at_least(0, prompts=prompts, hops=hops)
        check_at_least(1, width=width)
        self.prompts, self.hops, self.width = prompts, hops, width
        self.profiles: list[Tensor] = []
        self.tasks: list[dict[str, Tensor]] = []

    @property
    def nbytes(self) -> int:
        """Profiles, prompts, queries and classifiers; W follows from the seed."""
        return num_bytes([*self.profiles, *(value for prompts in self.tasks for value in prompts.values())])

    @property
    def unused_settings(self) -> tuple[str, ...]:
        used = ("epochs", "lr", "weight_decay")  # of prompts and classifiers
        return tuple(name for name in super().unused_settings if name not in used)

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        h, targets, training = self.inputs(task.graph, task.train), task.targets(task.train), learner.training
        encoder = self.encoder(learner.seed, h)
        encoded, generator = h @ encoder, task.generator(learner.seed, 73)
        zeros = map(h.new_zeros, ((self.prompts, h.size(1)), (self.width, task.num_classes), (task.num_classes,)))
        values = [torch.randn(h.size(1), self.prompts, generator=generator).to(h), *zeros]
        learned = dict(zip(("query", "tokens", "weight", "bias"), (v.requires_grad_() for v in values), strict=True))
        optimizer = torch.optim.Adam(values, training.lr, weight_decay=training.weight_decay, capturable=h.is_cuda)

        def step(_: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(outputs(h, encoded, encoder, learned), targets)
            loss.backward()
            optimizer.step()
            return loss.detach()

        train = Recorded(step, side_stream(h.device)) if h.is_cuda else step
        for _ in range(training.epochs):
            loss = train(h[:0])
        self.tasks = [*self.tasks, {name: value.detach() for name, value in learned.items()}]
        self.profiles = [*self.profiles, h.mean(0)]
        return {"loss": float(loss)}

    def encoder(self, seed: int, h: Tensor) -> Tensor:
        return random_encoder(seed * 1_000_003 + 79, (h.size(1), self.width), torch.float32, h.device)

    def inputs(self, graph: Graph, nodes: Tensor) -> Tensor:
        return F.normalize(propagate(graph, self.hops, nodes=nodes).float(), dim=1)

    def scorer(self, learner: LearnerView, graph: Graph, task: int | None) -> Scorer:
        return partial(self.scores, learner, graph, task)

    def scores(self, learner: LearnerView, graph: Graph, task: int | None, nodes: Tensor) -> Tensor:
        """Return the outputs of each node's task; outputs for classes of other tasks are masked."""
        h, classes = self.inputs(graph, nodes), learner.classes(task).tolist()
        guess = torch.cdist(h, torch.stack(self.profiles)).argmin(1) if task is None else torch.full_like(nodes, task)
        scores = torch.full((nodes.numel(), len(classes)), MASKED, device=nodes.device)
        encoder = self.encoder(learner.seed, h)
        for number in guess.unique().tolist():
            rows, columns = guess == number, [classes.index(c) for c in learner.classes(number).tolist()]
            scores[rows.nonzero(), columns] = outputs(h[rows], h[rows] @ encoder, encoder, self.tasks[number])
        return scores

    def state_dict(self) -> dict[str, Any]:
        return {"profiles": list(self.profiles), "tasks": [dict(learned) for learned in self.tasks]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.profiles, self.tasks = list(state["profiles"]), [dict(learned) for learned in state["tasks"]]


def outputs(h: Tensor, encoded: Tensor, encoder: Tensor, learned: dict[str, Tensor]) -> Tensor:
    """Return the outputs of one task for rows h, ``[n, classes of the task]``; ``encoded`` is ``h @ encoder``."""
    prompted = encoded + torch.softmax(h @ learned["query"], dim=1) @ (learned["tokens"] @ encoder)
    return torch.relu(prompted) @ learned["weight"] + learned["bias"]
