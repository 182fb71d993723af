"""The training loop: minimize a weighted sum of losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ergnn.config import LearnerConfig, check_training
from ergnn.data.hashing import stream_key
from ergnn.distributed import ProcessGroup, SingleProcess, process_group
from ergnn.engine.dropout import dropout_keys
from ergnn.engine.objective import Objective, ParamDict
from ergnn.engine.optimizers import make_optimizer
from ergnn.engine.prefetch import prefetched
from ergnn.engine.recording import record, side_stream
from ergnn.engine.sampled import SampledObjective
from ergnn.engine.sampling import Sampling
from ergnn.errors import DivergedError, InputError

GRAPH_FROM = 20
"""Minimum number of epochs for which steps on a GPU are recorded as a CUDA graph."""


@dataclass(frozen=True)
class Training:
    """Training settings of a task.

    Args:
        epochs: passes over the task's training nodes (steps, with full batches).
        lr: learning rate.
        weight_decay: L2 factor, coupled (a term of the gradient) for ``adam`` and ``sgd``, decoupled for ``adamw``.
        optimizer: ``adam``, ``adamw`` or ``sgd``; its state is reset for every task.
        batch_size: number of the task's examples per step, plus up to the same number of others (see
            :class:`MiniBatches`); None for all.
        fanout: number of neighbors to sample per node and hop in a batch; see :class:`Sampling`. None for all.
        with_replacement: whether to sample neighbors with replacement.
    """

    epochs: int = LearnerConfig.epochs
    lr: float = 0.005
    weight_decay: float = LearnerConfig.weight_decay or 0.0
    optimizer: str = LearnerConfig.optimizer
    batch_size: int | None = None
    fanout: tuple[int, ...] | None = None
    with_replacement: bool = False

    def __post_init__(self) -> None:
        check_training(self)
        self.sampling  # noqa: B018  # checked

    @property
    def sampling(self) -> Sampling | None:
        """Neighbor sampling, if any."""
        return None if self.fanout is None else Sampling(tuple(self.fanout), self.with_replacement)

    @property
    def l2(self) -> float:
        """λ of the term λ/2 ‖θ‖² in the minimized loss; 0 for decoupled weight decay."""
        return 0.0 if self.optimizer == "adamw" else self.weight_decay


class StepHook:
    """Hooks of a method around every training step of one task; by default they do nothing."""

    def skip(self, steps: int) -> None:
        """Advance random choices by ``steps``, the number of steps taken before training was interrupted."""

    def state_dict(self) -> ParamDict:
        """Tensors, besides parameters, that later steps or the end of the task depend on; saved in checkpoints."""
        return {}

    def load_state_dict(self, state: ParamDict) -> None:
        """Restore the value of :meth:`state_dict` after an interruption."""

    def before_step(self, params: ParamDict) -> None:
        """Run before the optimizer's step; gradients (``params[…].grad``) may be changed in place."""

    def after_step(self, params: ParamDict, optimizer: torch.optim.Optimizer) -> None:
        """Run after the optimizer's step; parameters may be changed in place (under ``torch.no_grad``)."""


@dataclass(frozen=True, eq=False)
class TaskProgress:
    """The state of training after an epoch.

    Args:
        epoch: number of finished epochs.
        losses: loss of this epoch per model (mean over batches, each before its step), on the models' device.
        params, optimizer: parameters and optimizer in use, of all models trained side by side; :meth:`state_dict`
            copies them.
        buffers: the model's buffers in use, e.g. running means.
        model: index of the model.
        hook: the hook of the method, if any.
    """

    epoch: int
    losses: Tensor
    params: ParamDict
    optimizer: torch.optim.Optimizer
    buffers: ParamDict = field(default_factory=dict)
    model: int = 0
    hook: StepHook | None = None

    @property
    def loss(self) -> Tensor:
        """The loss of this model, a 0-d tensor on its device."""
        return self.losses[self.model]

    def of(self, model: int) -> TaskProgress:
        """Return the progress of one of the models."""
        return replace(self, model=model)

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything that later epochs depend on, besides seed, task and epoch."""
        state = self.optimizer.state
        return {
            "epoch": self.epoch,
            "params": {name: self._part(value.detach(), value) for name, value in self.params.items()},
            "optimizer": {
                name: {key: self._part(part, value) for key, part in state[value].items() if isinstance(part, Tensor)}
                for name, value in self.params.items()
                if value in state
            },
            "buffers": {name: value.clone() for name, value in self.buffers.items()},
            "hook": {} if self.hook is None else {k: v.clone() for k, v in self.hook.state_dict().items()},
        }

    def _part(self, value: Tensor, param: Tensor) -> Tensor:
        """Copy this model's part of a stacked parameter, or of a tensor of the same shape."""
        return (value.chunk(self.losses.numel())[self.model] if value.shape == param.shape else value).clone()


