"""The result of a solve: the weights, and the details that logs and the token view show."""

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
    """The summary of both sides of each group (of the whole batch in batch scope); on the axis "side", 0 is the positive one."""

    groups: Int[Tensor, " group"]
    """The ids of the groups; [0] in batch scope."""
    masses: Float[Tensor, "group side"]
    """M±: the sum of |A| over the side's tokens."""
    gamma: Float[Tensor, "group side"]
    """The final temperatures gamma±(K)."""
    centroid_gap: Float[Tensor, " group"]
    """||mu+(K) - mu-(K)||."""
    centroid_gap_initial: Float[Tensor, " group"]
    """||mu+(0) - mu-(0)||."""
    degenerate: Bool[Tensor, " group"]
    """Whether a side has no mass: the group's coefficients are then one."""


@dataclass(frozen=True)
class CreditRecord:
    """Token weights and the details behind them. Token arrays are packed: only the valid tokens, response by response."""

    weights: Float[Tensor, " token"]
    """float32 factors of the tokens' losses."""
    side: Int[Tensor, " token"]
    """+1, -1 or 0: the sign of the token's advantage."""
    lengths: Int[Tensor, " batch"]
    """Valid tokens of each response."""
    token_count: int
    """N: the number of valid tokens over all ranks."""
    alpha: Float[Tensor, " token"] | None = None
    """The final assignments, 0 for tokens without a side; None for methods without assignments."""
    margin: Float[Tensor, " token"] | None = None
    """The margins from the final centroids (for "within_side" minus the distance to the token's centroid; for "alignment" >= 0)."""
    margin_initial: Float[Tensor, " token"] | None = None
    """The margins from the initial centroids."""
    discriminator: Discriminator | None = None
    """Masses, temperatures and centroid gaps; None for methods without them."""
    store: str = ""
    """Where the proxies were stored and how many bytes they took, in words."""
    store_bytes: int = 0
    """The bytes of the proxies on this rank."""
    reducer: Reducer | None = None
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    """The metrics of `solve(diagnose=True)` (see `credit.diagnostics`)."""

    @classmethod
    def of(cls, batch: TokenBatch, weights: Float[Tensor, " token"], **details: Any) -> CreditRecord:
        """Return the record of a batch's weights. `details` are other fields; their tensors become float32, like the weights."""
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
        """Return a packed token array in the layout of its mask, 0 outside of it."""
        if int(mask.sum()) != len(values):
            raise ValueError(f"mask: {int(mask.sum())} valid tokens do not fit the record's {len(values)}")
        laid_out = torch.zeros(mask.shape, dtype=values.dtype, device=values.device)
        laid_out[mask] = values
        return laid_out

    def summary(self) -> dict[str, float]:
        """Return the run folder's metrics of the weights, over all ranks (each of which must call this)."""
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
        # Tokens without an advantage count for the mean of one, but have no gradient.
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
        # One wait for the device for all numbers.
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
