"""Tests for your own token rules: `check_rule(MyRule())` runs a rule on small batches and raises an error that says what breaks.

    from delta_rlvr.testing import check_rule

    def test_my_rule():
        check_rule(MyRule(share=0.3))

A rule must give a token the same weight in every layout of the batch: padded left or right, rows in another order, in
micro-batches, packed, on two ranks. It must accept an empty side, an empty response, a batch without a signal and a rank without a
token. Its weights must be finite and not negative, have a mean of one if it declares `mean_one`, and be the same where each of two
ranks has a half of every response if it declares `sees_slices`.
"""

from __future__ import annotations

import reprlib
import statistics
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from delta_rlvr.bounds import typed
from delta_rlvr.credit import TOKEN_ARRAYS, CreditStream, RuleError, TokenRule
from delta_rlvr.credit.reduce import AnotherRankRefused, Reducer
from delta_rlvr.credit.rule import check_rule_class, failure

Padded = dict[str, Tensor]
"""A batch as padded tensors: hidden [B, T, d], token arrays and mask [B, T], advantages, groups and keys [B]."""

TOLERANCE = 2e-5
"""Weights are float32 near one; sums in another order differ in their last bits."""

WIDTH, VOCABULARY = 6, 11

_BRIEF = reprlib.Repr()
_BRIEF.maxother = 200
"""Writes a rule in so many characters, whatever it keeps in its fields."""


class RuleBroken(AssertionError):
    """A token rule breaks a requirement; the message says which one, and on what batch."""


@typed
def check_rule(rule: TokenRule, *, batches: int = 3, seed: int = 0) -> list[str]:
    """Run a rule on `batches` random batches and on degenerate ones. Return the names of the checks, or raise `RuleBroken`."""
    check_rule_class(type(rule))
    layouts = LAYOUTS | ({_SLICES: _slices} if rule.sees_slices else {})
    for number in range(seed, seed + batches):
        batch, where = random_batch(number), f"random_batch(seed={number})"
        expected = _weights(rule, batch, where)
        _compare(rule, "number of calls", where, expected, _weights(rule, batch, where))
        for name, layout in layouts.items():
            for variant, (again, back) in layout(batch):
                place = f"{where}, {variant}"
                _compare(rule, name, place, expected, back(_solve(rule, again, place)))
        if rule.mean_one:
            _check_mean(rule, expected, where)
    for name, batch in degenerate_batches(seed).items():
        _weights(rule, batch, name)
    checked = ["number of calls", *layouts, *degenerate_batches(seed), "finite weights that are not negative"]
    return [*checked, "mean one"] if rule.mean_one else checked


def try_rule(rule: TokenRule) -> None:
    """Weigh one small random batch by a user's rule: what it always does wrong shows before anything is loaded or sampled."""
    if type(rule).__module__.partition(".")[0] == __name__.partition(".")[0]:
        return
    try:
        _weights(rule, random_batch(0), "a small random batch")
    except RuleBroken as error:
        raise RuleError(f"{error.__cause__} (tried on a small random batch)") from error


def spread_of_weights(rule: TokenRule, *, batches: int = 3, seed: int = 0) -> tuple[float, float]:
    """Return the mean and standard deviation of the weights of tokens with an advantage, on the batches of `check_rule`."""
    kept: list[float] = []
    for batch in map(random_batch, range(seed, seed + batches)):
        weights = _weights(rule, batch, "a random batch")
        kept += [one for row, side in zip(weights, batch["advantages"].tolist(), strict=True) if side for one in row]
    return statistics.fmean(kept), statistics.pstdev(kept)


def random_batch(seed: int) -> Padded:
    """Return nine responses to three prompts, with lengths from 0 to 8 and every array that a rule may need."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 9, (9,), generator=draw)
    lengths[7] = 0  # a response without a token
    time = int(lengths.max())
    shape = (9, time)
    logps = -3 * torch.rand(shape, generator=draw)
    return {
        "hidden": torch.randn(*shape, WIDTH, generator=draw),
        "logps": logps,
        "entropy": 2 * torch.rand(shape, generator=draw),
        "tokens": torch.randint(0, VOCABULARY, shape, generator=draw),
        "decisive": torch.rand(shape, generator=draw) < 0.3,
        "measured": 2 * torch.rand(shape, generator=draw) - 1,
        "mask": torch.arange(time)[None] < lengths[:, None],
        "advantages": torch.tensor([1.0, -0.5, -0.5, 0.7, -1.1, 0.4, 0.0, 0.0, 0.0]),
        "groups": torch.tensor([5, 5, 5, 2, 2, 2, 8, 8, 8]),
        "keys": torch.arange(100, 109),
    }


def degenerate_batches(seed: int = 0) -> dict[str, Padded]:
    """Return edge cases, by name."""
    plain = random_batch(seed)
    wrong, nothing = -plain["advantages"].abs(), torch.zeros_like(plain["advantages"])
    single = {name: values[:1] for name, values in plain.items()}
    return {
        "an empty side": {**plain, "advantages": wrong},
        "a batch without a signal": {**plain, "advantages": nothing},
        "a batch of one response": single,
        "certain tokens": {
            **plain,
            "logps": torch.zeros_like(plain["logps"]),
            "entropy": torch.zeros_like(plain["entropy"]),
        },
        "improbable tokens": {**plain, "logps": 10 * plain["logps"] - 10},
    }


# ---------------------------------------------------------------------------------------------- the same batch, laid out otherwise

Weights = list[list[float]]
"""One weight per valid token, response by response."""
Layout = Iterator[tuple[str, tuple[list[list[Padded]], Callable[[list[Weights]], Weights]]]]
"""A description, the micro-batches of each rank, and a function that puts the ranks' weights into the order of the batch."""