OnEpoch = Callable[[TaskProgress], None]
Penalty = Callable[[ParamDict], Tensor | None]
"""Function of the parameters by name that returns a term of the loss."""


class MiniBatches:
    """The batches of an epoch, determined by the seed and the epoch.

    The first ``own`` examples belong to the task. A batch consists of ``size`` of these, each of which is used once per
    epoch in random order, and up to ``size`` of the others, sampled for every batch (except those of weight 0). With n
    examples of the task and m others, the loss of the batch is

        n/|batch| Σ_batch weight · loss + m/|sample| Σ_sample weight · loss .

    Its expectation is the full loss, and if both parts have equal weight, they have equal weight in each batch. With
    several ranks (:mod:`ergnn.distributed`), every batch is divided among them.
    """

    def __init__(
        self, objective: Objective, size: int, own: int, seed: int, group: SingleProcess | None = None
    ) -> None:
        weights = objective.weights
        self.objective = objective
        if not isinstance(objective, SampledObjective):
            self.objective = objective.batch(torch.arange(weights.numel(), device=weights.device))
        self.size, self.own = size, own
        self.others = own + weights[own:].nonzero().flatten()
        self.seed, self.group = seed, group or SingleProcess()

    def __len__(self) -> int:
        return -(-self.own // self.size)

    def of_epoch(self, epoch: int) -> Iterator[Objective]:
        """Yield the batches; with sampled neighbors, a thread prepares each batch during the previous step."""
        batches = self._batches(epoch)
        return prefetched(batches, depth=1) if isinstance(self.objective, SampledObjective) else batches

    def _batches(self, epoch: int) -> Iterator[Objective]:
        weights, device = self.objective.weights, self.objective.weights.device
        generator = torch.Generator().manual_seed((self.seed + epoch * 15_485_863) % 2**63)
        count = self.others.numel()
        for i, index in enumerate(torch.randperm(self.own, generator=generator).to(device).split(self.size)):
            scaled = weights[index] * (self.own / index.numel())
            if count:
                sample = self.others[torch.randperm(count, generator=generator)[: self.size].to(device)]
                index = torch.cat([index, sample])
                scaled = torch.cat([scaled, weights[sample] * (count / sample.numel())])
            yield self.objective.batch(*self.group.pick(index, scaled), key=stream_key(self.seed, epoch, i))


def train(
    objectives: Objective | Sequence[Objective],
    training: Training,
    seeds: list[int],
    task: int,
    on_epoch: OnEpoch | None = None,
    *,
    own: int | None = None,
    hook: StepHook | None = None,
    penalty: Penalty | None = None,
    resume: dict[str, Any] | None = None,
) -> None:
    """Minimize ``Σ weight · loss`` from the models' current parameters, and write the result into the models.

    Models that are trained side by side share no parameters, so the gradient of the sum is correct for each.

    Args:
        objectives: objectives of the same parameters; epochs cycle through them.
        seeds: one seed per model; seed and task number determine the dropout masks and the batches.
        on_epoch: function to call after each epoch.
        own: number of examples of the task, which come first (by default all); used for mini-batches.
        hook: hooks around each step.
        penalty: function that returns a term to add to the loss of each step; for one model only.
        resume: ``state_dict`` of a :class:`TaskProgress` to resume from; the result is the same bit for bit.
    """
    rounds = [objectives] if isinstance(objectives, Objective) else list(objectives)
    objective = rounds[0]
    group = process_group()
    params = group.parameters(objective)
    device = objective.targets.device
    optimizer = make_optimizer(
        training.optimizer,
        list(params.values()),
        models=len(seeds),
        lr=training.lr,
        weight_decay=training.weight_decay,
    )
    start = 0 if resume is None else _restore(objective, params, optimizer, resume, training)
    if (
        device.type == "cuda"
        and not isinstance(group, ProcessGroup)
        and all(part.recordable for part in rounds)
        and hook is None
        and penalty is None
        and training.batch_size is None
        and training.epochs - start >= GRAPH_FROM
    ):
        with torch.cuda.device(device):
            graphed_epochs(rounds, params, optimizer, range(start, training.epochs), seeds, task, on_epoch)
        _finish(objective, params, training)
        return
    mini = None
    if training.batch_size is not None:
        if len(seeds) != 1:
            raise InputError(f"mini-batches support one model at a time; {len(seeds)} are trained side by side")
        count = objective.weights.numel() if own is None else own
        mini = MiniBatches(objective, training.batch_size, count, seeds[0] * 1_000_003 + task * 7919 + 29, group)
    else:
        rounds = [group.share(part) for part in rounds]
    per_epoch = 1 if mini is None else len(mini)
    keys = dropout_keys(seeds, task, training.epochs * per_epoch, objective.dropout_sites, device)
    if hook is not None:
        hook.skip(start * per_epoch)
        if resume is not None:
            hook.load_state_dict({name: value.to(device, copy=True) for name, value in resume.get("hook", {}).items()})
    for epoch in range(start, training.epochs):
        total = torch.zeros(len(seeds), device=device)
        batches = [rounds[epoch % len(rounds)]] if mini is None else mini.of_epoch(epoch)
        for i, batch in enumerate(batches):
            optimizer.zero_grad()
            loss = group.loss(batch, params, keys[epoch * per_epoch + i])
            if penalty is not None:
                term = penalty(objective.by_name(params))
                loss = loss if term is None else loss + term
            loss.sum().backward()
            if hook is not None:
                hook.before_step(params)
            optimizer.step()
            if hook is not None:
                hook.after_step(params, optimizer)
            if on_epoch is not None:
                total += loss.detach() / per_epoch
        if on_epoch is not None:
            on_epoch(TaskProgress(epoch + 1, total, params, optimizer, objective.buffers(), hook=hook))
    _finish(objective, params, training)


def _restore(
    objective: Objective,
    params: ParamDict,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    training: Training,
) -> int:
    """Restore parameters, buffers and optimizer; return the number of finished epochs."""
    epoch = state["epoch"]
    if not isinstance(epoch, int) or not 0 <= epoch <= training.epochs:
        raise InputError(f"the state to resume is at epoch {epoch!r}; epochs must be 0 to {training.epochs}")
    shapes = {name: tuple(value.shape) for name, value in state["params"].items()}
    buffers = objective.buffers()
    if shapes != {name: tuple(value.shape) for name, value in params.items()} or any(
        name not in buffers or buffers[name].shape != value.shape for name, value in state.get("buffers", {}).items()
    ):
        raise InputError("the state to resume has different parameters; it does not match this task and learner")
    with torch.no_grad():
        for name, value in state.get("buffers", {}).items():
            buffers[name].copy_(value)
        for name, value in params.items():
            value.copy_(state["params"][name])
            if name in state["optimizer"]:
                optimizer.state[value] = {
                    key: part.to(value.device, copy=True) for key, part in state["optimizer"][name].items()
                }
    return epoch


def _finish(objective: Objective, params: ParamDict, training: Training) -> None:
    """Write the parameters into the models, unless they are not finite."""
    if not all(bool(torch.isfinite(value).all()) for value in params.values()):
        raise DivergedError(
            f"training diverged: parameters are NaN or infinite after {training.epochs} epoch(s) of "
            f"{training.optimizer} with lr = {training.lr:g}; use a smaller lr"
        )
    objective.write_back(params)


def graphed_epochs(
    rounds: Sequence[Objective],
    params: ParamDict,
    optimizer: torch.optim.Optimizer,
    epochs: range,
    seeds: list[int],
    task: int,
    on_epoch: OnEpoch | None,
) -> None:
    """Run full-batch epochs on a GPU as CUDA graphs: a step is recorded once and then replayed.

    The dropout keys of an epoch are copied into the tensor that the recorded step reads. Recording takes a step;
    parameters and the optimizer's state are restored afterwards.
    """
    device = next(iter(params.values())).device
    keys = dropout_keys(seeds, task, epochs.stop, rounds[0].dropout_sites, device)
    key, loss = keys[0].clone(), torch.zeros(len(seeds), device=device)
    for group in optimizer.param_groups:
        group["capturable"] = True

    def step(objective: Objective) -> None:
        optimizer.zero_grad(set_to_none=True)
        total = objective.model_losses(params, key)
        total.sum().backward()
        loss.copy_(total.detach())
        optimizer.step()

    start = {name: value.detach().clone() for name, value in params.items()}
    before = {
        value: {name: part.clone() for name, part in state.items() if isinstance(part, Tensor)}
        for value, state in optimizer.state.items()
    }
    graphs = []
    for objective in rounds:
        optimizer.zero_grad(set_to_none=True)
        graphs.append(record(partial(step, objective), side_stream(device))[0])
    with torch.no_grad():
        for name, value in params.items():
            value.copy_(start[name])
            for part, now in optimizer.state[value].items():
                if isinstance(now, Tensor):
                    now.copy_(before[value][part]) if value in before else now.zero_()
    for epoch in epochs:
        key.copy_(keys[epoch])
        graphs[epoch % len(graphs)].replay()
        if on_epoch is not None:
            on_epoch(TaskProgress(epoch + 1, loss.clone(), params, optimizer))
