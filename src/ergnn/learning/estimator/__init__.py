"""scikit-learn compatible continual node classification."""

from ergnn.learning.estimator.classifier import EXPECTED_FAILED_CHECKS, ContinualNodeClassifier

__all__ = ["EXPECTED_FAILED_CHECKS", "ContinualNodeClassifier"]
