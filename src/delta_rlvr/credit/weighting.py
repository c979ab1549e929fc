"""Token weights that are fixed once a rollout batch, all behind one function (Appendix E's rho).

Every rule turns a batch into one weight a token, scaled so that J = 1/N sum_it weight_it * clipped_it is the method's objective with
N = all valid tokens: DAPO is the weight one, GRPO the weight N / (R |o_i|), a selection N / kept on what it keeps.
FIPO's weight depends on the current policy and is recomputed at every forward: see `delta_rlvr.credit.future`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.config import DeltaConfig, WeightingRule, check_range
from delta_rlvr.credit.draws import uniform_draws
from delta_rlvr.credit.estimator import Estimate, estimate
from delta_rlvr.credit.proxies import surprise
from delta_rlvr.credit.record import CreditRecord, quantiles
from delta_rlvr.credit.reduce import wide


@dataclass(frozen=True)
class Uniform(WeightingRule):
    """Every token counts the same: DAPO's token mean."""


@dataclass(frozen=True)
class ResponseMean(WeightingRule):
    """Every response counts the same, whatever its length: GRPO's mean over responses of means over tokens."""


@dataclass(frozen=True)
class ForkingTokens(WeightingRule):
    """Only tokens where the old policy was uncertain (DAPO + forking tokens)."""

    quantile: float = 0.8
    """Tokens whose entropy is at least this quantile over all valid tokens of the batch are kept, ties included."""

    def __post_init__(self) -> None:
        if not 0 <= self.quantile < 1:
            raise ValueError(f"quantile={self.quantile}: give a share from 0 up to (not including) 1")

    @property
    def needs_entropy(self) -> bool:
        return True


@dataclass(frozen=True)
class _Uncertainty(WeightingRule):
    """A score in [0, 1] that knows nothing of the reward, in the place of DelTA's alpha."""

    lambda_min: float = 0.8
    """Coefficient of a token with score 0, and of tokens without an advantage, before normalisation."""
    lambda_max: float = 1.2
    """Coefficient of a token with score 1 before normalisation."""

    def __post_init__(self) -> None:
        check_range(self.lambda_min, self.lambda_max)

    @property
    def flat(self) -> bool:
        """Every coefficient is exactly one: plain DAPO."""
        return self.lambda_min == self.lambda_max


@dataclass(frozen=True)
class Surprise(_Uncertainty):
    """Tokens count by how unlikely they were: 1 - p of the sampled one."""

    @property
    def needs_logps(self) -> bool:
        return True


@dataclass(frozen=True)
class Entropy(_Uncertainty):
    """Tokens count by how uncertain the old policy was: 1 - exp(-H), one minus the inverse of its perplexity there."""

    @property
    def needs_entropy(self) -> bool:
        return True


Weighting: TypeAlias = DeltaConfig | Uniform | ResponseMean | ForkingTokens | Surprise | Entropy


def weigh(batch: TokenBatch, weighting: Weighting) -> CreditRecord:
    """The batch's token weights under a rule."""
    match weighting:
        case DeltaConfig(source="random"):
            return _record(batch, _normalized(_random_coefficients(batch, weighting), batch, weighting))
        case DeltaConfig(keep="random"):
            return _record(batch, _kept(_select(batch, _draws(batch, weighting), weighting), batch))
        case DeltaConfig():
            found = estimate(batch, weighting)
            return _record(batch, _delta_weights(found, batch, weighting), found)
        case Uniform():
            return _record(batch, _ones(batch))
        case ResponseMean():
            return _record(batch, _response_means(batch))
        case ForkingTokens():
            return _record(batch, _kept(_forking(batch, weighting.quantile), batch))
        case Surprise():
            assert batch.logps is not None
            return _record(batch, _uncertainty_weights(surprise(batch.logps), batch, weighting))
        case Entropy():
            assert batch.entropy is not None
            return _record(batch, _uncertainty_weights(surprise(-batch.entropy), batch, weighting))
    raise TypeError(f"weighting: {type(weighting).__name__} is not one of {Weighting}")


def _delta_weights(found: Estimate, batch: TokenBatch, config: DeltaConfig) -> Float[Tensor, " token"]:
    """lambda-bar of Eq. 8 from alpha*, or the tokens that a selection by lambda keeps."""
    if config.flat or bool(found.discriminator.degenerate.all()):
        return _ones(batch)
    span = config.lambda_max - config.lambda_min
    if config.range_map:
        coefficients = config.lambda_min + span * found.alpha  # alpha is 0 where A = 0: lambda_min there
    else:
        coefficients = found.alpha.clone()
    coefficients[found.unweighted] = 1.0
    if config.keep != "all":
        order = coefficients if config.keep == "top" else -coefficients
        return _kept(_select(batch, order, config), batch)
    return _normalized(coefficients, batch, config)


