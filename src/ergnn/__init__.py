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

from ergnn.config.imports import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ergnn.config.errors import ErgnnError, InputError
    from ergnn.config.learner_config import LearnerConfig
    from ergnn.data import Graph, Split, Task, TaskStream, load_graph, make_stream
    from ergnn.engine.training import Training
    from ergnn.folder.export import load
    from ergnn.lab.config import RunConfig
    from ergnn.lab.result import RunResult
    from ergnn.lab.run import run
    from ergnn.learning.callbacks import Callback
    from ergnn.learning.estimator import ContinualNodeClassifier as ContinualNodeClassifier
    from ergnn.learning.evaluation import evaluate_stream
    from ergnn.learning.learner import Learner
    from ergnn.learning.metrics import AccuracyMatrix, average_accuracy, forgetting_mean, performance_mean
    from ergnn.learning.observing import observe_together
    from ergnn.methods import METHODS, Method
    from ergnn.nn.backbones import BACKBONES, Backbone
    from ergnn.replay import SELECTORS, ExperienceBuffer, Selector

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
        "ergnn.learning.callbacks": ("Callback",),
        "ergnn.config.learner_config": ("LearnerConfig",),
        "ergnn.data": ("Graph", "Split", "Task", "TaskStream", "load_graph", "make_stream"),
        "ergnn.config.errors": ("ErgnnError", "InputError"),
        "ergnn.learning.estimator": ("ContinualNodeClassifier",),
        "ergnn.learning.evaluation": ("evaluate_stream",),
        "ergnn.lab.config": ("RunConfig",),
        "ergnn.lab.result": ("RunResult",),
        "ergnn.lab.run": ("run",),
        "ergnn.folder.export": ("load",),
        "ergnn.learning.learner": ("Learner",),
        "ergnn.methods": ("METHODS", "Method"),
        "ergnn.learning.metrics": ("AccuracyMatrix", "average_accuracy", "forgetting_mean", "performance_mean"),
        "ergnn.nn.backbones": ("BACKBONES", "Backbone"),
        "ergnn.learning.observing": ("observe_together",),
        "ergnn.replay": ("SELECTORS", "ExperienceBuffer", "Selector"),
        "ergnn.engine.training": ("Training",),
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
