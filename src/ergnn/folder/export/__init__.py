"""A trained model as a plain module, and in files that other programs read."""

from ergnn.folder.export.files import EXPORTERS, METADATA
from ergnn.folder.export.module import AnalyticClassifier, NetworkClassifier, NodeClassifier, build_module, class_names

__all__ = [
    "EXPORTERS",
    "METADATA",
    "AnalyticClassifier",
    "NetworkClassifier",
    "NodeClassifier",
    "build_module",
    "class_names",
]
