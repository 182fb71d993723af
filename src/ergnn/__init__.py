"""ergnn: graph neural networks that keep learning.

>>> import ergnn
>>> stream = ergnn.make_stream("cora", split="seeded").stream
>>> learner = ergnn.Learner("gat", method="replay", selector="mf*", per_class=1, epochs=2)
>>> for task in stream:
...     _ = learner.observe(task)
>>> learner.num_tasks
3
"""

__version__ = "0.1.0"

from typing import TYPE_CHECKING, Any

from ergnn.callbacks import Callback
from ergnn.data import Graph, Split, Task, TaskStream, load_graph, make_stream
from ergnn.errors import ErgnnError, InputError
from ergnn.experiments import RunConfig, run
from ergnn.learner import Learner
from ergnn.methods import METHODS, Method
from ergnn.metrics import AccuracyMatrix, forgetting_mean, performance_mean
from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.observing import observe_together
from ergnn.replay import SELECTORS, ExperienceBuffer, Selector
from ergnn.training import Training

if TYPE_CHECKING:
    from ergnn.estimator import ContinualNodeClassifier as ContinualNodeClassifier

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
    "Method",
    "RunConfig",
    "Selector",
    "Split",
    "Task",
    "TaskStream",
    "Training",
    "__version__",
    "forgetting_mean",
    "load_graph",
    "make_stream",
    "observe_together",
    "performance_mean",
    "run",
]


def __getattr__(name: str) -> Any:
    """``ergnn.ContinualNodeClassifier`` needs scikit-learn, an extra that nothing else waits for."""
    if name == "ContinualNodeClassifier":
        from ergnn.estimator import ContinualNodeClassifier

        return ContinualNodeClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
