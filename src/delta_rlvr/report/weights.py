"""The weights view of a sampled step: what the weights correlate with and their effect on the update, in numbers, words and a figure.

The numbers are those of `credit.diagnostics`, here in NumPy and for the rollouts that the run kept, so that a page does not import
torch. A test keeps the two equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from delta_rlvr.files import is_number
from delta_rlvr.runs.layout import round_significant
from delta_rlvr.weight_words import hardly_differ, weights_in_effect

OWN, PLAIN, OTHER = "weight", "plain", "other:"
"""Keys of weights: the run's own, all weights 1, and the prefix of another method's name."""
SATURATED = 0.05
"""An assignment (alpha) this close to an end of its range counts as saturated."""
SAME = 1e-4
"""Weights of a response that differ by no more than this count as equal."""
SURE, UNSURE = 0.1, 0.5
"""The policy was sure of tokens with 1 - p below the first, and unsure of those with 1 - p above the second."""
MOSTLY_SIDES = 0.6
"""If the side explains this share of the weights' variance, shading by weight shows sides, not tokens."""
_SEEN = 0.02
"""The smallest difference between two mean weights that is visible in the figure: a twentieth of DelTA's range."""
# Tokens in the figure of one side at one step, at least and at most; and on the whole page.
FEWEST, MOST, ON_PAGE = 60, 400, 30_000

_SIDES = (("positive", 1), ("negative", -1))
RIGHT_OR_WRONG, BETTER_OR_WORSE = ("right", "wrong"), ("better", "worse")
"""The names of the two sides. If rewards are not only right or wrong, a response above its group's mean is called better."""
_MINUS = "\N{MINUS SIGN}"
_SURPRISE = f"1 {_MINUS} p"

Column = NDArray[np.float64]


@dataclass(frozen=True)
class StepTokens:
    """All tokens of a step's kept responses, concatenated; NaN where a value is missing."""

    lengths: Sequence[int]
    """The number of tokens of each response."""
    advantages: Column
    uncertain: Column
    """1 - p."""
    alpha: Column
    measured: Column
    weights: dict[str, Column]
    """The weights by key, `PLAIN` included."""
    sides: tuple[str, str] = RIGHT_OR_WRONG

    @property
    def side(self) -> Column:
        return np.sign(self.advantages)

    def update(self, key: str) -> Column:
        """Return each token's part in the update, weight x |A| x (1 - p): a near-certain token has almost no gradient."""
        return self.weights[key] * np.abs(self.advantages) * self.uncertain

    def totals(self) -> dict[str, float]:
        """Return the sum of `update` by key, without keys for which no response has weights and log-probs."""
        sums = {key: float(np.nansum(self.update(key))) for key in self.weights}
        return {key: total for key, total in sums.items() if total > 0}

    def varies(self, key: str) -> bool:
        """Return whether these weights differ between tokens with an advantage."""
        known = self.weights[key][(self.side != 0) & np.isfinite(self.weights[key])]
        return len(known) > 0 and not hardly_differ(float(known.mean()), float(known.std()))

    def tells_responses(self, key: str) -> bool:
        """Return whether the weights differ between responses but not within them."""
        ends = np.cumsum(self.lengths)[:-1]
        return self.varies(key) and all(
            _spread(own) <= SAME for own in np.split(np.where(self.side != 0, self.weights[key], np.nan), ends)
        )


def step_tokens(responses: Sequence[Mapping[str, Any]]) -> StepTokens:
    """Return the responses of a step as columns."""
    lengths = [len(response["tokens"]) for response in responses]

    def column(values_of: Any) -> Column:
        parts = [
            np.full(length, np.nan) if values is None else np.array(values, np.float64)
            for values, length in zip(map(values_of, responses), lengths, strict=True)
        ]
        return np.concatenate([np.empty(0), *parts])

    def other(name: str) -> Column:
        return column(lambda response: (response.get("other_weights") or {}).get(name))

    rewards = {response.get("reward") for response in responses} - {None}
    names = dict.fromkeys(name for response in responses for name in response.get("other_weights") or {})
    weights = {PLAIN: np.ones(sum(lengths)), OWN: column(lambda response: response.get("weight"))}
    weights |= {OTHER + name: other(name) for name in names}
    return StepTokens(
        lengths=lengths,
        advantages=column(lambda response: [response.get("advantage") or 0.0] * len(response["tokens"])),
        uncertain=-np.expm1(column(lambda response: response.get("logps"))),
        alpha=column(lambda response: response.get("alpha")),
        measured=column(lambda response: response.get("measured")),
        weights={key: values for key, values in weights.items() if not np.all(np.isnan(values))},
        sides=RIGHT_OR_WRONG if rewards <= {0, 1} or rewards <= {-1, 1} else BETTER_OR_WORSE,
    )


