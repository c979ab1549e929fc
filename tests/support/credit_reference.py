"""The method in float64 loops: slow, obvious, and sharing no line with the library that it checks.

Distances are computed literally, sums with `math.fsum`, so that row order and padding cannot change a result.
Shapes: `v[b][t]` a vector (never looked at where masked), `advantages` [batch], `mask` [batch, time].

Where the method leaves room, this file decides:
- A side is empty when no valid token is on it (A != 0), whatever its mass; `eps` only guards the division.
- A group with an empty side weighs 1 before the normalisation, also without the range map.
- The flat-range rule (exactly 1) holds without normalisation too; without the range map there is no range.
- A side whose alpha mass is exactly 0 keeps its centroid, also under soft assignment (underflow).
- If every weight comes out 0 there is nothing to tell tokens apart by: all of them are 1 (when normalised).
- The initial distance scale ||mu+(0) - mu-(0)||^2 is clamped at `eps_gamma` as well, and is each group's own.
- `within_side` reports -||v - mu_own||^2 as its margin; with `hard` it has no meaning.
- `alignment` reports <v, mu_own - mu_opp>^2 / ||v|| as its margin, 0 where v is 0, and its alpha is 2 sigmoid(D / gamma) - 1.
- Top-K ties go to the lower vocabulary index; the sampled token need not be among the top K.
- FIPO's exponent counts positions, holes included; its guard clips exp(F) itself, not the clipped weight.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Literal, TypedDict

import numpy as np

Array = np.ndarray
Position = tuple[int, int]
Slot = tuple[Hashable, int]  # (group label, +1 or -1); the label is 0 in batch scope

POSITIVE, NEGATIVE = +1, -1
EPS, EPS_GAMMA = 1e-12, 1e-8
LARGEST_LOG_RATIO = 20.0


class Coefficients(TypedDict):
    """What `reference_coefficients` hands back. A group with an empty side has entries in `masses` alone."""

    weights: Array  # [batch, time] lambda-bar; 0 outside the mask
    raw: Array  # [batch, time] lambda (or alpha) before flat rule and normalisation; 0 outside the mask
    scored: Array  # [batch, time] bool: where the margins have a meaning; they are 0 elsewhere
    margin: Array
    margin_initial: Array
    gamma: dict[Slot, float]
    masses: dict[Slot, float]
    centroid_gap: dict[Hashable, float]  # ||mu+ - mu-||, not squared


# ---------------------------------------------------------------- small pieces


def sigmoid(x: float) -> float:
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-x))
    return math.exp(x) / (1.0 + math.exp(x))


def softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    exponentials = [math.exp(x - top) for x in logits]
    total = math.fsum(exponentials)
    return [e / total for e in exponentials]


def dot(a: Iterable[float], b: Iterable[float]) -> float:
    return math.fsum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def squared_distance(a: Array, b: Array) -> float:
    return math.fsum((float(x) - float(y)) ** 2 for x, y in zip(a, b, strict=True))


def population_std(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((x - mean) ** 2 for x in values) / len(values))


def weighted_sum(weights: Sequence[float], vectors: Sequence[Array], width: int) -> Array:
    sums = [math.fsum(w * float(x[i]) for w, x in zip(weights, vectors, strict=True)) for i in range(width)]
    return np.array(sums, dtype=np.float64)


def valid_positions(mask: Any) -> list[Position]:
    return [(b, t) for b, row in enumerate(mask) for t, valid in enumerate(row) if valid]


def side_of(advantage: float) -> int:
    return POSITIVE if advantage > 0 else NEGATIVE if advantage < 0 else 0


def normalize_weights(raw: Any, mask: Any) -> Array:
    """raw * N / sum(raw) over the valid tokens, so that the mean is one; all ones when the sum is zero."""
    tokens = valid_positions(mask)
    total = math.fsum(float(raw[b][t]) for b, t in tokens)
    weights = np.zeros(np.shape(mask), dtype=np.float64)
    for b, t in tokens:
        weights[b, t] = float(raw[b][t]) * len(tokens) / total if total != 0 else 1.0
    return weights


# ---------------------------------------------------------------- proxies (Appendix F)


def output_row(hidden: Any, logps: Any) -> Array:
    """(1 - p(y)) h. `hidden` [..., width], `logps` [...] of the sampled tokens -> [..., width]."""
    hidden, logps = np.asarray(hidden, np.float64), np.asarray(logps, np.float64)
    proxy = np.zeros_like(hidden)
    for at in np.ndindex(logps.shape):
        for i in range(hidden.shape[-1]):
            proxy[at][i] = (1.0 - math.exp(logps[at])) * hidden[at][i]
    return proxy


def sharpness(hidden: Any, logps: Any, entropy: Any) -> Array:
    """(log p(y) + H) h -> [..., width]."""
    hidden, logps = np.asarray(hidden, np.float64), np.asarray(logps, np.float64)
    proxy = np.zeros_like(hidden)
    for at in np.ndindex(logps.shape):
        for i in range(hidden.shape[-1]):
            proxy[at][i] = (min(0.0, logps[at]) + float(entropy[at[0]][at[1]])) * hidden[at][i]
    return proxy


def topk_hidden(hidden: Any, head: Any, tokens: Any, k: int, temperature: float = 1.0) -> Array:
    """W_y - sum over the top K of p~_j W_j. `head` [vocab, width], `tokens` [...] -> [..., width]."""
    hidden, head, tokens = np.asarray(hidden, np.float64), np.asarray(head, np.float64), np.asarray(tokens)
    vocab, width = head.shape
    proxy = np.zeros((*tokens.shape, width))
    for at in np.ndindex(tokens.shape):
        logits = [dot(head[j], hidden[at]) / temperature for j in range(vocab)]
        top = sorted(range(vocab), key=lambda j: (-logits[j], j))[:k]
        probabilities = softmax([logits[j] for j in top])
        mean_row = weighted_sum(probabilities, [head[j] for j in top], width)
        proxy[at] = head[int(tokens[at])] - mean_row
    return proxy


def head_gradient(hidden: Any, head: Any, tokens: Any, temperature: float = 1.0) -> Array:
    """(e_y - p) outer h, materialised row by row of the head -> [..., vocab * width]."""
    hidden, head, tokens = np.asarray(hidden, np.float64), np.asarray(head, np.float64), np.asarray(tokens)
    vocab, width = head.shape
    proxy = np.zeros((*tokens.shape, vocab * width))
    for at in np.ndindex(tokens.shape):
        probabilities = softmax([dot(head[j], hidden[at]) / temperature for j in range(vocab)])
        for j in range(vocab):
            for i in range(width):
                indicator = 1.0 if j == int(tokens[at]) else 0.0
                proxy[at][j * width + i] = (indicator - probabilities[j]) * hidden[at][i]
    return proxy


# ---------------------------------------------------------------- the estimator (Eq. 5-8) and its variants


def reference_coefficients(
    v: Any,
    advantages: Any,
    mask: Any,
    *,
    groups: Sequence[Hashable] = (),
    scope: Literal["batch", "group"] = "batch",
    lambda_min: float = 0.8,
    lambda_max: float = 1.2,
    normalize: bool = True,
    range_map: bool = True,
    **settings: Any,
) -> Coefficients:
    """Token weights of a rollout batch, with everything that was computed on the way to them. `settings`: those of `_solve_group`."""
    tokens = valid_positions(mask)
    raw, margin, margin_initial = (np.zeros(np.shape(mask)) for _ in range(3))
    scored = np.zeros(np.shape(mask), dtype=bool)
    gamma: dict[Slot, float] = {}
    masses: dict[Slot, float] = {}
    gaps: dict[Hashable, float] = {}
    members: dict[Hashable, list[Position]] = {}
    for b, t in tokens:
        members.setdefault(groups[b] if scope == "group" else 0, []).append((b, t))
    for label, group in members.items():
        sides = {s: [at for at in group if side_of(float(advantages[at[0]])) == s] for s in (POSITIVE, NEGATIVE)}
        for s in sides:
            masses[label, s] = math.fsum(abs(float(advantages[b])) for b, _ in sides[s])
        solved = _solve_group(sides, v, advantages, **settings) if all(sides.values()) else None
        if solved is not None:
            alpha, last, first, temperatures, gaps[label] = solved
            gamma |= {(label, s): temperatures[s] for s in sides}
            for at in alpha:
                scored[at], margin[at], margin_initial[at] = True, last[at], first[at]
        for at in group:
            if solved is None:
                raw[at] = 1.0  # overrides the rule of zero advantage
            elif range_map:
                raw[at] = lambda_min + (lambda_max - lambda_min) * alpha.get(at, 0.0)
            else:
                raw[at] = alpha.get(at, 0.0)
    weights = raw.copy()
    if range_map and lambda_min == lambda_max:
        weights = np.array(mask, dtype=bool).astype(np.float64)
    elif normalize:
        weights = normalize_weights(raw, mask)  # (8): lambda * N / Z, over the batch
    return Coefficients(
        weights=weights,
        raw=raw,
        scored=scored,
        margin=margin,
        margin_initial=margin_initial,
        gamma=gamma,
        masses=masses,
        centroid_gap=gaps,
    )


Margins = dict[Position, float]


def _solve_group(
    sides: dict[int, list[Position]],
    v: Any,
    advantages: Any,
    refinements: int = 1,
    contrast: Literal["both_sides", "within_side", "alignment"] = "both_sides",
    gamma: Literal["adaptive", "initial"] = "adaptive",
    assignment: Literal["soft", "hard"] = "soft",
) -> tuple[Margins, Margins, Margins, dict[int, float], float]:
    """Section 3 for one group that has both sides, as it is written there: alpha, D, D(0), the temperatures and ||mu+ - mu-||."""
    tokens = [at for s in sides for at in sides[s]]
    vector = {(b, t): np.array(v[b][t], dtype=np.float64) for b, t in tokens}
    strength = {(b, t): abs(float(advantages[b])) for b, t in tokens}
    side = {at: s for s in sides for at in sides[s]}
    width = len(vector[tokens[0]])

    def centroid(s: int, token_weight: Callable[[Position], float]) -> tuple[float, Array]:
        weights = [token_weight(at) for at in sides[s]]
        mass = math.fsum(weights)
        return mass, weighted_sum(weights, [vector[at] for at in sides[s]], width) / max(mass, EPS)

    def margins(mu: dict[int, Array]) -> Margins:
        values = {}
        for at in tokens:
            own, opposite = mu[side[at]], mu[-side[at]]
            if contrast == "within_side":
                values[at] = -squared_distance(vector[at], own)
            elif contrast == "alignment":
                along = dot(vector[at], own - opposite)
                length = math.sqrt(dot(vector[at], vector[at]))
                values[at] = along**2 / length if length > 0 else 0.0
            else:
                values[at] = squared_distance(vector[at], opposite) - squared_distance(vector[at], own)
        return values

    def temperatures(margin: Margins) -> dict[int, float]:
        if gamma == "initial":
            return dict.fromkeys(sides, max(squared_distance(mu_initial[POSITIVE], mu_initial[NEGATIVE]), EPS_GAMMA))
        return {s: max(population_std([margin[at] for at in sides[s]]), EPS_GAMMA) for s in sides}

    def assign(margin: Margins, temperature: dict[int, float]) -> Margins:
        if assignment == "hard":
            return {at: 1.0 if margin[at] > 0 else 0.0 for at in tokens}
        alpha = {at: sigmoid(margin[at] / temperature[side[at]]) for at in tokens}  # (6)
        return {at: 2 * alpha[at] - 1 for at in tokens} if contrast == "alignment" else alpha

    mu_initial = {s: centroid(s, lambda at: strength[at])[1] for s in sides}
    mu = dict(mu_initial)
    margin = margin_initial = margins(mu)
    temperature = temperatures(margin)
    for _ in range(refinements):
        alpha = assign(margin, temperature)
        for s in sides:
            mass, moved = centroid(s, lambda at: strength[at] * alpha[at])  # noqa: B023 (7)
            if mass > 0:
                mu[s] = moved
        temperature = temperatures(margin)  # lagged: the margins before the centroids moved
        margin = margins(mu)
    gap = math.sqrt(squared_distance(mu[POSITIVE], mu[NEGATIVE]))
    return assign(margin, temperature), margin, margin_initial, temperature, gap


# ---------------------------------------------------------------- other token weights fixed once a batch


def _spread_over(kept: Array, mask: Any) -> Array:
    """N / kept on the kept tokens, so that sum(w * loss) / N is the mean over them; zeros if none is kept."""
    count = int(kept.sum())
    weights = np.zeros(kept.shape)
    if count:
        weights[kept] = len(valid_positions(mask)) / count
    return weights


def selection(lam: Any, advantages: Any, mask: Any, share: float, which: Literal["top", "bottom"]) -> Array:
    """A share, by lambda, of the tokens with A != 0. (Ties at the cut have no answer.)"""
    candidates = [(b, t) for b, t in valid_positions(mask) if float(advantages[b]) != 0]
    count = math.floor(share * len(candidates) + 0.5)
    ranked = sorted(candidates, key=lambda at: float(lam[at[0]][at[1]]), reverse=which == "top")
    kept = np.zeros(np.shape(mask), dtype=bool)
    for at in ranked[:count]:
        kept[at] = True
    return _spread_over(kept, mask)


def forking_tokens(entropy: Any, mask: Any, quantile: float) -> Array:
    """Tokens whose entropy reaches the (linearly interpolated) quantile of the valid."""
    tokens = valid_positions(mask)
    kept = np.zeros(np.shape(mask), dtype=bool)
    if tokens:
        threshold = float(np.quantile(np.array([float(entropy[b][t]) for b, t in tokens]), quantile))
        for b, t in tokens:
            kept[b, t] = float(entropy[b][t]) >= threshold
    return _spread_over(kept, mask)


def surprise_score(logps: Any) -> Array:
    """1 - p of the sampled token."""
    return np.array([[1.0 - math.exp(min(0.0, float(x))) for x in row] for row in logps])


def entropy_score(entropy: Any) -> Array:
    """1 - 1 / perplexity."""
    return np.array([[1.0 - math.exp(-float(x)) for x in row] for row in entropy])


def scored_weights(score: Any, advantages: Any, mask: Any, lambda_min: float = 0.8, lambda_max: float = 1.2) -> Array:
    """A score in [0, 1] in the place of alpha: mapped, 0 without an advantage, and normalised (Eq. 8)."""
    raw = np.zeros(np.shape(mask))
    for b, t in valid_positions(mask):
        told = float(score[b][t]) if float(advantages[b]) != 0 else 0.0
        raw[b, t] = lambda_min + (lambda_max - lambda_min) * told
    return normalize_weights(raw, mask)


def grpo_weights(mask: Any) -> Array:
    """N / (R |o_i|), R counting the responses that have a valid token."""
    lengths = [sum(1 for valid in row if valid) for row in mask]
    responses = sum(1 for length in lengths if length)
    weights = np.zeros(np.shape(mask))
    for b, t in valid_positions(mask):
        weights[b, t] = sum(lengths) / (responses * lengths[b])
    return weights


# ---------------------------------------------------------------- surrogates and aggregation


def _per_token(mask: Any, value: Callable[[int, int], float]) -> Array:
    out = np.zeros(np.shape(mask))
    for b, t in valid_positions(mask):
        out[b, t] = value(b, t)
    return out


def _log_ratio(new: Any, old: Any, b: int, t: int) -> float:
    return max(-LARGEST_LOG_RATIO, min(LARGEST_LOG_RATIO, float(new[b][t]) - float(old[b][t])))


def clipped_token_loss(
    new: Any, old: Any, advantages: Any, mask: Any, *, low: float = 0.2, high: float = 0.28
) -> Array:
    """-min(r A, clip(r, 1 - low, 1 + high) A)."""

    def loss(b: int, t: int) -> float:
        ratio, advantage = math.exp(_log_ratio(new, old, b, t)), float(advantages[b])
        return -min(ratio * advantage, max(1.0 - low, min(1.0 + high, ratio)) * advantage)

    return _per_token(mask, loss)


def dual_clipped_token_loss(new: Any, old: Any, advantages: Any, mask: Any, *, ceiling: float = 10.0) -> Array:
    """The clipped loss, which no negative advantage may push above ceiling * |A|."""
    clipped = clipped_token_loss(new, old, advantages, mask)

    def loss(b: int, t: int) -> float:
        advantage = float(advantages[b])
        return min(float(clipped[b, t]), -ceiling * advantage) if advantage < 0 else float(clipped[b, t])

    return _per_token(mask, loss)


def sapo_token_loss(new: Any, old: Any, advantages: Any, mask: Any) -> Array:
    """-f(r) A with f(r) = sigmoid(tau (r - 1)) * 4 / tau."""

    def loss(b: int, t: int) -> float:
        advantage = float(advantages[b])
        tau = 1.0 if advantage > 0 else 1.05
        return -sigmoid(tau * (math.exp(_log_ratio(new, old, b, t)) - 1.0)) * 4.0 / tau * advantage

    return _per_token(mask, loss)


def fipo_weights(new: Any, old: Any, advantages: Any, mask: Any, *, low: float = 1.0) -> Array:
    """clip(exp(F_t), low, 1.2), F_t = sum over j >= t of decay^(j-t) d_j, as the O(T^2) sum that it is."""

    def weight(b: int, t: int) -> float:
        shifts = {j: _log_ratio(new, old, b, j) for j in range(t, len(mask[b])) if mask[b][j]}
        future = [2.0 ** (-(j - t) / 32.0) * d for j, d in shifts.items() if d <= math.log(10.0)]
        influence = max(low, min(1.2, math.exp(math.fsum(future))))
        return min(1.0, influence) if float(advantages[b]) < 0 and math.exp(shifts[t]) > 10.0 else influence

    return _per_token(mask, weight)


def token_mean(loss: Any, mask: Any) -> float:
    """1/N sum loss over the valid tokens of the batch."""
    tokens = valid_positions(mask)
    return math.fsum(float(loss[b][t]) for b, t in tokens) / len(tokens)


def sequence_mean(loss: Any, mask: Any) -> float:
    """Mean within a response, then over the responses that have a valid token."""
    means = [
        math.fsum(float(loss[b][t]) for t in range(len(row)) if row[t]) / sum(map(bool, row))
        for b, row in enumerate(mask)
        if any(row)
    ]
    return math.fsum(means) / len(means)


# ---------------------------------------------------------------- random cases

ADVANTAGE_KINDS = ("mixed", "with_zeros", "no_positive", "no_negative", "all_zero")


class Case(TypedDict):
    """One random rollout batch. Every number is float64 with an exact float32 value."""

    v: Array  # [batch, time, width]
    advantages: Array  # [batch]
    mask: Array  # [batch, time] bool
    groups: Array  # [batch] int, labels neither sorted nor contiguous in rows
    logps_old: Array  # [batch, time], <= 0
    logps_new: Array  # [batch, time], <= 0; a few log-ratios beyond every clip
    entropy: Array  # [batch, time], >= 0, ties likely


def _float32(x: Any) -> Array:
    return np.asarray(x, dtype=np.float32).astype(np.float64)


def _random_advantages(rng: np.random.Generator, batch: int, kind: str) -> Array:
    sizes = rng.uniform(0.05, 2.5, batch)
    signs = rng.choice([-1.0, 1.0], batch)
    if batch >= 2:
        signs[:2] = (1.0, -1.0)  # a mixed batch of two rows or more has both signs
        rng.shuffle(signs)
    if kind == "no_positive":
        signs = -np.abs(signs)
    if kind == "no_negative":
        signs = np.abs(signs)
    if kind == "all_zero":
        signs = np.zeros(batch)
    if kind == "with_zeros":
        signs[rng.random(batch) < 0.4] = 0.0
    return _float32(sizes * signs + 0.0)


def random_case(
    rng: np.random.Generator, *, max_batch: int = 8, max_time: int = 12, max_width: int = 9, poison: bool = False
) -> Case:
    """Ragged masks with holes and empty rows, one valid token at least; `poison`: NaN at masked places."""
    batch, time = int(rng.integers(1, max_batch + 1)), int(rng.integers(1, max_time + 1))
    width = int(rng.integers(1, max_width + 1))
    kind = str(rng.choice(ADVANTAGE_KINDS, p=(0.5, 0.3, 0.07, 0.07, 0.06)))
    lengths = rng.integers(0, time + 1, batch)
    lengths[rng.random(batch) < 0.5] = time
    lengths[rng.random(batch) < 0.1] = 0
    mask = np.arange(time)[None, :] < lengths[:, None]
    if rng.random() < 0.5:
        mask = mask[:, ::-1].copy()  # padded on the left
    if rng.random() < 0.5:
        mask &= rng.random((batch, time)) > 0.2  # holes: tool tokens
    if not mask.any():
        mask[rng.integers(batch), rng.integers(time)] = True

    advantages = _random_advantages(rng, batch, kind)
    scale = 10.0 ** rng.uniform(-1, 1)
    v = rng.normal(size=(batch, time, width)) + rng.normal(size=width)  # an offset that both sides share
    v += np.sign(advantages)[:, None, None] * rng.normal(size=width) * rng.uniform(0, 1.5)
    boilerplate = rng.normal(size=(3, width))
    shared = rng.random((batch, time)) < 0.2
    v[shared] = boilerplate[rng.integers(0, 3, int(shared.sum()))]

    logps_old = -rng.exponential(1.0, (batch, time))
    spread = rng.choice([0.05, 0.3, 2.5], p=(0.5, 0.3, 0.2))
    logps_new = np.minimum(logps_old + rng.normal(size=(batch, time)) * spread, 0.0)
    entropy = np.round(rng.exponential(0.7, (batch, time)), int(rng.integers(1, 7)))
    case = Case(
        v=_float32(v * scale),
        advantages=advantages,
        mask=mask,
        groups=rng.permutation(batch) % int(rng.integers(1, batch + 1)) * 7 + 3,
        logps_old=_float32(logps_old),
        logps_new=_float32(logps_new),
        entropy=_float32(entropy),
    )
    if poison:
        for array in (case["v"], case["logps_old"], case["logps_new"], case["entropy"]):
            array[~mask] = np.nan
    return case


class HeadCase(TypedDict):
    """Float32-representable hidden states and head; `logps` are the sampled tokens' own, in full float64."""

    hidden: Array  # [batch, time, width]
    head: Array  # [vocab, width]
    tokens: Array  # [batch, time] int
    logps: Array  # [batch, time]
    temperature: float


def random_head_case(rng: np.random.Generator, batch: int, time: int, width: int, max_vocab: int = 11) -> HeadCase:
    vocab = int(rng.integers(2, max_vocab + 1))
    hidden, head = _float32(rng.normal(size=(batch, time, width))), _float32(rng.normal(size=(vocab, width)))
    tokens = rng.integers(0, vocab, (batch, time))
    temperature = float(rng.choice([0.5, 1.0, 1.5]))
    logps = np.zeros((batch, time))
    for at in np.ndindex(batch, time):
        probabilities = softmax([dot(head[j], hidden[at]) / temperature for j in range(vocab)])
        logps[at] = math.log(probabilities[int(tokens[at])])
    return HeadCase(hidden=hidden, head=head, tokens=tokens, logps=logps, temperature=temperature)
