"""Token credit: one weight per token from hidden states, log-probs and advantages. Nothing here depends on an engine."""

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.discriminator import Sides, predicted_change, side_summary, update_direction
from delta_rlvr.credit.record import CreditRecord, Discriminator
from delta_rlvr.credit.rule import NEEDS, RuleError, TokenRule, register
from delta_rlvr.credit.rules.delta import Delta
from delta_rlvr.credit.store import RowStore
from delta_rlvr.credit.stream import TOKEN_ARRAYS, CreditStream, credit_record, token_coefficients
from delta_rlvr.credit.vectors import full_token_gradients

__all__ = [
    "NEEDS",
    "TOKEN_ARRAYS",
    "CreditRecord",
    "CreditStream",
    "Delta",
    "Discriminator",
    "RowStore",
    "RuleError",
    "Sides",
    "TokenBatch",
    "TokenRule",
    "credit_record",
    "full_token_gradients",
    "predicted_change",
    "register",
    "side_summary",
    "token_coefficients",
    "update_direction",
]