def _padding(batch: Padded) -> Layout:
    def widened(values: Tensor, left: int, right: int) -> Tensor:
        fill = [0, 0] * (values.dim() - 2) + [left, right]
        return torch.nn.functional.pad(values, fill, value=0)

    for left, right in ((3, 0), (0, 4)):
        moved = {name: widened(values, left, right) if values.dim() > 1 else values for name, values in batch.items()}
        # Values at masked places must never matter.
        for name in ("hidden", "logps", "entropy", "measured"):
            moved[name][~moved["mask"]] = float("nan")
        yield f"with {left} masked places before and {right} after each response", ([[moved]], _joined)


def _order(batch: Padded) -> Layout:
    places = torch.randperm(len(batch["mask"]), generator=torch.Generator().manual_seed(1))
    back = places.argsort().tolist()
    moved = {name: values[places] for name, values in batch.items()}
    yield (f"with its rows in the order {places.tolist()}", ([[moved]], lambda ranks: [ranks[0][row] for row in back]))


def _micro_batches(batch: Padded) -> Layout:
    for cuts in ([2, 3, 4], [1, 8]):
        yield f"in micro-batches of {cuts} rows", ([_split(batch, cuts)], _joined)


def _packing(batch: Padded) -> Layout:
    mask = batch["mask"]
    packed = {name: values[mask] if values.dim() > 1 and name != "mask" else values for name, values in batch.items()}
    packed["lengths"] = mask.sum(1)
    del packed["mask"]
    yield "packed without padding", ([[packed]], _joined)


def _two_ranks(batch: Padded) -> Layout:
    for cuts in ([4, 5], [7, 2]):
        yield f"on two ranks of {cuts} rows", ([[part] for part in _split(batch, cuts)], _joined)
    # The eighth response has no token, so that a rank with it alone has none.
    places = [0, 1, 2, 3, 4, 5, 6, 8, 7]
    moved = {name: values[places] for name, values in batch.items()}
    yield (
        "on two ranks, one without a token",
        ([[part] for part in _split(moved, [8, 1])], lambda ranks: [_joined(ranks)[row] for row in places]),
    )


