"""Callbacks: the hook interface, and ready-made callbacks."""

from ergnn.learning.callbacks.base import Callback, EpochCallback
from ergnn.learning.callbacks.progress import Progress
from ergnn.learning.callbacks.recorder import History, Recorder, TensorBoard

__all__ = ["Callback", "EpochCallback", "History", "Progress", "Recorder", "TensorBoard"]
