"""Reproducible evaluation: sampling, grading, averages, significance tests and checkpoint selection."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delta_rlvr.evaluate.compare import Comparison, compare_many, compare_results
    from delta_rlvr.evaluate.errors import EvaluationError
    from delta_rlvr.evaluate.local_sampler import evaluate_policy
    from delta_rlvr.evaluate.results import EvaluationResult

__all__ = ["Comparison", "EvaluationError", "EvaluationResult", "compare_many", "compare_results", "evaluate_policy"]

_MODULES = {"EvaluationError": "errors", "EvaluationResult": "results", "evaluate_policy": "local_sampler"}


def __getattr__(name: str) -> Any:
    # torch and scipy are imported only when needed, so that a mistyped benchmark is refused at once.
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'compare')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
