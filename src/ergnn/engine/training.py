"""The training loop: minimize a weighted sum of losses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from ergnn.config.errors import DivergedError, InputError
from ergnn.config.learner_config import LearnerConfig, check_training
from ergnn.data.hashing import stream_key
from ergnn.engine.distributed import ALONE, Ranks, current_ranks
from ergnn.engine.dropout import dropout_keys
from ergnn.engine.hardware import Recorded, side_stream
from ergnn.engine.objective import Objective, ParamDict
from ergnn.engine.sampling import Sampling
from ergnn.engine.slots import make_optimizer
from ergnn.engine.step_hooks import Penalty, StepHook, join_hooks, total_penalties

T = TypeVar("T")
_END = object()
GRAPH_FROM = 20
"""Minimum number of epochs for which steps on a GPU are recorded as a CUDA graph."""


@dataclass(frozen=True)
class Training:
    """The training settings of a task: those of a :class:`ergnn.LearnerConfig`, without missing values."""

    epochs: int = LearnerConfig.epochs
    lr: float = 0.005
    weight_decay: float = LearnerConfig.weight_decay or 0.0
    optimizer: str = LearnerConfig.optimizer
    batch_size: int | None = None
    fanout: tuple[int, ...] | None = None
    with_replacement: bool = False
    best_epoch: bool = False

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


class BestEpoch:
    """The parameters and buffers of the epoch with the best validation accuracy so far, for each model.

    Nothing synchronizes with a GPU. Of several epochs with the same accuracy, the first is kept.

    Args:
        validation: the validation examples, as an objective of the parameters that are trained.
        params: these parameters.
    """

    def __init__(self, validation: Objective, params: ParamDict) -> None:
        self.validation, self._models = validation, len(validation.sizes)
        self.accuracy = torch.full((self._models,), -1.0, device=validation.targets.device)
        self.params, self.buffers = _copied(params), _copied(validation.buffers())

    @torch.no_grad()
    def update(self, params: ParamDict) -> None:
        """Score the parameters at the end of an epoch."""
        right = (self.validation.logits(params).argmax(1) == self.validation.targets).float()
        accuracy = torch.stack([of_model.mean() for of_model in right.split(self.validation.sizes)])
        better = accuracy > self.accuracy
        self.accuracy = torch.where(better, accuracy, self.accuracy)
        for name, value in params.items():
            rows = better[0]
            if self._models > 1:
                rows = better.repeat_interleave(value.size(0) // self._models).view(-1, *[1] * (value.dim() - 1))
            self.params[name] = torch.where(rows, value.detach(), self.params[name])
        for name, value in self.validation.buffers().items():
            self.buffers[name] = torch.where(better.any(), value, self.buffers[name])

    def restore(self) -> None:
        """Copy the buffers back into the model; parameters are written by the training loop."""
        for name, value in self.validation.buffers().items():
            value.copy_(self.buffers[name])

    def state_dict(self, model: int) -> dict[str, Any]:
        params = {name: value.chunk(self._models)[model].clone() for name, value in self.params.items()}
        return {"accuracy": self.accuracy[model : model + 1].clone(), "params": params, "buffers": dict(self.buffers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of one model."""
        device = self.accuracy.device
        self.accuracy = state["accuracy"].to(device)
        self.params, self.buffers = _copied(state["params"], device), _copied(state["buffers"], device)


def _copied(values: ParamDict, device: torch.device | None = None) -> ParamDict:
    return {name: value.detach().to(device, copy=True) for name, value in values.items()}


