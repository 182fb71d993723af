"""Following a learner at work: the interface, and ready-made callbacks."""

from ergnn.callbacks.base import Callback, CallbackList

__all__ = ["Callback", "CallbackList"]
