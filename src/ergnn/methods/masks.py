"""Base class of methods that use a part of the weights for each task, by a mask per task."""

from __future__ import annotations

from abc import abstractmethod
from copy import deepcopy

import torch
from torch import Tensor, nn

from ergnn.config.errors import InputError
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.losses import ParamDict
from ergnn.methods.base import LearnerView, Method, NetworkScorer, Scorer, task_examples
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples


class MaskMethod(Method):
    """Predicts with the weights of a task's mask, so that the task of a node must be known.

    Masks apply to the weights (parameters with two or more dimensions) that tasks share: those of the hidden layers,
    and of a shared output layer. Shared biases are learned in the first task only. Output layers per task are not
    masked.
    """

    supported_heads = ("shared", "per-task")

    @abstractmethod
    def mask(self, task: int) -> dict[str, Tensor]:
        """Name → boolean mask of the weights that a learned task uses; weights without a mask are all used."""

    def scorer(self, learner: LearnerView, graph: Graph, task: int | None) -> Scorer:
        assert learner.model is not None
        assert task is not None
        return NetworkScorer(self.masked(learner.model, task), graph, learner.heads, task)

    def masked(self, model: nn.Module, task: int) -> nn.Module:
        """Return the model with the weights of a task's mask; the model itself if the task uses all weights."""
        masks = self.mask(task)
        if not masks:
            return model
        # the layers of other modules may also be stored outside of their list of layers
        masked = shallow_copy(model) if isinstance(model, Backbone) and model.runs_on_fields else deepcopy(model)
        for name, mask in masks.items():
            value, (layer, _, own) = model.get_parameter(name), name.rpartition(".")
            used = torch.where(mask.to(value.device), value.detach(), 0.0)
            setattr(masked.get_submodule(layer), own, nn.Parameter(used, value.requires_grad))
        return masked

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        if not shared_parameters(learner)[0]:
            raise InputError(
                f"backbone {learner.backbone!r} has no weights that tasks share with head='per-task'; "
                "use head='shared' or a backbone with hidden layers"
            )
        assert learner.model is not None
        if any(name.endswith("running_mean") for name, _ in learner.model.named_buffers()):
            raise InputError(
                f"backbone {learner.backbone!r} has running statistics (norm='batch'), which every task changes; masks "
                "need a backbone without"
            )
        return task_examples(learner, task)


def shallow_copy(module: nn.Module) -> nn.Module:
    """Copy a module and its submodules, with the same parameters and buffers until they are replaced in the copy."""
    other = module.__new__(type(module))
    vars(other).update(vars(module))
    for name in ("_parameters", "_buffers"):
        vars(other)[name] = dict(vars(module)[name])
    parts = module._modules.items()
    vars(other)["_modules"] = {name: None if part is None else shallow_copy(part) for name, part in parts}
    return other


def shared_parameters(learner: LearnerView) -> tuple[ParamDict, ParamDict]:
    """The weights that tasks share, and the biases, by name."""
    assert learner.model is not None
    own_heads = learner.heads.kind == "per-task" and isinstance(learner.model, Backbone)
    shared = {
        name: value.detach()
        for name, value in learner.model.named_parameters()
        if not (own_heads and name.startswith("heads."))
    }
    weights = {name: value for name, value in shared.items() if value.dim() >= 2}
    return weights, {name: value for name, value in shared.items() if name not in weights}
