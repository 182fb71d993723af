"""Hooks and penalties of methods in every training step, also for models that are trained side by side."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from ergnn.engine.losses import ParamDict

Penalty = Callable[[ParamDict], Tensor | None]
"""Function of the parameters by name that returns a term of the loss."""


class StepHook:
    """Hooks of a method around every training step of one model on one task; by default they do nothing.

    Models are trained side by side only if :meth:`stacked` can replace their hooks by one for all stacked parameters.

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

    @property
    def stacks_with(self) -> Hashable | None:
        """What hooks of this type have in common if they can be stacked; None if each model is trained alone."""
        return self.per_parameter or None

    @classmethod
    def stacked(cls, hooks: Sequence[Any]) -> StepHook:
        """Return a hook for the stacked parameters of several models, given the hook of each."""
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


def join_hooks(hooks: Sequence[StepHook | None]) -> StepHook:
    """Return one hook for the models of a group, given the hook of each: none, one, or several that can be stacked."""
    if not any(hooks):
        return StepHook()
    present = [hook for hook in hooks if hook is not None]
    return present[0] if len(hooks) == 1 else type(present[0]).stacked(present)


def split_models(params: ParamDict, models: int) -> list[ParamDict]:
    """Return the part of each model of stacked parameters (a gradient of all parts is one concatenation)."""
    chunks = {name: value.chunk(models) for name, value in params.items()}
    return [{name: of_models[i] for name, of_models in chunks.items()} for i in range(models)]


def total_penalties(penalties: Sequence[Penalty | None], params: ParamDict) -> Tensor:
    """Compute the penalty of each model, ``[models]``, from stacked parameters."""
    zero, terms = next(iter(params.values())).new_zeros(()), []
    for penalty, of_model in zip(penalties, split_models(params, len(penalties)), strict=True):
        term = None if penalty is None else penalty(of_model)
        terms.append(zero if term is None else term)
    return torch.stack(terms)