def step_weights(
    tokens: StepTokens, step: int, method: str, points: int, metrics: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the weights view of a step; None if no method's weights differ between tokens.

    `points`: tokens on each side of the figure. `metrics`: the metrics of the step, for the reliability.
    """
    telling = [key for key in tokens.weights if tokens.varies(key)]
    if not telling:
        return None
    names = {key: key.removeprefix(OTHER) for key in tokens.weights} | {OWN: method, PLAIN: "every weight 1"}
    order = sorted(tokens.weights, key=lambda key: (key != OWN, key == PLAIN))
    rows: list[dict[str, Any]] = [{"key": key, "name": names[key], **numbers(tokens, key)} for key in order]
    drawn = OWN if OWN in telling else telling[0]
    return {
        "step": step,
        "sentences": sentences(
            {row["key"]: row for row in rows},
            metrics.get("reliability"),
            OWN in tokens.weights and tokens.tells_responses(OWN),
            tokens.sides,
        ),
        "sides": tokens.sides,
        "tells_sides": any(row["key"] == OWN and row.get("between_sides", 0) >= MOSTLY_SIDES for row in rows),
        "rows": rows,
        "drawn": {"key": drawn, "name": names[drawn]},
        "points": {name: _sample(tokens, drawn, sign, points) for name, sign in _SIDES},
        "responses": len(tokens.lengths),
        "tokens": int(np.count_nonzero(tokens.side)),
    }


def numbers(tokens: StepTokens, key: str) -> dict[str, float]:
    """Return the numbers of one method, as far as they can be computed: those of `CreditRecord.summary` and `credit.diagnostics`, and

    between_sides      share of the weights' variance that is explained by the side of the token
    measured_{side}    rank correlation of the weight with the measured credit in the direction of the side
    sure_{side}, unsure_{side}    mean weight of the tokens that the policy was sure and unsure of
    """
    side, weights = tokens.side, tokens.weights[key]
    report: dict[str, float] = {}
    if np.any(counted := (side != 0) & np.isfinite(weights)):
        report["weight_signal_mean"] = float(weights[counted].mean())
        report["weight_signal_std"] = float(weights[counted].std())
    if key == OWN and np.any(known := (side != 0) & np.isfinite(tokens.alpha)):
        alpha = tokens.alpha[known]
        report["saturated"] = float(np.mean((alpha < SATURATED) | (alpha > 1 - SATURATED)))
    if tokens.varies(key):
        sides = [weights[(side == sign) & np.isfinite(weights)] for _, sign in _SIDES]
        pooled = np.concatenate(sides)
        between = sum(len(own) * (own.mean() - pooled.mean()) ** 2 for own in sides if len(own))
        if (spread := float(np.sum((pooled - pooled.mean()) ** 2))) > 0:
            report["between_sides"] = float(between / spread)
    update = tokens.update(key)
    if (total := float(np.nansum(update))) > 0:
        report["update_share_positive"] = float(np.nansum(update[side > 0])) / total
    for name, sign in _SIDES if tokens.varies(key) else ():
        for label, values in (("rank", tokens.uncertain), ("measured", sign * tokens.measured)):
            correlation = _rank_correlation(weights[side == sign], values[side == sign])
            if correlation is not None:
                report[f"{label}_{name}"] = correlation
        here = (side == sign) & np.isfinite(weights)
        for label, meant in (("sure", tokens.uncertain < SURE), ("unsure", tokens.uncertain > UNSURE)):
            if np.count_nonzero(here & meant) >= 3:
                report[f"{label}_{name}"] = float(weights[here & meant].mean())
    return report


def sentences(
    rows: Mapping[str, Mapping[str, Any]],
    reliability: Any = None,
    tells_responses: bool = False,
    sides: tuple[str, str] = RIGHT_OR_WRONG,
) -> list[str]:
    """Return sentences about the run's own weights, the most important first."""
    positive, negative = sides
    own, plain = rows.get(OWN, {}), rows.get(PLAIN, {})
    said = []
    if "between_sides" in own:
        share = own["between_sides"]
        ends = ""
        if "saturated" in own:
            ends = f"{own['saturated']:.0%} of the coefficients are at the ends of their range; "
        what = _tells(share)
        if tells_responses:
            what = "responses, not between tokens: all tokens of a response weigh the same"
        tells = (
            f"on this batch the weights differ between {what} (the side alone explains {share:.0%} of their variance)."
        )
        said.append(_percent(_capital(ends + tells)))
        if share >= MOSTLY_SIDES and not tells_responses:
            said[-1] += " Shaded by the coefficient, tokens show their side; the share of the update tells them apart."
    elif own:
        said.append("This run weighs all tokens alike.")
    if "weight_signal_std" in own and (own["weight_signal_mean"], own["weight_signal_std"]) != (1, 0):
        warning = weights_in_effect(own["weight_signal_mean"], own["weight_signal_std"])
        said += [f"{_capital(warning)}."] if warning else []
    if clauses := [
        _follows(own, name, word)
        for name, word in (("positive", f"{positive} responses the weight"), ("negative", f"{negative} ones it"))
        if f"rank_{name}" in own
    ]:
        said.append(_capital("; ".join(clauses)) + ".")
    if "update_share_positive" in own:
        shares = f"{_capital(positive)} responses have {own['update_share_positive']:.1%} of the update"
        if "between_sides" in own:
            shares += f", and {plain['update_share_positive']:.1%} with every weight one"
        said.append(_percent(f"{shares}."))
    if clauses := [
        f"{_signed(own[f'measured_{name}'])} on {word} responses"
        for name, word in (("positive", positive), ("negative", negative))
        if f"measured_{name}" in own
    ]:
        said.append(f"Rank correlation of the weight with the measured credit: {', '.join(clauses)}.")
    if is_number(reliability):
        said.append(f"Weights from one half of the batch and from the other {_agree(reliability)}.")
    return said


def points_for(steps: int) -> int:
    """Return the number of tokens on each side of a step's figure, on a page with this many steps."""
    return int(np.clip(ON_PAGE // (2 * max(steps, 1)), FEWEST, MOST))


def _sample(tokens: StepTokens, key: str, sign: int, points: int) -> dict[str, Any]:
    """Return a seeded sample of the side's tokens as columns, and their total number."""
    known = np.isfinite(tokens.weights[key]) & np.isfinite(tokens.uncertain) & (tokens.side == sign)
    places = np.flatnonzero(known)
    count = len(places)
    if count > points:
        places = np.sort(np.random.default_rng(0).choice(places, points, replace=False))
    return {
        "uncertain": round_significant(tokens.uncertain[places].tolist(), 3),
        "weight": round_significant(tokens.weights[key][places].tolist(), 4),
        "of": count,
    }


def _spread(values: Column) -> float:
    known = values[np.isfinite(values)]
    return float(np.ptp(known)) if len(known) else 0.0


def _rank_correlation(first: Column, second: Column) -> float | None:
    """Return Spearman's correlation over the tokens with both values; None if there are too few or one does not vary."""
    known = np.isfinite(first) & np.isfinite(second)
    first, second = first[known], second[known]
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(stats.spearmanr(first, second).statistic)


def _tells(between_sides: float) -> str:
    fifths = (
        *("tokens, not between sides", "tokens more than between sides", "sides as much as between tokens"),
        *("sides more than between tokens", "sides, not between tokens"),
    )
    return fifths[sum(between_sides >= end for end in (0.2, 0.4, 0.6, 0.8))]


def _follows(own: Mapping[str, Any], name: str, word: str) -> str:
    """Return how the weight of a side relates to 1 - p, in words.

    If most weights are nearly equal, ranks are of invisible differences and may contradict the visible ones: then means are given."""
    rank = own[f"rank_{name}"]
    sure, unsure = own.get(f"sure_{name}"), own.get(f"unsure_{name}")
    gap = 0.0 if sure is None or unsure is None else unsure - sure
    if abs(gap) < _SEEN or (gap * rank > 0 and _verb(rank) != _verb(0)):
        return f"on {word} {_verb(rank)} {_SURPRISE}: rank correlation {_signed(rank)}"
    return (
        f"on {word} is {'higher' if gap > 0 else 'lower'} where the policy was unsure: {unsure:.2f} on average where "
        f"{_SURPRISE} is above {UNSURE}, {sure:.2f} where it is below {SURE}"
    )


def _verb(correlation: float) -> str:
    if abs(correlation) < 0.1:
        return "hardly follows"
    return "rises with" if correlation > 0 else "falls with"


def _agree(correlation: float) -> str:
    shown = f"rank correlation {_signed(correlation)}"
    if correlation >= 0.5:
        return f"agree: {shown}"
    if correlation >= 0.2:
        return f"agree only in part: {shown}, so the weights are partly chance"
    if correlation <= -0.2:
        return f"contradict each other: {shown}, so a few responses decide which tokens weigh more"
    return f"do not agree: {shown}, so the weights are mostly chance"


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", _MINUS)


def _percent(text: str) -> str:
    return text.replace("%", " %")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
