"""The contract suite: checks of the rules that every selector, backbone, method and data set must satisfy.

>>> from ergnn.testing import check_selector
>>> check_selector("mf")

A check takes a registered name, a class, a factory function or (except for backbones) an instance, and options for the
constructor. It raises an :class:`AssertionError` that names the violated rule. :func:`checks` lists the rules, for one
test per rule. All graphs are small, synthetic and seeded; nothing is downloaded, and pytest is not required.
"""

from ergnn.testing.contracts import check_backbone, check_dataset, check_method, check_selector
from ergnn.testing.examples import FEATURES, example_context, example_graph, example_stream
from ergnn.testing.rules import KINDS, Check, Skipped, checks

__all__ = [
    "FEATURES",
    "KINDS",
    "Check",
    "Skipped",
    "check_backbone",
    "check_dataset",
    "check_method",
    "check_selector",
    "checks",
    "example_context",
    "example_graph",
    "example_stream",
]
