"""Weights that are independent of the tokens: DAPO's token mean, and GRPO's mean over responses as a token weight."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.reduce import wide
from delta_rlvr.credit.rule import HiddenStates, TokenRule, weigh


@dataclass(frozen=True)
class Uniform(TokenRule):
    """Every token counts the same: DAPO's token mean."""

    constant = True
    mean_one = True
    sees_slices = True

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        return batch.ones()


@dataclass(frozen=True)
class ResponseMean(TokenRule):
    """Every response counts the same, whatever its length (GRPO's mean over responses of token means); the rule `tokens` weighs the
    tokens within the responses."""

    tokens: TokenRule = field(default_factory=Uniform)

    @property
    def needs(self) -> Collection[str]:
        return self.tokens.needs

    @property
    def stores(self) -> HiddenStates | None:
        return self.tokens.stores

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        """Return N / (R |o_i|), with R the number of responses with valid tokens."""
        lengths = batch.lengths.to(wide(batch.lengths.device))
        responses = batch.total((lengths > 0).to(lengths.dtype))
        share = batch.token_count / (responses * lengths[batch.row])
        return share if self.tokens.constant else share * weigh(batch, self.tokens).weights
