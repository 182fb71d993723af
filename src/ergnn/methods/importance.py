"""Methods that penalize changes of important parameters: EWC, online EWC, MAS, SI and TWP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv
from torch_geometric.utils import softmax

from ergnn.config.errors import InputError, check_at_least, check_between
from ergnn.data.stream import Task
from ergnn.engine.adjacency import adjacency_of, merge_loops
from ergnn.engine.losses import MASKED, Objective, ParamDict
from ergnn.engine.objective import make_objective
from ergnn.engine.step_hooks import StepHook
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView, Method
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples, pure_loss
from ergnn.nn.layers import Propagate, form_of


class QuadraticPenalty(StepHook):
    """Apply the penalty ``λ/2 Σ_k Σ_j Ω_kj (θ_j − θ*_kj)²`` as an implicit (proximal) step after each optimizer step.

    If the optimizer has reached θ with step sizes s, the proximal step minimizes the penalty plus
    ``Σ_j (θ'_j − θ_j)² / 2 s_j``, which gives

        θ' = (θ + s λ ΣΩ θ*) / (1 + s λ ΣΩ) .

    An explicit step, as with :meth:`Method.penalty`, diverges if ``s λ ΣΩ > 2``, which happens after a few tasks. The
    proximal step never diverges. With SGD, s is the learning rate; with Adam, it is ``lr / (√v̂ + ε)`` per parameter.

    Args:
        lam: λ.
        importance: ΣΩ, summed over tasks.
        pull: ΣΩθ*.
    """

    recordable = True
    per_parameter: tuple[str, ...] = ("stiffness", "pull")

    def __init__(self, lam: float, importance: ParamDict, pull: ParamDict) -> None:
        self.stiffness = {name: lam * value for name, value in importance.items()}
        self.pull = {name: lam * value for name, value in pull.items()}

    @torch.no_grad()
    def after_step(self, params: ParamDict, optimizer: torch.optim.Optimizer) -> None:
        for name, stiffness in self.stiffness.items():
            size = step_size(optimizer, params[name])
            params[name].add_(size * self.pull[name]).div_(1.0 + size * stiffness)


def step_size(optimizer: torch.optim.Optimizer, value: Tensor) -> Tensor | float:
    """Return the step size of a parameter: the learning rate, divided by ``√v̂ + ε`` for Adam."""
    group = optimizer.param_groups[0]
    state = optimizer.state.get(value, {})
    if "exp_avg_sq" not in state:
        return float(group["lr"])
    debiased = state["exp_avg_sq"] / (1.0 - group["betas"][1] ** state["step"])
    return group["lr"] / (debiased.sqrt() + group["eps"])


@METHODS.register("ewc", help="penalize changes of important parameters (elastic weight consolidation)")
class EWC(Method):
    """Finetuning with a quadratic penalty on each parameter, weighted by its importance Ω in earlier tasks.

    The importance is the Fisher information (Kirkpatrick et al., 2017, with the sum over tasks as in their multi-task
    experiments); subclasses override :meth:`estimate`. Two vectors are stored, ΣΩ and ΣΩθ*, so that time and memory do
    not grow with the number of tasks. See :class:`~ergnn.methods.importance.QuadraticPenalty`.

    Args:
        lam: λ, weight of the penalty.
        fisher_samples: number of training nodes to sample per task to estimate the importance; by default all.

    Attributes:
        decay: with a number γ, one penalty ``λ/2 Σ_j Ω_j (θ_j − θ*_j)²`` with ``Ω ← γΩ + Ω_t`` and the parameters θ*
            after the latest task; with None, one penalty per task, each with its own θ*.
    """

    stored = ("importance", "pull")
    comparison = Comparison(search={"lam": (0.3, 3.0, 30.0, 300.0)})
    decay: float | None = None

    def __init__(self, lam: float = 3.0, fisher_samples: int | None = None) -> None:
        check_at_least(0, lam=lam)
        check_at_least(1, fisher_samples=fisher_samples)
        self.lam, self.samples = float(lam), fisher_samples
        self.importance: ParamDict = {}
        self.pull: ParamDict = {}

    def estimate(self, learner: LearnerView, task: Task, trained_on: Examples) -> ParamDict:
        """Return Ω of the task that has just been learned, by the model's names of parameters, 0 or more."""
        return self.mean_slopes(learner, task, trained_on)

    def mean_slopes(
        self, learner: LearnerView, task: Task, examples: Examples, entry: Callable[[Tensor], Tensor] = torch.square
    ) -> ParamDict:
        """Compute ``1/n Σ_i entry(∇ℓ_i)`` over all examples or a sample by seed, by the model's names of parameters.

        With squares and the true labels, this is the diagonal of the empirical Fisher information.
        """
        assert learner.model is not None
        heads = torch.unique(examples.heads).tolist()
        if self.samples is not None:
            chosen = torch.randperm(len(examples), generator=task.generator(learner.seed, 31))[: self.samples]
            examples = examples[chosen.to(examples.nodes.device)]
        objective = make_objective([learner.model], [examples], heads, lazy=True)
        total = objective.by_name(objective.gradient_sums(objective.parameters(), entry))
        return {name: value / len(examples) for name, value in total.items()}

    def step_hook(self, learner: LearnerView, task: Task, objective: Objective) -> StepHook | None:
        if not self.importance or self.lam == 0:
            return None
        return QuadraticPenalty(self.lam, objective.from_names(self.importance), objective.from_names(self.pull))

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        assert learner.model is not None
        new, decay = self.estimate(learner, task, trained_on), 1.0 if self.decay is None else self.decay
        for name, value in new.items():
            anchor, before = learner.model.get_parameter(name).detach(), self.importance.get(name)
            self.importance[name] = value.clone() if before is None else decay * before + value
            one_penalty = self.importance[name] * anchor
            self.pull[name] = value * anchor + self.pull.get(name, 0.0) if self.decay is None else one_penalty
        return {"lam": self.lam, "importance": float(sum(float(value.sum()) for value in new.values()))}


@METHODS.register("online-ewc", help="EWC with one penalty at the latest parameters and decaying importance")
class OnlineEWC(EWC):
    """Online elastic weight consolidation (Schwarz et al., 2018).

    After task t, ``F ← γF + F_t``, and the penalty of the next task is ``λ/2 Σ_j F_j (θ_j − θ*_j)²`` around the
    parameters θ* after task t, whereas :class:`EWC` keeps the parameters after every task.

    Args:
        gamma: γ, the factor of earlier Fisher information after each task, 0 to 1.
    """

    comparison = replace(EWC.comparison, search={**EWC.comparison.search, "gamma": (0.5, 0.95)})

    def __init__(self, lam: float = 3.0, gamma: float = 0.95, fisher_samples: int | None = None) -> None:
        if not 0.0 <= gamma <= 1.0:
            raise InputError(f"gamma is {gamma}; it must be 0 to 1")
        super().__init__(lam, fisher_samples)
        self.decay = float(gamma)


@METHODS.register("mas", help="penalize changes of parameters that outputs are sensitive to (memory aware synapses)")
class MAS(EWC):
    """Memory aware synapses (Aljundi et al., 2018); labels are not used for the importance.

    The penalty is ``λ/2 Σ_j Ω_j (θ_j − θ*_j)²`` around the parameters θ* after the latest task, with
    ``Ω ← Ω + mean_v |∂‖z_v‖²/∂θ|`` over the training nodes v of each task and their outputs z (those of the task's
    heads).

    Args:
        samples: number of training nodes to sample per task to estimate Ω; by default all.
    """

    comparison = Comparison(search={"lam": (0.01, 0.1, 1.0, 10.0)})
    decay = 1.0

    def __init__(self, lam: float = 1.0, samples: int | None = None) -> None:
        check_at_least(1, samples=samples)
        super().__init__(lam, samples)

    def estimate(self, learner: LearnerView, task: Task, trained_on: Examples) -> ParamDict:
        return self.mean_slopes(learner, task, replace(trained_on, loss=squared_norm), torch.abs)


@pure_loss()
def squared_norm(logits: Tensor, targets: Tensor, extras: Mapping[str, Tensor]) -> Tensor:
    """``‖z‖²`` of each example, over the outputs that its heads have."""
    return torch.where(logits == MASKED, 0.0, logits).square().sum(1)


class PathIntegral(QuadraticPenalty):
    """Accumulates ``ω_j = −Σ_steps g_j Δθ_j`` of the loss without the penalty of earlier tasks, and applies it."""

    saved = "path"
    per_parameter = ("stiffness", "pull", "path")

    def __init__(self, objective: Objective, lam: float, importance: ParamDict, pull: ParamDict) -> None:
        super().__init__(lam, *(objective.from_names(values) if values else {} for values in (importance, pull)))
        self.objective, self.start = objective, objective.parameters()
        self.path = {name: torch.zeros_like(value) for name, value in self.start.items()}
        self._before: dict[str, tuple[Tensor, Tensor]] = {}

    def before_step(self, params: ParamDict) -> None:
        self._before = {
            name: (value.detach().clone(), value.grad.clone())
            for name, value in params.items()
            if value.grad is not None
        }

    @torch.no_grad()
    def after_step(self, params: ParamDict, optimizer: torch.optim.Optimizer) -> None:
        super().after_step(params, optimizer)
        for name, (value, gradient) in self._before.items():
            self.path[name].sub_(gradient * (params[name].detach() - value))


@METHODS.register("si", help="penalize changes of parameters that reduced the loss (synaptic intelligence)")
class SI(EWC):
    """Synaptic intelligence (Zenke et al., 2017).

    The penalty is ``λ/2 Σ_j Ω_j (θ_j − θ*_j)²`` around the parameters θ* after the latest task, with
    ``Ω_j ← Ω_j + max(ω_j, 0) / (Δ_j² + ξ)``: ω_j is the path integral of −gradient · step over the training of a task
    and Δ_j the total change of θ_j in it. (The paper's c is λ/2.) See
    :class:`~ergnn.methods.importance.QuadraticPenalty`.

    Args:
        xi: ξ, which bounds the importance of parameters that hardly changed.
    """

    comparison = Comparison(search={"lam": (0.1, 1.0, 10.0, 100.0)})
    decay = 1.0

    def __init__(self, lam: float = 1.0, xi: float = 0.1) -> None:
        check_between(0, float("inf"), xi=xi)
        super().__init__(lam)
        self.xi = xi
        self._hook: PathIntegral | None = None

    def step_hook(self, learner: LearnerView, task: Task, objective: Objective) -> StepHook | None:
        self._hook = PathIntegral(objective, self.lam, self.importance, self.pull)
        return self._hook

    def estimate(self, learner: LearnerView, task: Task, trained_on: Examples) -> ParamDict:
        assert self._hook is not None
        hook, self._hook = self._hook, None
        moved = {name: value - hook.start[name] for name, value in hook.objective.parameters().items()}
        paths = hook.path.items()
        return hook.objective.by_name({k: path.clamp(min=0.0) / (moved[k].square() + self.xi) for k, path in paths})


def attention(conv: nn.Module, h: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Target and coefficients ``[edges, heads]`` of each edge: α of a GAT layer, else as in :class:`TWP`."""
    if isinstance(conv, GATConv):
        _, (index, alpha) = conv(h, edges, return_attention_weights=True)
        return index[1], alpha
    z = h @ conv.get_parameter(form_of(conv).projections[0]).T
    scores = F.leaky_relu((z[edges[0]] * z[edges[1]].tanh()).sum(1, keepdim=True), 0.2)
    return edges[1], softmax(scores, edges[1], num_nodes=h.size(0))


def topology(model: Backbone, examples: Examples) -> Tensor:
    """``T = 1/n Σ_v Σ_l ‖α_v^l‖²`` of n examples v, over the layers l and the output layers in use, without dropout."""
    adj, near = adjacency_of(examples.graph), examples.nodes.unique()
    for _ in range(model.num_hops + 1):  # one more for the degrees of the outermost nodes that are read
        near = adj.neighborhood(near)
    local_id = torch.full((adj.num_nodes,), -1, device=near.device)
    local_id[near] = torch.arange(near.numel(), device=near.device)

    def local(row: Tensor, source: Tensor) -> Tensor:
        return torch.stack([local_id[source], row])[:, local_id[source] >= 0]

    row, source = adj.without_loops().incoming(near)
    counts = adj.without_loops().degrees(near)
    edges, looped = local(*adj.incoming(near)), local(*merge_loops(row, counts, source, near))
    count = torch.bincount(local_id[examples.nodes], minlength=near.numel())
    h, total = examples.graph.rows(near).to(model.dtype), torch.zeros((), device=near.device)
    model.eval()
    for i, layer in enumerate([*model.convs, *(model.heads[head] for head in examples.heads.unique().tolist())]):
        target, alpha = attention(layer, h, looped)
        total = total + (alpha.square() * count[target].unsqueeze(1)).sum()
        h = model.activation(layer(h, edges)) if i < len(model.convs) else h
    return total / len(examples)


@METHODS.register("twp", help="EWC plus the importance for attention between neighbors (topology-aware preserving)")
class TWP(EWC):
    """Topology-aware weight preserving (Liu et al., 2021).

    The loss is ``L + Σ_k Σ_j I_kj (θ_j − θ*_kj)²`` with ``I = λ_l F + λ_t (∂T/∂θ)²`` after each task k: the
    Fisher information F as in EWC, and T, the mean squared norm of the attention coefficients of the training nodes,
    over all layers. In layers without attention, they are ``softmax_u LeakyReLU(z_uᵀ tanh(z_v))`` over the neighbors
    u of v and v itself, with ``z = Wh``, as in the authors' code. (The paper's third term, ``β ‖∇L‖₁``, is a constant
    there, and left out here.)

    Args:
        lam_loss: λ_l, weight of the importance for the loss.
        lam_topology: λ_t, weight of the importance for the topology, whose slopes are smaller.
    """

    comparison = Comparison(search={"lam_loss": (0.15, 1.5, 15.0), "lam_topology": (1.0, 100.0, 10_000.0)})

    def __init__(self, lam_loss: float = 1.5, lam_topology: float = 100.0, fisher_samples: int | None = None) -> None:
        check_at_least(0, lam_loss=lam_loss, lam_topology=lam_topology)
        super().__init__(2.0, fisher_samples)
        self.lam_loss, self.lam_topology = lam_loss, lam_topology

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        model = learner.model
        layers = [*model.convs, *model.heads] if isinstance(model, Backbone) and model.runs_on_fields else []
        if not layers or any(isinstance(one, Propagate) or form_of(one).aggregation is None for one in layers):
            name = learner.backbone if isinstance(learner.backbone, str) else type(learner.backbone).__name__
            raise InputError(f"twp needs weights in layers over neighbors, such as gat, gcn, sage or gin; not {name!r}")
        return super().examples(learner, task)

    def estimate(self, learner: LearnerView, task: Task, trained_on: Examples) -> ParamDict:
        assert isinstance(learner.model, Backbone)
        fisher = self.mean_slopes(learner, task, trained_on)
        params = [learner.model.get_parameter(name) for name in fisher]
        slopes = torch.autograd.grad(topology(learner.model, trained_on), params, materialize_grads=True)
        pairs = zip(fisher.items(), slopes, strict=True)
        return {name: self.lam_loss * f + self.lam_topology * slope.square() for (name, f), slope in pairs}