class MiniBatches:
    """The batches of an epoch, determined by the seed and the epoch.

    The first ``task_size`` examples belong to the task. A batch consists of ``size`` of these, each of which is used
    once per epoch in random order, and up to ``size`` of the others, sampled for every batch (except those of weight
    0). With n examples of the task and m others, the loss of the batch is

        n/|batch| Σ_batch weight · loss + m/|sample| Σ_sample weight · loss .

    Its expectation is the full loss, and if both parts have equal weight, they have equal weight in each batch. With
    several ranks (:mod:`ergnn.engine.distributed`), every batch is divided among them.
    """

    def __init__(self, objective: Objective, size: int, task_size: int, seed: int, ranks: Ranks = ALONE) -> None:
        weights = objective.weights
        self.objective = objective
        if objective.sampling is None:
            self.objective = objective.batch(torch.arange(weights.numel(), device=weights.device))
        self.size, self.task_size = size, task_size
        self.others = task_size + weights[task_size:].nonzero().flatten()
        self.seed, self.ranks = seed, ranks

    def __len__(self) -> int:
        return -(-self.task_size // self.size)

    def of_epoch(self, epoch: int) -> Iterator[Objective]:
        """Yield the batches; with sampled neighbors, a thread prepares each batch during the previous step."""
        batches = self._batches(epoch)
        return batches if self.objective.sampling is None else prefetched(batches)

    def _batches(self, epoch: int) -> Iterator[Objective]:
        weights, device = self.objective.weights, self.objective.weights.device
        generator = torch.Generator().manual_seed((self.seed + epoch * 15_485_863) % 2**63)
        count = self.others.numel()
        for i, index in enumerate(torch.randperm(self.task_size, generator=generator).to(device).split(self.size)):
            scaled = weights[index] * (self.task_size / index.numel())
            if count:
                sample = self.others[torch.randperm(count, generator=generator)[: self.size].to(device)]
                index = torch.cat([index, sample])
                scaled = torch.cat([scaled, weights[sample] * (count / sample.numel())])
            yield self.objective.batch(*self.ranks.pick(index, scaled), key=stream_key(self.seed, epoch, i))


def prefetched(items: Iterable[T]) -> Iterator[T]:
    """Yield the items in order, each prepared by a thread while the one before is in use.

    An error is raised at the position of the item that caused it. If the consumer stops early, so does the thread.
    """
    iterator = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="ergnn-prefetch") as thread:
        future = thread.submit(next, iterator, _END)
        while (item := future.result()) is not _END:
            future = thread.submit(next, iterator, _END)
            yield item  # type: ignore[misc]


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
        hooks: the hook of each model's method, if any.
        best: the best epoch so far, if it is kept.
    """

    epoch: int
    losses: Tensor
    params: ParamDict
    optimizer: torch.optim.Optimizer
    buffers: ParamDict = field(default_factory=dict)
    model: int = 0
    hooks: Sequence[StepHook | None] = ()
    best: BestEpoch | None = None

    @property
    def loss(self) -> Tensor:
        """The loss of this model, a 0-d tensor on its device."""
        return self.losses[self.model]

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything that later epochs depend on, besides seed, task and epoch."""
        state, hook = self.optimizer.state, self.hooks[self.model] if self.hooks else None
        return {
            "epoch": self.epoch,
            "params": {name: self._part(value.detach(), value) for name, value in self.params.items()},
            "optimizer": {
                name: {key: self._part(item, value) for key, item in state[value].items() if isinstance(item, Tensor)}
                for name, value in self.params.items()
                if value in state
            },
            "buffers": _copied(self.buffers),
            "hook": {} if hook is None else _copied(hook.state_dict()),
            "best": None if self.best is None else self.best.state_dict(self.model),
        }

    def _part(self, value: Tensor, param: Tensor) -> Tensor:
        """Copy this model's part of a stacked parameter, or of a tensor of the same shape."""
        stacked = value.shape == param.shape
        return (value.chunk(self.losses.numel())[self.model] if stacked else value).clone()


OnEpoch = Callable[[TaskProgress], None]


