"""Objectives: surrogates, their averages, and the named methods. Tensors only; no engine is known here."""

from delta_rlvr.objectives.aggregate import (
    Aggregation,
    policy_loss,
    self_normalized_mean,
    sequence_mean,
    token_mean,
)
from delta_rlvr.objectives.methods import METHODS, Method, get_method
from delta_rlvr.objectives.surrogates import Clip, FutureClip, LossInputs, SoftGate, Surrogate, clipped_loss

__all__ = [
    "METHODS",
    "Aggregation",
    "Clip",
    "FutureClip",
    "LossInputs",
    "Method",
    "SoftGate",
    "Surrogate",
    "clipped_loss",
    "get_method",
    "policy_loss",
    "self_normalized_mean",
    "sequence_mean",
    "token_mean",
]
