"""Objectives: surrogates, their averages, and the named methods. Nothing here depends on an engine."""

from delta_rlvr.objectives.advantages import group_advantages, group_numbers, mixed_share, rewarded_alike
from delta_rlvr.objectives.aggregate import Aggregation, policy_loss, sequence_mean, token_mean
from delta_rlvr.objectives.methods import Method, all_methods, get_method
from delta_rlvr.objectives.surrogates import Clip, FutureClip, LossInputs, SoftGate, Surrogate, clipped_loss
from delta_rlvr.user_code import portable

__all__ = [
    "Aggregation",
    "Clip",
    "FutureClip",
    "LossInputs",
    "Method",
    "SoftGate",
    "Surrogate",
    "all_methods",
    "clipped_loss",
    "get_method",
    "group_advantages",
    "group_numbers",
    "mixed_share",
    "policy_loss",
    "portable",
    "rewarded_alike",
    "sequence_mean",
    "token_mean",
]
