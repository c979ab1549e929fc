"""Credit per token from the continuations of a response's nodes: estimates, standard errors, intervals within the bound."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from delta_evidence.measured.nodes import Nodes

LEVEL = 0.95
Z = float(stats.norm.ppf((1 + LEVEL) / 2))
"""Standard errors on either side of an interval of this level."""


@dataclass(frozen=True)
class MeasuredCredit:
    """The measured credit of one response's tokens. Neighbours share the samples of the node between them."""

    credit: Float[np.ndarray, " token"]
    """V_{t+1} - V_t, within the bound."""
    error: Float[np.ndarray, " token"]
    """Its standard error; 0 for tokens that need no samples."""
    low: Float[np.ndarray, " token"]
    high: Float[np.ndarray, " token"]
    """Ends of the 95 % interval, within the bound."""
    bound: Float[np.ndarray, " token"]
    """1 - p: |credit| cannot be larger."""
    first: Float[np.ndarray, " token"]
    second: Float[np.ndarray, " token"]
    """The credit from one half of the samples each."""
    value: Float[np.ndarray, " position"]
    """V_t before each token, and the reward at the end."""
    samples: Int[np.ndarray, " token"]
    """Continuations behind the credit; 0 for tokens that need none."""

    def as_lists(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name).tolist() for one in fields(self)}


def estimate(
    nodes: Nodes,
    surprise: Float[np.ndarray, " token"],
    reward: float,
    sums: Float[np.ndarray, "unknown two"],
    counts: Int[np.ndarray, "unknown two"],
) -> MeasuredCredit:
    """From the sum of rewards and the number of continuations of each node, in two halves that are independent of each other and of
    whatever decided on the numbers.

    Intervals are those of Agresti and Caffo (2000) for the difference of two proportions: one success and one failure are added to
    either; where one of the two is known, of Agresti and Coull for the other (two of each). Rewards between 0 and 1 vary no more
    than verdicts of the same mean, so the intervals hold for them too. The value where a node begins may differ from that where it
    was sampled by its drift; the interval is wider by it.
    """
    tokens = np.flatnonzero(nodes.splits)
    total, number = sums.sum(1), counts.sum(1)

    def differences(values: np.ndarray) -> np.ndarray:
        credit = np.zeros(len(surprise))
        credit[tokens] = np.diff(values, append=reward)
        return np.clip(credit, -surprise, surprise)

    # The node before the end is compared with what is known: it gets both additions.
    added = np.ones(nodes.unknown)
    added[-1:] = 2.0
    centre = (total + added) / (number + 2 * added)
    variance = centre * (1 - centre) / (number + 2 * added)
    # As the node after a token, the same node has the plain addition.
    plain = (total + 1) / (number + 2)
    plain_variance = plain * (1 - plain) / (number + 2)
    middle = np.append(plain, reward)[1:] - centre
    error = np.sqrt(np.append(plain_variance, 0.0)[1:] + variance)
    low, high, errors = -surprise.copy(), surprise.copy(), np.zeros(len(surprise))
    errors[tokens] = error
    reach = Z * error + nodes.drift[1:]
    low[tokens] = np.clip(middle - reach, -surprise[tokens], surprise[tokens])
    high[tokens] = np.clip(middle + reach, -surprise[tokens], surprise[tokens])
    samples = np.zeros(len(surprise), np.int64)
    samples[tokens] = np.append(number, 0)[1:] + number
    halves = sums / counts
    return MeasuredCredit(
        credit=differences(total / number),
        error=errors,
        low=low,
        high=high,
        bound=surprise,
        first=differences(halves[:, 0]),
        second=differences(halves[:, 1]),
        value=np.append(total / number, reward)[nodes.of],
        samples=samples,
    )
