"""What a solve returns: the weights, and everything a log or the token view wants to know about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.pieces import quantiles
from delta_rlvr.credit.reduce import Reducer, wide

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Discriminator:
    """The two-sided summary of each group (of the whole batch in batch scope); axis "side" is positive, negative."""

    groups: Int[Tensor, " group"]
    """Ids of the groups; [0] in batch scope."""
    masses: Float[Tensor, "group side"]
    """M±: sum of |A| over the side's tokens."""
    gamma: Float[Tensor, "group side"]
    """Final temperatures gamma±(K)."""
    centroid_gap: Float[Tensor, " group"]
    """||mu+(K) - mu-(K)||."""
    centroid_gap_initial: Float[Tensor, " group"]
    """||mu+(0) - mu-(0)||."""
    degenerate: Bool[Tensor, " group"]
    """A side has no mass: the group's coefficients are one."""


@dataclass(frozen=True)
class CreditRecord:
    """Token weights and how they came about. Token arrays are packed: valid tokens only, response by response."""

    weights: Float[Tensor, " token"]
    """float32; what a token's loss is multiplied by."""
    side: Int[Tensor, " token"]
    """+1, -1 or 0: the sign of the token's advantage."""
    lengths: Int[Tensor, " batch"]
    """Valid tokens of each response."""
    token_count: int
    """N: valid tokens over all ranks."""
    alpha: Float[Tensor, " token"] | None = None
    """Final assignments; 0 for tokens without a side. None for methods that have none."""
    margin: Float[Tensor, " token"] | None = None
    """Margins under the final centroids (the negated distance to the own one for "within_side"; never negative for "alignment")."""
    margin_initial: Float[Tensor, " token"] | None = None
    """The same under the initial centroids."""
    discriminator: Discriminator | None = None
    """Masses, temperatures and centroid gaps; None for methods that have none."""
    store: str = ""
    """Where the proxies waited and how many bytes they took."""
    store_bytes: int = 0
    """Bytes that the proxies took on this rank."""
    reducer: Reducer | None = None
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    """What `solve` was asked to find out about the weights (see `credit.diagnostics`)."""

    @classmethod
    def of(cls, batch: TokenBatch, weights: Float[Tensor, " token"], **details: Any) -> CreditRecord:
        """The record of a batch's weights. `details`: other fields; token arrays among them become float32 as the weights do."""
        return cls(
            weights=weights.to(torch.float32),
            side=batch.side,
            lengths=batch.lengths,
            token_count=batch.token_count,
            store="" if batch.stored is None else str(batch.stored),
            store_bytes=0 if batch.stored is None else batch.stored.bytes_on_device + batch.stored.bytes_on_host,
            reducer=batch.reducer,
            **{name: _narrow(value) for name, value in details.items()},
        )

    def padded(
        self, values: Shaped[Tensor, " token"], mask: Bool[Tensor, "batch time"]
    ) -> Shaped[Tensor, "batch time"]:
        """A packed token array laid out on the mask it came from, 0 elsewhere."""
        if int(mask.sum()) != len(values):
            raise ValueError(f"mask: it has {int(mask.sum())} valid tokens, the record has {len(values)}")
        laid_out = torch.zeros(mask.shape, dtype=values.dtype, device=values.device)
        laid_out[mask] = values
        return laid_out

    def summary(self) -> dict[str, float]:
        """The run folder's metrics of the coefficients, over all ranks (every rank must call it)."""
        reducer = self.reducer or Reducer()
        weights = reducer.gather(self.weights.to(wide(self.weights.device)))
        side = reducer.gather(self.side)
        report = {
            "weight_mean": weights.mean(),
            "weight_std": weights.std(correction=0),
            "weight_min": weights.min(),
            "weight_max": weights.max(),
            "zero_advantage": (side == 0).to(weights.dtype).mean(),
        }
        # Tokens without an advantage count for the mean of one, but nothing is learnt from them.
        learnt = weights[side != 0]
        learnt = learnt if len(learnt) else weights.new_ones(1)
        report |= {"weight_signal_mean": learnt.mean(), "weight_signal_std": learnt.std(correction=0)}
        for name, sign in (("positive", 1), ("negative", -1)):
            here = weights[side == sign]
            if not len(here):
                continue
            report[f"weight_{name}_mean"] = here.mean()
            report[f"weight_{name}_std"] = here.std(correction=0)
            for share, value in zip(_QUANTILES, quantiles(here, _QUANTILES), strict=True):
                report[f"weight_{name}_q{round(share * 100):02d}"] = value
        if self.discriminator is not None:
            report |= self._discriminator_summary(self.discriminator)
        # One wait for the device, not one per number.
        numbers = dict(zip(report, torch.stack([*report.values()]).tolist(), strict=True))
        return {**numbers, **self.diagnostics}

    @staticmethod
    def _discriminator_summary(discriminator: Discriminator) -> dict[str, Float[Tensor, ""]]:
        report = {
            "mass_positive": discriminator.masses[:, 0].sum(),
            "mass_negative": discriminator.masses[:, 1].sum(),
            "degenerate_groups": discriminator.degenerate.to(discriminator.masses.dtype).mean(),
        }
        sound = ~discriminator.degenerate
        if sound.any():
            report |= {
                "gamma_positive": discriminator.gamma[sound, 0].mean(),
                "gamma_negative": discriminator.gamma[sound, 1].mean(),
                "centroid_gap": discriminator.centroid_gap[sound].mean(),
                "centroid_gap_initial": discriminator.centroid_gap_initial[sound].mean(),
            }
        return report


def _narrow(value: Any) -> Any:
    return value.to(torch.float32) if isinstance(value, Tensor) else value
