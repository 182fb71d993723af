"""scikit-learn compatible continual node classification; needs the extra ``sklearn``."""

from ergnn.data.formats.boundary import extra

extra("sklearn", "sklearn", "ContinualNodeClassifier")

from ergnn.estimator.classifier import ContinualNodeClassifier  # noqa: E402
from ergnn.estimator.expected import EXPECTED_FAILED_CHECKS  # noqa: E402

__all__ = ["EXPECTED_FAILED_CHECKS", "ContinualNodeClassifier"]
