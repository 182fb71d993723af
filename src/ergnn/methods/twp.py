"""Topology-aware weight preserving (TWP): EWC that also keeps the attention between neighbors."""

from __future__ import annotations

import torch

from ergnn.config.errors import InputError, check_at_least
from ergnn.data.stream import Task
from ergnn.engine.curvature import gradient, hessian_product, unflatten
from ergnn.engine.losses import Objective, ParamDict
from ergnn.engine.step_hooks import StepHook
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView
from ergnn.methods.ewc import fisher_diagonal
from ergnn.methods.importance import ImportanceMethod, sampled_objective
from ergnn.methods.topology import topology
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.layers import Propagate, form_of


class GradientSparsity(StepHook):
    """Adds the gradient of ``β ‖∇L‖₁``, which is ``β H sign(∇L)``, and applies the penalty of earlier tasks."""

    def __init__(self, objective: Objective, beta: float, penalty: StepHook | None) -> None:
        objective.prepare()
        self.objective, self.beta, self.penalty = objective, beta, penalty

    def before_step(self, params: ParamDict) -> None:
        point = {name: value.detach() for name, value in params.items()}
        sign = gradient(self.objective, point, self.objective.weights).sign()
        for name, part in unflatten(hessian_product(self.objective, point)(sign), point).items():
            own = params[name].grad
            params[name].grad = self.beta * part if own is None else own + self.beta * part

    def after_step(self, params: ParamDict, optimizer: torch.optim.Optimizer) -> None:
        if self.penalty is not None:
            self.penalty.after_step(params, optimizer)


@METHODS.register("twp", help="EWC plus the importance for attention between neighbors (topology-aware preserving)")
class TWP(ImportanceMethod):
    """Topology-aware weight preserving (Liu et al., 2021).

    The loss is ``L + Σ_k Σ_j I_kj (θ_j − θ*_kj)² + β ‖∇L‖₁`` with ``I = λ_l F + λ_t (∂T/∂θ)²`` after each task k: the
    Fisher information F as in EWC, and T, the mean squared norm of the attention coefficients of the training nodes,
    over all layers. In layers without attention, they are ``softmax_u LeakyReLU(z_uᵀ tanh(z_v))`` over the neighbors
    u of v and v itself, with ``z = Wh``, as in the authors' code, where the last term is a constant (β = 0 here).

    Args:
        lam_loss: λ_l, weight of the importance for the loss.
        lam_topology: λ_t, weight of the importance for the topology, whose slopes are smaller.
        beta: β, weight of the norm of the gradient, computed on all examples of the task without dropout.
        fisher_samples: number of training nodes to sample per task to estimate F; by default all.
    """

    comparison = Comparison(
        search={"lam_loss": (0.15, 1.5, 15.0), "lam_topology": (1.0, 100.0, 10_000.0)},
        importance_option="fisher_samples",
    )

    def __init__(
        self, lam_loss: float = 1.5, lam_topology: float = 100.0, beta: float = 0.0, fisher_samples: int | None = None
    ) -> None:
        check_at_least(0, lam_loss=lam_loss, lam_topology=lam_topology, beta=beta)
        check_at_least(1, fisher_samples=fisher_samples)
        super().__init__(lam=2.0, decay=None)
        self.lam_loss, self.lam_topology, self.beta, self.fisher_samples = lam_loss, lam_topology, beta, fisher_samples

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        model = learner.model
        layers = [*model.convs, *model.heads] if isinstance(model, Backbone) and model.runs_on_fields else []
        if not layers or any(isinstance(one, Propagate) or form_of(one).aggregation is None for one in layers):
            name = learner.backbone if isinstance(learner.backbone, str) else type(learner.backbone).__name__
            raise InputError(f"twp needs weights in layers over neighbors, such as gat, gcn, sage or gin; not {name!r}")
        return super().examples(learner, task)

    def step_hook(self, learner: LearnerView, task: Task, objective: Objective) -> StepHook | None:
        penalty = super().step_hook(learner, task, objective)
        return GradientSparsity(objective, self.beta, penalty) if self.beta else penalty

    def importance(self, learner: LearnerView, task: Task, trained_on: Examples) -> ParamDict:
        assert isinstance(learner.model, Backbone)
        objective = sampled_objective(learner, task, trained_on, self.fisher_samples)
        fisher = objective.by_name(fisher_diagonal(objective, objective.parameters()))
        params = [learner.model.get_parameter(name) for name in fisher]
        slopes = torch.autograd.grad(topology(learner.model, trained_on), params, materialize_grads=True)
        pairs = zip(fisher.items(), slopes, strict=True)
        return {name: self.lam_loss * f + self.lam_topology * slope.square() for (name, f), slope in pairs}
