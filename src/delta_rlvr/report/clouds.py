"""Token types by their mean coefficient over all tokens of a run (the paper's Figure 5), from running sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from delta_rlvr.report.weights import SAME
from delta_rlvr.runs import TokenSums
from delta_rlvr.runs.layout import round_significant

TYPES = 4000
"""The number of types on the page: half are the most frequent, half the extremes (overall and of each side) with a minimum count."""


def clouds(sums: TokenSums, types: int = TYPES) -> dict[str, Any] | None:
    """Return columns over token types, most frequent first; None if there are no tokens or all weights are 1."""
    ids = sums.ids
    if not len(ids):
        return None
    count_positive, count_negative = sums.count_positive[ids], sums.count_negative[ids]
    sum_positive, sum_negative = sums.sum_positive[ids], sums.sum_negative[ids]
    count = count_positive + count_negative
    mean = (sum_positive + sum_negative) / count
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_positive, mean_negative = sum_positive / count_positive, sum_negative / count_negative
    if not np.any(np.abs(np.concatenate([mean_positive, mean_negative]) - 1) > SAME):
        return None
    minimum = default_minimum(int(count.sum()), int(count.max()))
    ends = max(1, types // 12)
    kept = [np.argsort(-count, kind="stable")[: types // 2]]
    for own_mean, own_count in ((mean, count), (mean_positive, count_positive), (mean_negative, count_negative)):
        eligible = np.flatnonzero(own_count >= minimum)
        by_mean = eligible[np.argsort(own_mean[eligible], kind="stable")]
        kept += [by_mean[:ends], by_mean[-ends:]]
    chosen = np.unique(np.concatenate(kept))
    chosen = chosen[np.argsort(-count[chosen], kind="stable")]
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
    """Return the minimum count of a type: one in ten thousand tokens, at least 5, rounded, and at most the count of the most frequent
    type. With fewer than 1000 tokens every type is shown."""
    if tokens < 1000:
        return 1
    wanted = max(5.0, tokens / 10_000)
    scale = 10 ** int(np.floor(np.log10(wanted)))
    return min(int(np.ceil(wanted / scale) * scale), most)