def train_in_phases(
    rounds: Sequence[Objective],
    training: Training,
    seeds: list[int],
    task: int,
    on_epoch: OnEpoch | None = None,
    *,
    task_size: int | None = None,
    hooks: Sequence[StepHook | None] = (),
    penalties: Sequence[Penalty | None] = (),
    validation: Objective | None = None,
    resume: dict[str, Any] | None = None,
    stream: int = 0,
) -> Iterator[None]:
    """Minimize ``Σ weight · loss`` from the models' current parameters, and write the result into the models.

    Models that are trained side by side share no parameters, so the gradient of the sum is correct for each.

    Yields:
        if steps are recorded on a GPU, after recording them, and after starting all epochs, which run in a stream of
        their own. Several groups of models that cannot be stacked can thus run at the same time.

    Args:
        rounds: objectives of the same parameters; epochs cycle through them.
        seeds: one seed per model; seed and task number determine the dropout masks and the batches.
        on_epoch: function to call after each epoch.
        task_size: number of examples of the task, which come first (by default all); used for mini-batches.
        hooks: hooks of each model around each step; by default none.
        penalties: for each model, a function of its stacked parameters that returns a term to add to its loss in each
            step; by default none.
        validation: validation examples of the same models and heads, to keep the best epoch; by default the last.
        resume: ``state_dict`` of a :class:`TaskProgress` to resume from; the result is the same bit for bit.
        stream: number of the GPU stream for recorded steps; steps in the same stream run one after another.
    """
    objective, ranks = rounds[0], current_ranks() or ALONE
    params = {name: value.requires_grad_() for name, value in objective.parameters().items()}
    device = objective.targets.device
    settings = training.lr, training.weight_decay
    optimizer = make_optimizer(training.optimizer, list(params.values()), len(seeds), *settings)
    start = 0 if resume is None else _restore(objective, params, optimizer, resume, training.epochs)
    best = None if validation is None else BestEpoch(validation, params)
    if best is not None and resume is not None and resume.get("best"):
        best.load_state_dict(resume["best"])
    mini = None
    if training.batch_size is not None:
        if len(seeds) != 1:
            raise InputError(f"mini-batches support one model at a time; {len(seeds)} are trained side by side")
        count = objective.weights.numel() if task_size is None else task_size
        mini = MiniBatches(objective, training.batch_size, count, seeds[0] * 1_000_003 + task * 7919 + 29, ranks)
    per_epoch = 1 if mini is None else len(mini)
    for hook in filter(None, hooks):
        hook.skip(start * per_epoch)
        if resume is not None:
            hook.load_state_dict(_copied(resume.get("hook", {}), device))
    keys = dropout_keys(seeds, task, training.epochs * per_epoch, objective.dropout_sites, device)
    steps = _Steps(objective, params, optimizer, ranks, on_epoch, hooks, penalties, best)
    epochs = range(start, training.epochs)
    if mini is None and steps.recordable(rounds) and len(epochs) >= GRAPH_FROM:
        for param_group in optimizer.param_groups:
            param_group["capturable"] = True
        recorded = [Recorded(partial(steps.take, batch), side_stream(device, stream)) for batch in rounds]
        yield from recorded_epochs(recorded, keys, epochs, steps)
    else:
        rounds = [ranks.share(batch) for batch in rounds] if mini is None else rounds
        for epoch in epochs:
            losses = torch.zeros(len(seeds), device=device)
            batches = [rounds[epoch % len(rounds)]] if mini is None else mini.of_epoch(epoch)
            for i, batch in enumerate(batches):
                loss = steps.take(batch, keys[epoch * per_epoch + i])
                steps.hook.between_steps(steps.params)
                if on_epoch is not None:
                    losses += loss / per_epoch
            steps.end_epoch(epoch, losses)
    if best is not None:
        best.restore()
        params = best.params
    if not all(bool(torch.isfinite(value).all()) for value in params.values()):
        raise DivergedError(
            f"training diverged: parameters are NaN or infinite after {training.epochs} epoch(s) of "
            f"{training.optimizer} with lr = {training.lr:g}; use a smaller lr"
        )
    objective.write_back(params)


