"""Hooks and penalties of methods in every training step, also for models that are trained side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from ergnn.engine.losses import Objective, ParamDict, leaves_of

Penalty = Callable[[ParamDict], Tensor | None]
"""Function of the parameters by name that returns a term of the loss."""


class StepHook:
    """Hooks of a method around every training step of one model on one task; by default they do nothing.

    For models trained side by side, each hook gets views of its model's part of the stacked parameters, gradients and
    optimizer state, unless :meth:`stacked` replaces the hooks of all models by one of all stacked parameters.

    Attributes:
        recordable: whether :meth:`before_step` and :meth:`after_step` are the same operations on the same tensors in
            every step, changed in place, and never synchronize with a GPU, so that a CUDA graph can record them.
        saved: name of the attribute with the tensors, besides parameters, that later steps or the end of the task
            depend on, by name; they are part of checkpoints.
        per_parameter: names of all attributes with a tensor per parameter, by name, if what the hook does with them is
            elementwise; :meth:`stacked` then stacks them.
        hooks: of a stacked hook, those of the models, whose tensors are views of the stacked ones.
    """

    recordable: bool = False
    saved: str | None = None
    per_parameter: tuple[str, ...] = ()
    hooks: Sequence[Any] = ()

    @classmethod
    def stacked(cls, hooks: Sequence[Any]) -> StepHook | None:
        """Return a hook for the stacked parameters of several models, given the hook of each; None if there is none."""
        if not cls.per_parameter:
            return None
        together = copy(hooks[0])
        together.hooks = hooks
        for key in cls.per_parameter:
            of_hooks = [getattr(hook, key) for hook in hooks]
            values = {name: torch.cat([of_model[name] for of_model in of_hooks]) for name in of_hooks[0]}
            for hook, of_model in zip((together, *hooks), (values, *split_models(values, len(hooks))), strict=True):
                setattr(hook, key, of_model)
        return together

    def skip(self, steps: int) -> None:
        """Advance random choices by ``steps``, the number of steps taken before training was interrupted."""

    def state_dict(self) -> ParamDict:
        """Return the tensors to save in checkpoints."""
        return {} if self.saved is None else getattr(self, self.saved)

    def load_state_dict(self, state: ParamDict) -> None:
        """Restore the value of :meth:`state_dict` after an interruption."""
        if self.saved is not None:
            setattr(self, self.saved, dict(state))

    def before_step(self, params: ParamDict) -> None:
        """Run before the optimizer's step; gradients (``params[…].grad``) may be changed in place."""

    def after_step(self, params: ParamDict, optimizer: torch.optim.Optimizer) -> None:
        """Run after the optimizer's step; parameters may be changed in place (under ``torch.no_grad``)."""

    def between_steps(self, params: ParamDict) -> None:
        """Run after each step, also of a recording, which it is never a part of: it may count steps and synchronize.

        Parameters, and tensors that the other hooks use, may be changed in place (under ``torch.no_grad``).
        """


def join_hooks(hooks: Sequence[StepHook | None]) -> StepHook | None:
    """Return one hook for models that are trained side by side, given the hook of each; None if there are none."""
    present = [hook for hook in hooks if hook is not None]
    if len(hooks) <= 1 or not present:
        return present[0] if present else None
    joined = type(present[0]).stacked(present) if len(set(map(type, hooks))) == 1 else None
    return _HookPerModel([hook or StepHook() for hook in hooks]) if joined is None else joined


class _HookPerModel(StepHook):
    """Calls the hook of each model with views of its part of stacked parameters, gradients and optimizer state."""

    def __init__(self, hooks: Sequence[StepHook]) -> None:
        self.hooks = hooks
        self.recordable = all(type(hook) is StepHook or hook.recordable for hook in hooks)
        self._params: list[ParamDict] = []
        self._optimizers: list[torch.optim.Optimizer] = []

    def before_step(self, params: ParamDict) -> None:
        models = len(self.hooks)
        if not self._params:
            self._params = [leaves_of(of_model) for of_model in split_models(params, models)]
        for i, (hook, of_model) in enumerate(zip(self.hooks, self._params, strict=True)):
            grads = {name: None if p.grad is None else model_part(p.grad, i, models) for name, p in params.items()}
            for name, value in of_model.items():
                value.grad = grads[name]
            hook.before_step(of_model)
            for name, value in of_model.items():
                if value.grad is not None and value.grad is not grads[name]:
                    whole = params[name]
                    whole.grad = torch.zeros_like(whole) if whole.grad is None else whole.grad
                    model_part(whole.grad, i, models).copy_(value.grad)

    def after_step(self, params: ParamDict, optimizer: torch.optim.Optimizer) -> None:
        if not self._optimizers:  # its state exists from the first step on, and is then updated in place
            self._optimizers = [self._optimizer(i, params, optimizer) for i in range(len(self.hooks))]
        for hook, of_model, view in zip(self.hooks, self._params, self._optimizers, strict=True):
            hook.after_step(of_model, view)

    def between_steps(self, params: ParamDict) -> None:
        for hook, of_model in zip(self.hooks, self._params, strict=True):
            hook.between_steps(of_model)

    def _optimizer(self, i: int, params: ParamDict, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Return an optimizer with the settings of ``optimizer`` and views of its state for one model."""
        view = torch.optim.Optimizer(list(self._params[i].values()), dict(optimizer.defaults))
        for name, value in params.items():
            view.state[self._params[i][name]] = {
                key: model_part(state, i, len(self.hooks)) if state.shape == value.shape else state
                for key, state in optimizer.state.get(value, {}).items()
                if isinstance(state, Tensor)
            }
        return view


def model_part(value: Tensor, model: int, models: int) -> Tensor:
    """Return a view of one model's part of a stacked tensor."""
    size = value.size(0) // models
    return value[model * size : (model + 1) * size]


def split_models(params: ParamDict, models: int) -> list[ParamDict]:
    """Return the part of each model of stacked parameters (a gradient of all parts is one concatenation)."""
    chunks = {name: value.chunk(models) for name, value in params.items()}
    return [{name: of_models[i] for name, of_models in chunks.items()} for i in range(models)]


def total_penalties(penalties: Sequence[Penalty | None], objectives: Sequence[Objective], params: ParamDict) -> Tensor:
    """Compute the penalty of each model, ``[models]``, from stacked parameters."""
    zero, terms = next(iter(params.values())).new_zeros(()), []
    for penalty, objective, of_model in zip(penalties, objectives, split_models(params, len(penalties)), strict=True):
        term = None if penalty is None else penalty(objective.by_name(of_model))
        terms.append(zero if term is None else term)
    return torch.stack(terms)
