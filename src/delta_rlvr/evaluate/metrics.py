"""Metrics of the samples of one question: avg@k, pass@k and maj@n.

A question is a sequence of scores, one per sample, in order of sample number. A score is 0 or 1; only avg@k takes any number. Counts
are exact integers until one division at the end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction


def average_at_k(scores: Sequence[float], k: int | None = None) -> float:
    """Return avg@k of one question: the mean of its first k samples (of all samples without k)."""
    k = _check_k(len(scores), k)
    return math.fsum(scores[:k]) / k


def pass_at_k(scores: Sequence[float], k: int) -> float:
    """Return the unbiased pass@k of one question: the share of the k-subsets of its n samples with a right one.

    1 - C(n-c, k) / C(n, k) with c right samples, as one division of exact integers, correctly rounded for any n.
    """
    n = len(scores)
    k = _check_k(n, k)
    right = _count_right(scores)
    subsets = math.comb(n, k)
    return (subsets - math.comb(n - right, k)) / subsets


def majority_vote(scores: Sequence[float], answers: Sequence[str | None]) -> float:
    """Return maj@n of one question: the score of a majority vote among its n samples.

    Samples vote with their normalised answers. A tie counts with the expectation of a fair draw. A sample without an answer does not
    vote; without votes the score is 0. An answer that was judged both right and wrong, in different completions, counts with its
    mean score.
    """
    if len(answers) != len(scores):
        raise ValueError(
            f"scores has {len(scores)} samples and answers {len(answers)}: give one answer (or None) per sample"
        )
    _check_k(len(scores), None)
    votes: dict[str, list[float]] = {}
    for score, answer in zip(scores, answers, strict=True):
        if answer is not None:
            votes.setdefault(normalise_answer(answer), []).append(score)
    most = max(map(len, votes.values()), default=0)
    winners = [Fraction(_count_right(group), most) for group in votes.values() if len(group) == most]
    return float(sum(winners) / len(winners)) if winners else 0.0


_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)")
_RATIO = re.compile(r"([+-]?\d+)/([+-]?\d+)")
_LATEX_RATIO = re.compile(r"([+-]?)\\frac\{([+-]?\d+)\}\{([+-]?\d+)\}")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_MEANINGLESS = re.compile(r"\\(left|right|displaystyle|,|;|!|quad|qquad|\s)|\$|\s|~")


def normalise_answer(answer: str) -> str:
    """Return one spelling for answers that are plainly the same, for counting votes and never for grading.

    Spaces, dollar signs, \\left/\\right and a final full stop are removed; numbers and ratios are reduced to lowest terms. The
    reference answer is not used, since a vote must not depend on it.
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
        raise ValueError("a question has no samples: leave it out and report it")
    if k is None:
        return n
    if not 1 <= k <= n:
        raise ValueError(f"k = {k} needs at least that many samples of every question, and one has {n}")
    return k


def _count_right(scores: Sequence[float]) -> int:
    for score in scores:
        if score not in (0, 1):
            raise ValueError(f"pass@k and maj@k count right samples, and {score!r} is neither 0 nor 1")
    return int(sum(scores))