def _uncertainty_weights(
    score: Float[Tensor, " token"], batch: TokenBatch, rule: Surprise | Entropy
) -> Float[Tensor, " token"]:
    """The score mapped like alpha (Eq. 8), zero-advantage tokens at lambda_min as there."""
    span = rule.lambda_max - rule.lambda_min
    return _normalized(rule.lambda_min + span * torch.where(batch.side != 0, score, 0.0), batch, rule)


def _normalized(
    coefficients: Float[Tensor, " token"], batch: TokenBatch, rule: DeltaConfig | Surprise | Entropy
) -> Float[Tensor, " token"]:
    """lambda * N / Z: the mean over the batch is one (Eq. 8)."""
    if rule.flat:
        return _ones(batch)
    if isinstance(rule, DeltaConfig) and not rule.normalize:
        return coefficients
    total = batch.reducer.sum(coefficients.sum())
    # Hard assignment without the range map (or lambda_min = 0) may give every token 0: then nothing tells tokens apart.
    return torch.where(total > 0, coefficients * (batch.token_count / total), 1.0)


def _random_coefficients(batch: TokenBatch, config: DeltaConfig) -> Float[Tensor, " token"]:
    """Uniform in [lambda_min, lambda_max] (Table 4)."""
    return config.lambda_min + (config.lambda_max - config.lambda_min) * _draws(batch, config)


def _select(batch: TokenBatch, order: Float[Tensor, " token"], config: DeltaConfig) -> Bool[Tensor, " token"]:
    """The share of the tokens with A != 0 that stands highest in `order` over all ranks; a seeded draw breaks ties."""
    eligible = batch.side != 0
    ranks = torch.stack([order, _draws(batch, config)])
    # Ranks hold different numbers of tokens: everybody sees all of them and takes the same decision.
    everyone = torch.stack([batch.reducer.gather(values[eligible]) for values in ranks])
    keep = int(config.keep_share * everyone.shape[1] + 0.5)
    by_draw = everyone[1].argsort(descending=True, stable=True)
    ordered = by_draw[everyone[0][by_draw].argsort(descending=True, stable=True)]
    chosen = torch.zeros(everyone.shape[1], dtype=torch.bool, device=order.device)
    chosen[ordered[:keep]] = True
    before = sum(batch.reducer.gather_counts(int(eligible.sum()))[: batch.reducer.rank])
    kept = torch.zeros_like(eligible)
    kept[eligible] = chosen[before : before + int(eligible.sum())]
    return kept


def _forking(batch: TokenBatch, quantile: float) -> Bool[Tensor, " token"]:
    assert batch.entropy is not None
    threshold = quantiles(batch.reducer.gather(batch.entropy), (quantile,))[0]
    return batch.entropy >= threshold


def _kept(kept: Bool[Tensor, " token"], batch: TokenBatch) -> Float[Tensor, " token"]:
    """Plain DAPO on the kept tokens, whose denominator counts them alone: weight N / kept."""
    weights = kept.to(wide(kept.device))
    count = batch.reducer.sum(weights.sum()).clamp(min=1)
    return weights * (batch.token_count / count)


def _response_means(batch: TokenBatch) -> Float[Tensor, " token"]:
    """N / (R |o_i|), with R the responses that have a valid token."""
    lengths = batch.lengths.to(wide(batch.lengths.device))
    responses = batch.reducer.sum((lengths > 0).to(lengths.dtype).sum())
    return batch.token_count / (responses * lengths[batch.row])


def _ones(batch: TokenBatch) -> Float[Tensor, " token"]:
    return torch.ones(len(batch.row), dtype=wide(batch.row.device), device=batch.row.device)


def _draws(batch: TokenBatch, config: DeltaConfig) -> Float[Tensor, " token"]:
    return uniform_draws(config.seed, batch.round_number, batch.keys[batch.row], batch.position)


def _record(
    batch: TokenBatch, weights: Float[Tensor, " token"], found: Estimate | None = None
) -> CreditRecord:
    return CreditRecord(
        weights=weights.to(torch.float32),
        side=batch.side,
        lengths=batch.lengths,
        token_count=batch.token_count,
        alpha=None if found is None else found.alpha.to(torch.float32),
        margin=None if found is None else found.margin.to(torch.float32),
        margin_initial=None if found is None else found.margin_initial.to(torch.float32),
        discriminator=None if found is None else found.discriminator,
        store="" if batch.store is None else str(batch.store),
        store_bytes=0 if batch.store is None else batch.store.bytes_on_device + batch.store.bytes_on_host,
        reducer=batch.reducer,
    )
