"""What is measured. Each case returns measurements; ``ergnn bench`` runs them all or some."""

from ergnn.bench.cases import large, selection, training
from ergnn.bench.cases.registry import CASES, Case, case

__all__ = ["CASES", "Case", "case", "large", "selection", "training"]
