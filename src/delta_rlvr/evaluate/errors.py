"""The one kind of error that evaluation raises for something a person can put right."""

from __future__ import annotations


class EvaluationError(Exception):
    """An evaluation cannot go on as asked; the message says why and what to do."""
