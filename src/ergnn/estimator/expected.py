"""scikit-learn estimator checks that are expected to fail, with reasons."""

EXPECTED_FAILED_CHECKS: dict[str, str] = {
    "check_methods_subset_invariance": (
        "networks compute in float32, where a row's probabilities depend by a rounding on how many rows are computed "
        "with it; the check asks for 1e-7, which one rounding of a float32 exceeds"
    ),
}
"""Name of a check → reason, for ``check_estimator(…, expected_failed_checks=…)``."""
