"""Types by mean coefficient over every token of a run (the paper's Figure 5), from the running sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from delta_rlvr.runs import TokenSums
from delta_rlvr.runs.files import round_significant

# Types on the page: the most frequent ones, and the extremes among those that reach the minimum count.
FREQUENT = 2000
EXTREME = 1000


def clouds(sums: TokenSums) -> dict[str, Any] | None:
    """Columns over vocabulary entries, most frequent first; None where no token was counted."""
    ids = sums.ids
    if not len(ids):
        return None
    count_positive, count_negative = sums.count_positive[ids], sums.count_negative[ids]
    sum_positive, sum_negative = sums.sum_positive[ids], sums.sum_negative[ids]
    count = count_positive + count_negative
    mean = (sum_positive + sum_negative) / count
    minimum = default_minimum(int(count.sum()), int(count.max()))

    by_count = np.argsort(-count, kind="stable")
    eligible = np.flatnonzero(count >= minimum)
    by_mean = eligible[np.argsort(mean[eligible], kind="stable")]
    chosen = np.unique(np.concatenate([by_count[:FREQUENT], by_mean[:EXTREME], by_mean[-EXTREME:]]))
    chosen = chosen[np.argsort(-count[chosen], kind="stable")]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_positive, mean_negative = sum_positive / count_positive, sum_negative / count_negative
    columns = {"mean": mean, "mean_positive": mean_positive, "mean_negative": mean_negative}
    return {
        "id": ids[chosen].tolist(),
        "text": sums.text(ids[chosen].tolist()),
        "count": count[chosen].tolist(),
        "count_positive": count_positive[chosen].tolist(),
        "count_negative": count_negative[chosen].tolist(),
        **{key: round_significant(column[chosen].tolist()) for key, column in columns.items()},
        "minimum": minimum,
        "types": len(ids),
        "tokens": int(count.sum()),
    }


def default_minimum(tokens: int, most: int) -> int:
    """One in ten thousand tokens, at least 5, as a round number; never more than the most frequent type has."""
    wanted = max(5.0, tokens / 10_000)
    scale = 10 ** int(np.floor(np.log10(wanted)))
    return min(int(np.ceil(wanted / scale) * scale), most)
