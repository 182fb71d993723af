"""Runs with a checkpoint after each task, or on several ranks (``torchrun … -m ergnn run …``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ergnn.config.errors import InputError
from ergnn.config.files import replacing
from ergnn.data import TaskStream
from ergnn.engine.distributed import Ranks, broadcast, check_agreement
from ergnn.lab.config import RunConfig, member_key
from ergnn.lab.result import Member
from ergnn.learning.callbacks import EpochCallback
from ergnn.learning.evaluation import scores_together
from ergnn.learning.learner import Learner
from ergnn.learning.metrics import AccuracyMatrix

SCHEMA = 1
OnEpochs = Callable[[int], None]
"""Called with the number of training epochs since the last call."""


class Checkpointer:
    """Learns streams task by task, writes checkpoints, and keeps the ranks consistent."""

    def __init__(
        self, config: RunConfig, folder: str | Path | None, ranks: Ranks | None, say: Callable[[str], None]
    ) -> None:
        self.config, self.folder, self.ranks, self.say = config, folder, ranks, say
        self.is_first = ranks is None or ranks.is_first

    def learn(self, member: Member, learner: Learner, stream: TaskStream, progress: OnEpochs | None) -> AccuracyMatrix:
        """Let a learner learn its stream, from its checkpoint if any, and score it after each task."""
        path = None if self.folder is None else Path(self.folder) / f"{member_key(self.config, *member)}.pt"
        rows = self._resume(path, member, learner, stream)
        if progress is not None:
            progress(learner.training.epochs * len(rows))
        for i in range(len(rows), len(stream)):
            counter = [] if progress is None else [EpochCallback(lambda _: progress(1))]
            learner.observe(stream[i], callbacks=counter)
            (scores,) = scores_together([learner], [stream], self.config.score)
            rows.append(self._synchronized(stream[i].name, learner, scores))
            if path is not None and self.is_first:
                _write(path, {"schema": SCHEMA, "learner": learner.state_dict(), "rows": rows})
        return AccuracyMatrix(rows, stream.metric)

    def _synchronized(self, name: str, learner: Learner, scores: list[float]) -> list[float]:
        """Copy scores and stored nodes from rank 0, then check that all ranks have the same state."""
        if self.ranks is None:
            return scores
        state = learner.state_dict()
        sent: list[Any] = [{k: v for k, v in state.items() if k != "model"}, scores]
        shared, scores = broadcast(sent)
        if not self.ranks.is_first:
            learner.load_state_dict({**shared, "model": state["model"]}, learner.graph)
        check_agreement(self.ranks, f"what was learned in {name}", [learner.state_dict(), scores])
        return scores

    def _resume(self, path: Path | None, member: Member, learner: Learner, stream: TaskStream) -> list[list[float]]:
        """Restore the learner from its checkpoint; return the scores of finished tasks."""
        saved = _read(path) if self.is_first and path is not None else None
        if self.ranks is not None:
            saved = broadcast(saved)
        if saved is None:
            return []
        rows: list[list[float]] = saved["rows"]
        learner.load_state_dict(saved["learner"], stream[len(rows) - 1].graph)
        if self.is_first:
            self.say(f"seed {member[0]}, class order {member[1]}: {len(rows)} of {len(stream)} tasks are already done")
        return rows


def _read(path: Path) -> dict[str, Any] | None:
    """Read a checkpoint, or None; only tensors, numbers and strings are read."""
    if not path.exists():
        return None
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise anything
        raise InputError(f"{path}: cannot be read ({error}); remove it to start this run again") from None
    if not isinstance(saved, dict) or saved.get("schema") != SCHEMA:
        raise InputError(f"{path}: not a checkpoint that this version can read; remove it to start this run again")
    return saved


def _write(path: Path, saved: dict[str, Any]) -> None:
    with replacing(path) as new:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as file:  # given a path, torch.save raises other errors than OSError
            torch.save(saved, file)
