"""Callbacks: the hook interface, and ready-made callbacks."""

from ergnn.learning.callbacks.base import Callback, CallbackList, EpochCallback
from ergnn.learning.callbacks.history import History
from ergnn.learning.callbacks.mlflow import MLflow
from ergnn.learning.callbacks.progress import Progress
from ergnn.learning.callbacks.recorder import Recorder
from ergnn.learning.callbacks.tensorboard import TensorBoard
from ergnn.learning.callbacks.wandb import WandB
from ergnn.learning.callbacks.watch import Watch

__all__ = [
    "Callback",
    "CallbackList",
    "EpochCallback",
    "History",
    "MLflow",
    "Progress",
    "Recorder",
    "TensorBoard",
    "WandB",
    "Watch",
]