def _slices(batch: Padded) -> Layout:
    """As under sequence parallelism: both ranks have every response, the first its first half and the second the rest."""
    mask = batch["mask"]
    first = mask & (mask.cumsum(1) <= (mask.sum(1, keepdim=True) + 1) // 2)
    yield (
        "on two ranks, each with a half of every response",
        (
            [[{**batch, "mask": half}] for half in (first, mask & ~first)],
            lambda ranks: [before + after for before, after in zip(*ranks, strict=True)],
        ),
    )


def _split(batch: Padded, cuts: list[int]) -> list[Padded]:
    parts = {name: values.split(cuts) for name, values in batch.items()}
    return [{name: values[place] for name, values in parts.items()} for place in range(len(cuts))]


def _joined(ranks: list[Weights]) -> Weights:
    return [row for rank in ranks for row in rank]


LAYOUTS: dict[str, Callable[[Padded], Layout]] = {
    "padding": _padding,
    "row order": _order,
    "micro-batch split": _micro_batches,
    "packing": _packing,
    "number of ranks": _two_ranks,
}
_SLICES = "slices of responses"


# ---------------------------------------------------------------------------------------------------------------- running a rule


def _weights(rule: TokenRule, batch: Padded, where: str) -> Weights:
    return _solve(rule, [[batch]], where)[0]


def _solve(rule: TokenRule, ranks: list[list[Padded]], where: str) -> list[Weights]:
    """The weights of each rank's micro-batches, all ranks in this process."""
    meeting = _Meeting(len(ranks))
    with warnings.catch_warnings(), ThreadPoolExecutor(len(ranks)) as pool:
        warnings.simplefilter("ignore")
        jobs = [pool.submit(_one_rank, rule, parts, meeting, rank) for rank, parts in enumerate(ranks)]
        problems = [job.exception() for job in jobs]
    # A rank that stops because of another one raises either of these, depending on which thread is faster.
    followers = (threading.BrokenBarrierError, AnotherRankRefused)
    first = next((one for one in problems if one and not isinstance(one.__cause__ or one, followers)), None)
    if first is None and any(problems):
        first = RuleError("the ranks' collectives differ: each rank must reduce the same things in the same order")
    if first is not None:
        raise RuleBroken(f"{_BRIEF.repr(rule)}\nbreaks on {where}:\n{type(first).__name__}: {first}") from first
    return [job.result() for job in jobs]


def _one_rank(rule: TokenRule, parts: list[Padded], meeting: _Meeting, rank: int) -> Weights:
    try:
        head = torch.randn(VOCABULARY, WIDTH, generator=torch.Generator().manual_seed(99))
        stream = CreditStream(rule, head=head, temperature=0.7, process_group=_ThreadReducer(meeting, rank))
        for part in parts:
            arrays: dict[str, Any] = {name: part[name] for name in TOKEN_ARRAYS if name in rule.needs}
            stream.add(
                part["hidden"], arrays.pop("logps", None), part.get("mask"), lengths=part.get("lengths"), **arrays
            )
        whole = {name: torch.cat([part[name] for part in parts]) for name in ("advantages", "groups", "keys")}
        record = stream.solve(whole["advantages"], groups=whole["groups"], keys=whole["keys"], round_number=3)
    except AnotherRankRefused:
        raise  # all ranks have agreed on this: none waits, and the rank with the problem raises it
    except BaseException as error:
        meeting.barrier.abort()  # the other ranks must not wait for this one
        raise error if isinstance(error, Exception) else failure(rule, error)  # noqa: B904
    return [row.tolist() for row in record.weights.split(record.lengths.tolist())]


class _Meeting:
    """The exchange of values between ranks that are threads."""

    def __init__(self, ranks: int):
        self.barrier = threading.Barrier(ranks, timeout=30)
        self.brought: list[Any] = [None] * ranks

    def exchange(self, rank: int, what: str, value: Any) -> list[Any]:
        """Return the values of all ranks, in rank order."""
        self.brought[rank] = what, value
        self.barrier.wait()
        everything = list(self.brought)
        self.barrier.wait()
        if len({name for name, _ in everything}) > 1:
            raise threading.BrokenBarrierError
        return [value for _, value in everything]


class _ThreadReducer(Reducer):
    """A reducer between threads of one process."""

    def __init__(self, meeting: _Meeting, rank: int):
        super().__init__()
        self._meeting, self._rank = meeting, rank

    @property
    def alone(self) -> bool:
        return False

    def sum(self, values: Tensor) -> Tensor:
        everything = self._meeting.exchange(self._rank, "sum", values.clone())
        return values.copy_(torch.stack(everything).sum(0))

    def maximum(self, value: int) -> int:
        return max(self._meeting.exchange(self._rank, "maximum", value))

    def gather(self, values: Tensor) -> Tensor:
        return torch.cat(self._meeting.exchange(self._rank, "gather", values.clone()))

    def gather_counts(self, count: int) -> list[int]:
        return self._meeting.exchange(self._rank, "counts", count)

    @property
    def rank(self) -> int:
        return self._rank


def _compare(rule: TokenRule, name: str, where: str, expected: Weights, weights: Weights) -> None:
    for row, (before, after) in enumerate(zip(expected, weights, strict=True)):
        for token, (one, other) in enumerate(zip(before, after, strict=True)):
            if abs(one - other) > TOLERANCE * max(1.0, abs(one)):
                hint = (
                    "\nrows count from 0 on each rank, and a rank has a part of the batch: for sums within a response use "
                    "batch.response_means; over groups batch.sums_by(batch.group_number[batch.row], ...), over all batch.total; for "
                    "the highest share delta_rlvr.credit.pieces.highest_share; for ranks and quantiles batch.reducer.gather"
                )
                hints = {
                    "number of ranks": hint,
                    _SLICES: "\nthe rule declares `sees_slices`, and so must use no position, length or row: leave that out",
                }
                raise RuleBroken(
                    f"{_BRIEF.repr(rule)}\n"
                    f"depends on the {name}: token {token} of response {row} weighs {one:.7g} and then {other:.7g}\n"
                    f"on {where}{hints.get(name, '')}"
                )


def _check_mean(rule: TokenRule, weights: Weights, where: str) -> None:
    tokens = [weight for row in weights for weight in row]
    mean = sum(tokens) / len(tokens)
    if abs(mean - 1) > TOLERANCE:
        raise RuleBroken(f"{_BRIEF.repr(rule)}\npromises a mean of one (`mean_one`), but it is {mean:.6g} on {where}")
