"""scikit-learn compatible continual node classification; needs the extra ``sklearn``."""

from ergnn.config.imports import extra

extra("sklearn", "sklearn", "ContinualNodeClassifier")

from ergnn.learning.estimator.classifier import EXPECTED_FAILED_CHECKS, ContinualNodeClassifier  # noqa: E402

__all__ = ["EXPECTED_FAILED_CHECKS", "ContinualNodeClassifier"]
