"""ergnn: continual learning for graph neural networks.

>>> import ergnn
>>> stream = ergnn.make_stream("cora", split="seeded").stream
>>> learner = ergnn.Learner("gat", method="replay", selector="mf*", per_class=1, epochs=2)
>>> matrix = ergnn.evaluate_stream(learner, stream)
>>> learner.num_tasks, matrix.num_tasks
(3, 3)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ergnn.lazy import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ergnn.callbacks import Callback
    from ergnn.config import LearnerConfig
    from ergnn.data import Graph, Split, Task, TaskStream, load_graph, make_stream
    from ergnn.errors import ErgnnError, InputError
    from ergnn.estimator import ContinualNodeClassifier as ContinualNodeClassifier
    from ergnn.evaluation import evaluate_stream
    from ergnn.experiments.config import RunConfig
    from ergnn.experiments.result import RunResult
    from ergnn.experiments.run import run
    from ergnn.folder.exporting import load
    from ergnn.learner import Learner
    from ergnn.methods import METHODS, Method
    from ergnn.metrics import AccuracyMatrix, average_accuracy, forgetting_mean, performance_mean
    from ergnn.nn.backbones import BACKBONES, Backbone
    from ergnn.observing import observe_together
    from ergnn.replay import SELECTORS, ExperienceBuffer, Selector
    from ergnn.training import Training

__all__ = [
    "BACKBONES",
    "METHODS",
    "SELECTORS",
    "AccuracyMatrix",
    "Backbone",
    "Callback",
    "ErgnnError",
    "ExperienceBuffer",
    "Graph",
    "InputError",
    "Learner",
    "LearnerConfig",
    "Method",
    "RunConfig",
    "RunResult",
    "Selector",
    "Split",
    "Task",
    "TaskStream",
    "Training",
    "__version__",
    "average_accuracy",
    "evaluate_stream",
    "forgetting_mean",
    "load",
    "load_graph",
    "make_stream",
    "observe_together",
    "performance_mean",
    "run",
]

__getattr__ = lazy_names(
    __name__,
    {
        "ergnn.callbacks": ("Callback",),
        "ergnn.config": ("LearnerConfig",),
        "ergnn.data": ("Graph", "Split", "Task", "TaskStream", "load_graph", "make_stream"),
        "ergnn.errors": ("ErgnnError", "InputError"),
        "ergnn.estimator": ("ContinualNodeClassifier",),
        "ergnn.evaluation": ("evaluate_stream",),
        "ergnn.experiments.config": ("RunConfig",),
        "ergnn.experiments.result": ("RunResult",),
        "ergnn.experiments.run": ("run",),
        "ergnn.folder.exporting": ("load",),
        "ergnn.learner": ("Learner",),
        "ergnn.methods": ("METHODS", "Method"),
        "ergnn.metrics": ("AccuracyMatrix", "average_accuracy", "forgetting_mean", "performance_mean"),
        "ergnn.nn.backbones": ("BACKBONES", "Backbone"),
        "ergnn.observing": ("observe_together",),
        "ergnn.replay": ("SELECTORS", "ExperienceBuffer", "Selector"),
        "ergnn.training": ("Training",),
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