@dataclass
class _Steps:
    """The training steps of a task, with the penalties and hooks of the methods; see :func:`train_in_phases`."""

    objective: Objective
    params: ParamDict
    optimizer: torch.optim.Optimizer
    ranks: Ranks
    on_epoch: OnEpoch | None
    hooks: Sequence[StepHook | None]
    penalties: Sequence[Penalty | None]
    best: BestEpoch | None

    def __post_init__(self) -> None:
        self.hook = join_hooks(self.hooks)
        self.penalties = self.penalties if any(self.penalties) else ()

    def recordable(self, rounds: Sequence[Objective]) -> bool:
        """Return whether the steps can be recorded as CUDA graphs."""
        same_operations = all(one.recordable for one in rounds) and (not any(self.hooks) or self.hook.recordable)
        return self.objective.targets.is_cuda and self.ranks.size == 1 and same_operations and not self.penalties

    def take(self, batch: Objective, key: Tensor) -> Tensor:
        """Take a step, and return the loss of each model before it."""
        self.optimizer.zero_grad()
        loss = batch.model_losses(self.params, self.ranks.dropout_keys(key))
        if self.penalties:
            loss = loss + total_penalties(self.penalties, self.params) / self.ranks.size
        loss.sum().backward()
        self.ranks.sum_gradients(self.params)
        self.hook.before_step(self.params)
        self.optimizer.step()
        self.hook.after_step(self.params, self.optimizer)
        return loss.detach() * self.ranks.size

    def end_epoch(self, epoch: int, losses: Tensor) -> None:
        if self.best is not None:
            self.best.update(self.params)
        if self.on_epoch is not None:
            shared = (self.params, self.optimizer, self.objective.buffers())
            self.on_epoch(TaskProgress(epoch + 1, losses, *shared, hooks=self.hooks, best=self.best))


def recorded_epochs(recorded: Sequence[Recorded], keys: Tensor, epochs: range, steps: _Steps) -> Iterator[None]:
    """Run full-batch epochs on a GPU in the stream of the recorded steps, one per objective."""
    side = recorded[0].stream
    main = torch.cuda.current_stream(side.device)
    side.wait_stream(main)
    try:
        for epoch in epochs:
            with torch.cuda.stream(side):
                losses = recorded[epoch % len(recorded)](keys[epoch])
                steps.hook.between_steps(steps.params)
                steps.end_epoch(epoch, losses.clone())
            if epoch == epochs.start + len(recorded) - 1:  # each objective has been recorded
                yield
        yield
    except BaseException:  # also if another group fails
        side.synchronize()  # the tensors that it uses are freed next
        raise
    finally:
        main.wait_stream(side)


def _restore(
    objective: Objective, params: ParamDict, optimizer: torch.optim.Optimizer, state: dict[str, Any], epochs: int
) -> int:
    """Restore parameters, buffers and optimizer; return the number of finished epochs."""
    epoch, buffers = state["epoch"], objective.buffers()
    if not isinstance(epoch, int) or not 0 <= epoch <= epochs:
        raise InputError(f"the state to resume is at epoch {epoch!r}; epochs must be 0 to {epochs}")
    pairs = [(params, state["params"]), (buffers, state.get("buffers", {}))]
    shapes = [[{name: value.shape for name, value in values.items()} for values in pair] for pair in pairs]
    if shapes[0][0] != shapes[0][1] or not shapes[1][1].items() <= shapes[1][0].items():
        raise InputError("the state to resume has different parameters; it does not match this task and learner")
    with torch.no_grad():
        for values, saved in pairs:
            for name, value in saved.items():
                values[name].copy_(value)
    for name, value in params.items():
        if name in state["optimizer"]:
            optimizer.state[value] = _copied(state["optimizer"][name], value.device)
    return epoch
