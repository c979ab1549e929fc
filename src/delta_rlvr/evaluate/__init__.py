"""Sampling, grading, averages, significance, checkpoint choice: the number that people publish, made repeatable."""

from delta_rlvr.evaluate.compare import Comparison, compare_many, compare_results
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.policy import evaluate_policy
from delta_rlvr.evaluate.results import EvaluationResult

__all__ = [
    "Comparison",
    "EvaluationError",
    "EvaluationResult",
    "compare_many",
    "compare_results",
    "evaluate_policy",
]
