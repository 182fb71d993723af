"""scikit-learn compatible continual node classification; needs the extra ``sklearn``."""

from ergnn.config.lazy import extra

extra("sklearn", "sklearn", "ContinualNodeClassifier")

from ergnn.learning.estimator.classifier import ContinualNodeClassifier  # noqa: E402
from ergnn.learning.estimator.expected import EXPECTED_FAILED_CHECKS  # noqa: E402

__all__ = ["EXPECTED_FAILED_CHECKS", "ContinualNodeClassifier"]
