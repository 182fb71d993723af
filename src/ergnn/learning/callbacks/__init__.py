"""Callbacks: the hook interface, and ready-made callbacks."""

from ergnn.learning.callbacks.base import Callback, CallbackList, EpochCallback
from ergnn.learning.callbacks.progress import Progress
from ergnn.learning.callbacks.recorder import History, Recorder
from ergnn.learning.callbacks.trackers import MLflow, TensorBoard, WandB
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
