"""Callbacks: the hook interface, and ready-made callbacks."""

from ergnn.callbacks.base import Callback, CallbackList, EpochCallback
from ergnn.callbacks.history import History
from ergnn.callbacks.mlflow import MLflow
from ergnn.callbacks.progress import Progress
from ergnn.callbacks.recorder import Recorder
from ergnn.callbacks.tensorboard import TensorBoard
from ergnn.callbacks.wandb import WandB
from ergnn.callbacks.watch import Watch

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
