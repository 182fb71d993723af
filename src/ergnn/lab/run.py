"""Run all seeds and class orders of a configuration: several members at once, or one at a time, with a checkpoint after
each task or on several ranks (``torchrun … -m ergnn run …``)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from ergnn.config.errors import InputError
from ergnn.config.files import replacing, wrap_errors
from ergnn.config.learner_config import LearnerConfig
from ergnn.data import DATASETS, TaskStream, make_stream
from ergnn.data.datasets import base
from ergnn.data.presets import GraphCache, PresetStream
from ergnn.data.stream import move_streams, share_graphs
from ergnn.engine.distributed import Ranks, broadcast, check_agreement
from ergnn.lab.config import RunConfig, member_key
from ergnn.lab.result import Member, RunResult, SeedResult
from ergnn.lab.walks import SkipGram, walk_stream
from ergnn.learning.callbacks import EpochCallback
from ergnn.learning.evaluation import check_stream, evaluate_streams, scores_together
from ergnn.learning.learner import Learner
from ergnn.learning.metrics import AccuracyMatrix, roc_auc
from ergnn.learning.resolve import resolve

if TYPE_CHECKING:
    from ergnn.lab.store import RunStore

BATCH = 10
"""Number of members that are trained and stored together."""
CHECKPOINT_SCHEMA = 1
OnEpochs = Callable[[int], None]
"""Called with the number of training epochs since the last call."""


def members_of(config: RunConfig) -> list[Member]:
    """Return the seed and class order of every member of a run."""
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    if config.stream_settings["class_order"] == "seeded":
        return [(seed, seed) for seed in seeds]
    return [(seed, order) for order in range(config.orders) for seed in seeds]


def total_epochs(config: RunConfig) -> int:
    """Return the number of epochs of all members of a resolved configuration."""
    dataset = DATASETS.create(config.dataset, **config.dataset_options)
    tasks = dataset.num_tasks if not config.classes_per_task else dataset.classes // config.classes_per_task
    return int(config.seeds * config.orders * tasks * config.learner.epochs)


def streams_of(config: RunConfig, members: Sequence[Member], graphs: GraphCache | None = None) -> list[PresetStream]:
    """Return the stream of each member; equal streams are the same object, and equal graphs too."""
    graphs = {} if graphs is None else graphs
    first = (0, members[0][1]) if members else (0, 0)

    @cache
    def make(seed: int, order: int) -> PresetStream:
        preset = make_config_stream(config, seed, order, graphs)
        if (seed, order) == first:
            return preset
        like = make(0, order) if seed else make(*first)
        return preset._replace(stream=share_graphs(preset.stream, like.stream))

    same_split = make(*first).split in ("public", "tuned")
    return [make(0 if same_split else seed, order) for seed, order in members]


def make_config_stream(
    config: RunConfig, split_seed: int, order: int, graphs: GraphCache | None = None
) -> PresetStream:
    """Return the stream of a configuration; ``graphs`` as in :func:`ergnn.data.make_stream`."""
    settings: dict[str, Any] = {**config.stream_settings, "class_order": config.parsed_class_order()}
    preset = make_stream(
        config.dataset,
        **settings,
        split_seed=split_seed,
        order_seed=order,
        classes_per_task=config.classes_per_task,
        normalize=config.normalize,
        dataset_options=dict(config.dataset_options),
        scenario=config.scenario,
        graphs=graphs,
    )
    return preset if config.first_tasks is None else preset._replace(stream=preset.stream.first(config.first_tasks))


class StreamCache:
    """Keeps the streams of the last members, on their device, for another configuration with the same streams."""

    def __init__(self) -> None:
        self._graphs: GraphCache = {}
        self._key = ""
        self._presets: list[PresetStream] = []

    def get(self, config: RunConfig, members: Sequence[Member], device: str = "cpu") -> list[PresetStream]:
        """Return the stream of each member, on a device."""
        sizes = config.classes_per_task, config.first_tasks, config.normalize
        of_data = (config.dataset, config.dataset_options, config.scenario, *sizes)
        source = base.data_root(None), base.downloads_allowed()
        key = repr((of_data, source, config.stream_settings, config.parsed_class_order(), device, list(members)))
        if key != self._key:
            self._key, self._presets = "", []  # free the memory before more is used
            self._presets, self._key = _moved(streams_of(config, members, self._graphs), device), key
        return _moved(self._presets, device)  # new graphs: what is cached per graph is freed


def _moved(presets: Sequence[PresetStream], device: str) -> list[PresetStream]:
    """Move streams to a device; equal streams remain the same object."""
    unique = {id(preset): preset for preset in presets}
    streams = move_streams([preset.stream for preset in unique.values()], device)
    moved = {key: unique[key]._replace(stream=stream) for key, stream in zip(unique, streams, strict=True)}
    return [moved[id(preset)] for preset in presets]


def make_learner(config: LearnerConfig, seed: int) -> Learner:
    """Create the learner of one seed."""
    return Learner(replace(config, seed=seed, method=deepcopy(config.method)))


def check_run(config: RunConfig, streams: StreamCache, member: Member = (0, 0)) -> tuple[PresetStream, Learner]:
    """Return the stream and the learner of a member of a resolved configuration; an error says why it cannot run."""
    (preset,) = streams.get(config, [member])
    learner = make_learner(config.learner, member[0])
    check_stream(learner, preset.stream)
    if config.input != "features":
        SkipGram()  # raises an error if gensim is missing
    return preset, learner


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
                with replacing(path) as new:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with new.open("wb") as file:  # given a path, torch.save raises other errors than OSError
                        saved = {"schema": CHECKPOINT_SCHEMA, "learner": learner.state_dict(), "rows": rows}
                        torch.save(saved, file)
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
        saved = _read_checkpoint(path) if self.is_first and path is not None else None
        if self.ranks is not None:
            saved = broadcast(saved)
        if saved is None:
            return []
        rows: list[list[float]] = saved["rows"]
        learner.load_state_dict(saved["learner"], stream[len(rows) - 1].graph)
        if self.is_first:
            self.say(f"seed {member[0]}, class order {member[1]}: {len(rows)} of {len(stream)} tasks are already done")
        return rows


def _read_checkpoint(path: Path) -> dict[str, Any] | None:
    """Read a checkpoint, or None; only tensors, numbers and strings are read."""
    if not path.exists():
        return None
    with wrap_errors(path, "a checkpoint of this version; remove it to start this run again"):
        saved: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        if saved["schema"] != CHECKPOINT_SCHEMA:
            raise ValueError(f"its schema is {saved['schema']}")
    return saved


def run_members(
    config: RunConfig,
    members: Sequence[Member] | None = None,
    progress: OnEpochs | None = None,
    batch: int = BATCH,
    learn: Callable[[Member, Learner, TaskStream, OnEpochs | None], AccuracyMatrix] | None = None,
    cache: StreamCache | None = None,
    presets: Sequence[PresetStream] | None = None,
) -> Iterator[list[SeedResult]]:
    """Yield the results of members of a resolved configuration (by default all), in batches of ``batch``.

    Args:
        learn: lets the learner of one member at a time learn its stream, and scores it; by default, the learners of a
            batch are trained together.
        presets: the stream of each member; by default those of the configuration.
    """
    members = members_of(config) if members is None else members
    if not members:
        return
    batch = batch if learn is None else 1
    device, is_walked = str(config.learner.device), config.input != "features"
    Learner(config.learner)  # refuses an unavailable device before any work
    if presets is None:
        presets = (cache or StreamCache()).get(config, members, "cpu" if is_walked else device)
    for preset in {id(preset): preset for preset in presets}.values():
        check_stream(Learner(config.learner), preset.stream)
    counter = [] if progress is None else [EpochCallback(lambda _: progress(1))]
    for at in range(0, len(members), batch):
        start = time.perf_counter()
        trained, theirs = members[at : at + batch], presets[at : at + batch]
        learners = [make_learner(config.learner, seed) for seed, _ in trained]
        streams = [preset.stream for preset in theirs]
        if is_walked:
            streams = [
                walk_stream(stream, config.input, seed, **config.input_options).to(device)
                for (seed, _), stream in zip(trained, streams, strict=True)
            ]
        if learn is None:
            matrices = evaluate_streams(learners, streams, split=config.score, callbacks=counter)
        else:
            matrices = [learn(*one, progress) for one in zip(trained, learners, streams, strict=True)]
        seconds = (time.perf_counter() - start) / len(trained)
        areas = [area_at_end(learner, stream, config.score) for learner, stream in zip(learners, streams, strict=True)]
        yield [
            _seed_result(*values, seconds) for values in zip(trained, theirs, learners, matrices, areas, strict=True)
        ]


def area_at_end(learner: Learner, stream: TaskStream, split: str) -> float | None:
    """Return the area under the ROC curve over the scored nodes of all tasks; None unless two classes compete."""
    classes = {c for task in stream for c in task.classes}
    if len(classes) != 2 or learner.heads.kind != "growing" or stream[0].own_graph:
        return None
    nodes = torch.cat([getattr(task, split) for task in stream])
    positive = stream[0].graph.y[nodes].cpu().numpy() == max(classes)
    column = learner.classes().tolist().index(max(classes))
    if not positive.any() or positive.all():
        return None
    return roc_auc(positive, learner.predict_proba(nodes)[:, column].cpu().numpy())


def _seed_result(
    member: Member, preset: PresetStream, learner: Learner, matrix: AccuracyMatrix, area: float | None, seconds: float
) -> SeedResult:
    buffer, names = learner.method.buffer, preset.stream[0].graph.class_names
    history = [
        {**record, "test_nodes": task.test.numel()} for record, task in zip(learner.history, preset.stream, strict=True)
    ]
    if area is not None:
        history[-1]["roc_auc"] = area
    return SeedResult(
        *member,
        classes=[list(task.classes) for task in preset.stream],
        matrix=matrix,
        buffer_ids=buffer.nodes.tolist() if buffer else [],
        buffer_bytes=learner.method.nbytes,
        history=history,
        split=preset.split,
        notes=preset.notes,
        class_names=None if names is None else tuple(names),
        leaky=learner.method.leaky,
        seconds=seconds,
        data=preset.stream.name,
    )


def run(
    what: RunConfig | TaskStream,
    learner: LearnerConfig | None = None,
    *,
    seeds: int | Sequence[int] | None = None,
    denominator: Literal["M-1", "M"] | None = None,
    progress: OnEpochs | None = None,
    store: RunStore | None = None,
    checkpoint: str | Path | None = None,
    ranks: Ranks | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> RunResult:
    """Run a configuration, or a learner on a custom stream, with several seeds.

    ``run(RunConfig("cora", backbone="gcn", seeds=5))``, or ``run(stream, LearnerConfig("gcn"), seeds=5)``.

    With checkpoints or on several ranks, seeds are trained one at a time.

    Args:
        what: a complete :class:`RunConfig`, or a :class:`TaskStream`.
        learner: for a stream: configuration of the learner; by default ``LearnerConfig()``.
        seeds: for a stream: number of seeds from 0, by default 10, or a list of seeds.
        denominator: for a stream: denominator of the forgetting mean, ``M-1`` (default) or ``M``.
        progress: called with the number of epochs since the last call, on the first rank only.
        store: for a configuration: finished runs, which are not repeated; receives the others as they finish. Other
            ranks than the first have none, and return only what they computed.
        checkpoint: for a configuration: folder with one file per member, written after each task; finished tasks are
            not repeated.
        ranks: ranks to compute on, see :func:`ergnn.engine.distributed.joined`.
        say: called with messages about resumed work.
    """
    start, presets, is_first = time.perf_counter(), None, ranks is None or ranks.is_first
    if isinstance(what, RunConfig):
        if (learner, seeds, denominator) != (None, None, None):
            raise InputError("a RunConfig already contains learner, seeds and denominator; set them there")
        config = what.resolved() if ranks is None else what.resolved().with_settings(device=str(ranks.device))
        members = members_of(config)
    else:
        if (store, checkpoint) != (None, None):
            raise InputError("store and checkpoint need a RunConfig, whose settings name the runs")
        chosen = range(10 if seeds is None else seeds) if seeds is None or isinstance(seeds, int) else seeds
        if not chosen:
            raise InputError(f"seeds is {seeds!r}; at least one is needed")
        config = RunConfig(what.name, learner=resolve(learner or LearnerConfig()), denominator=denominator or "M-1")
        config.check()
        members = [(seed, 0) for seed in chosen]
        presets = [PresetStream(what.to(str(config.learner.device)), "given", what.notes)] * len(members)
    missing = members if store is None else store.missing(config)
    missing = missing if ranks is None else broadcast(missing)
    is_plain, progress = ranks is None and checkpoint is None, progress if is_first else None
    learn = None if is_plain else Checkpointer(config, checkpoint, ranks, say).learn
    results: list[SeedResult] = []
    for finished in run_members(config, missing, progress, learn=learn, presets=presets):
        results += finished
        if store is not None:
            store.put_all(config, finished)
    if store is None:
        seconds, memory = time.perf_counter() - start, peak_memory_mb(str(config.learner.device))
        return RunResult(config, tuple(results), seconds, memory)
    if len(missing) < len(members):
        say(f"note: {len(members) - len(missing)} of {len(members)} runs were already in {store.path}")
    return store.result(config)


def peak_memory_mb(device: str = "cpu") -> float:
    """Return the peak memory so far, of the process or of the GPU."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    status = Path("/proc/self/status")
    if status.exists():  # getrusage survives exec and would include the memory of the parent process
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 2**10
    try:
        import resource
    except ImportError:  # Windows
        import psutil  # type: ignore[import-untyped]  # comes with PyG

        held = psutil.Process().memory_info()
        return float(getattr(held, "peak_wset", held.rss)) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
