"""The contract suite: what every selector, backbone, method and data set promises, as checks that anybody can run.

>>> from ergnn.testing import check_selector
>>> check_selector("mf")

A check takes a registered name, a class, any function that makes an instance, or (but for backbones) an instance,
and options for its constructor. It raises an :class:`AssertionError` that names the broken rule. For one test a
rule, :func:`checks` lists them. All graphs are small, synthetic and seeded; nothing is downloaded, and pytest is not
needed.
"""

from ergnn.testing.backbones import check_backbone
from ergnn.testing.datasets import check_dataset
from ergnn.testing.examples import FEATURES, example_context, example_graph, example_stream
from ergnn.testing.methods import check_method
from ergnn.testing.rules import KINDS, Check, Skipped, checks
from ergnn.testing.selectors import check_selector

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
