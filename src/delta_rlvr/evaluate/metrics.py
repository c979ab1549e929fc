"""What is computed from the samples of one question, and from the questions of a benchmark.

A question is a sequence of scores, one a sample, in order of sample number. A score is 0 or 1; avg@k alone
takes any number. Sums of counts are exact integers until the one division at the end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal

NoAnswer = Literal["abstain", "wrong"]


def average_at_k(scores: Sequence[float], k: int | None = None) -> float:
    """avg@k of one question: the mean of its first k samples (of all of them without k)."""
    k = _check_k(len(scores), k)
    return math.fsum(scores[:k]) / k


def pass_at_k(scores: Sequence[float], k: int) -> float:
    """pass@k of one question, unbiased: the share of the k-subsets of its n samples that hold a right one.

    1 - C(n-c, k) / C(n, k) with c right ones, as one division of exact integers: correctly rounded for any n.
    """
    n = len(scores)
    k = _check_k(n, k)
    right = _count_right(scores)
    subsets = math.comb(n, k)
    return (subsets - math.comb(n - right, k)) / subsets


def majority_at_k(
    scores: Sequence[float],
    answers: Sequence[str | None],
    k: int | None = None,
    *,
    no_answer: NoAnswer = "abstain",
) -> float:
    """maj@k of one question: the expected score of a majority vote among k of its n samples.

    Samples vote with their normalised answers. Ties are broken by a fair draw, and the draw is replaced by
    its expectation; k < n is the exact mean over all C(n, k) subsets. A sample without an answer does not
    vote ("abstain") or votes for a wrong answer of its own kind ("wrong"). Where nobody votes the score is
    0. An answer that was judged both right and wrong (the text is the same, the rest of the completion was
    not) counts with its mean score.
    """
    n = len(scores)
    if len(answers) != n:
        raise ValueError(f"scores has {n} samples and answers {len(answers)}: one answer (or None) a sample")
    k = _check_k(n, k)
    votes: dict[str, list[float]] = {}
    silent = 0
    for score, answer in zip(scores, answers, strict=True):
        if answer is not None:
            votes.setdefault(normalise_answer(answer), []).append(score)
        else:
            silent += 1
    sizes = [len(group) for group in votes.values()]
    values = [Fraction(_count_right(group), len(group)) for group in votes.values()]
    if silent and no_answer == "wrong":
        sizes.append(silent)
        values.append(Fraction(0))
        silent = 0
    if k == n:  # the one subset there is
        top = max(sizes, default=0)
        winners = [value for size, value in zip(sizes, values, strict=True) if size == top]
        return float(sum(winners, Fraction(0)) / len(winners)) if winners else 0.0
    return float(_expected_vote(sizes, values, silent, k) / math.comb(n, k))


def _expected_vote(sizes: Sequence[int], values: Sequence[Fraction], silent: int, k: int) -> Fraction:
    """Sum over all k-subsets of the winner's value. Subsets are counted by polynomials: for a winner with
    `votes` votes, every rival has at most that many, and each rival that has as many shares the win."""
    total = Fraction(0)
    for own, (size, value) in enumerate(zip(sizes, values, strict=True)):
        if not value:
            continue
        for votes in range(1, min(size, k) + 1):
            # ways[drawn][ties]: number of ways to draw `drawn` samples from those seen so far
            ways: dict[tuple[int, int], int] = {(votes, 0): math.comb(size, votes)}
            ways = _draw(ways, silent, k, limit=silent, tie_at=None)
            for rival, rival_size in enumerate(sizes):
                if rival != own:
                    ways = _draw(ways, rival_size, k, limit=votes, tie_at=votes)
            for (drawn, ties), count in ways.items():
                if drawn == k:
                    total += value * Fraction(count, ties + 1)
    return total


def _draw(
    ways: Mapping[tuple[int, int], int], size: int, k: int, *, limit: int, tie_at: int | None
) -> dict[tuple[int, int], int]:
    extended: dict[tuple[int, int], int] = {}
    for (drawn, ties), count in ways.items():
        for taken in range(min(size, limit, k - drawn) + 1):
            key = (drawn + taken, ties + (taken == tie_at))
            extended[key] = extended.get(key, 0) + count * math.comb(size, taken)
    return extended


def question_weighted(scores: Mapping[str, float], questions: Mapping[str, int]) -> float:
    """The average over benchmarks, each weighted by its number of questions: the paper's "average"."""
    if not scores:
        raise ValueError("no benchmark to average over")
    if missing := sorted(set(scores) - set(questions)):
        raise ValueError(f"no question count for {', '.join(missing)}")
    if bad := [name for name in scores if questions[name] < 1]:
        raise ValueError(f"{bad[0]} has {questions[bad[0]]} questions: at least one is needed")
    total = sum(questions[name] for name in scores)
    return math.fsum(score * questions[name] for name, score in scores.items()) / total


_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)")
_RATIO = re.compile(r"([+-]?\d+)/([+-]?\d+)")
_LATEX_RATIO = re.compile(r"([+-]?)\\frac\{([+-]?\d+)\}\{([+-]?\d+)\}")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_MEANINGLESS = re.compile(r"\\(left|right|displaystyle|,|;|!|quad|qquad|\s)|\$|\s|~")


def normalise_answer(answer: str) -> str:
    """One spelling for answers that plainly are the same: for counting votes, never for grading.

    Spaces, dollar signs, \\left/\\right and a final full stop go; plain numbers and ratios become lowest
    terms. It looks at the answer alone, not at the reference, so that a vote uses nothing that a voter
    could not know.
    """
    text = _MEANINGLESS.sub("", answer.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")).rstrip(".")
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    if _NUMBER.fullmatch(text):
        return str(Fraction(text))
    if (match := _RATIO.fullmatch(text)) and int(match[2]):
        return str(Fraction(int(match[1]), int(match[2])))
    if (match := _LATEX_RATIO.fullmatch(text)) and int(match[3]):
        value = Fraction(int(match[2]), int(match[3]))
        return str(-value if match[1] == "-" else value)
    return text


def _check_k(n: int, k: int | None) -> int:
    if n == 0:
        raise ValueError("a question has no samples: it can only be left out, by name")
    if k is None:
        return n
    if not 1 <= k <= n:
        raise ValueError(f"k = {k} needs a question with at least that many samples, and one has {n}")
    return k


def _count_right(scores: Sequence[float]) -> int:
    for score in scores:
        if score not in (0, 1):
            raise ValueError(f"pass@k and maj@k count right samples, and {score!r} is neither 0 nor 1")
    return int(sum(scores))
