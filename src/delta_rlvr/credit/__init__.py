"""Token credit: from hidden states, log-probs and advantages to one weight a token. Tensors only; no engine is known here."""

from delta_rlvr.credit.agreement import Agreement, proxy_agreement
from delta_rlvr.credit.config import DeltaConfig
from delta_rlvr.credit.discriminator import Sides, predicted_change, side_summary, update_direction
from delta_rlvr.credit.future import FutureConfig, discounted_future_sum, future_weights
from delta_rlvr.credit.proxies import full_token_gradients
from delta_rlvr.credit.record import CreditRecord, Discriminator
from delta_rlvr.credit.store import RowStore
from delta_rlvr.credit.stream import CreditStream, credit_record, token_coefficients
from delta_rlvr.credit.weighting import Entropy, ForkingTokens, ResponseMean, Surprise, Uniform, Weighting

__all__ = [
    "Agreement",
    "CreditRecord",
    "CreditStream",
    "DeltaConfig",
    "Discriminator",
    "Entropy",
    "ForkingTokens",
    "FutureConfig",
    "ResponseMean",
    "RowStore",
    "Sides",
    "Surprise",
    "Uniform",
    "Weighting",
    "credit_record",
    "discounted_future_sum",
    "full_token_gradients",
    "future_weights",
    "predicted_change",
    "proxy_agreement",
    "side_summary",
    "token_coefficients",
    "update_direction",
]
