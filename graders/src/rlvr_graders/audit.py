"""Where graders disagree about the rollouts of a run: what another grader would have paid, and for what kinds of answers."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .answer_files import Answer
from .extract import EXTRACTORS, Extractor
from .math.grade import grade_math_batch
from .others import grade_exact_batch, grade_math_verify_batch
from .verdict import NO_ANSWER, Verdict

OURS, THEIRS, EXACT, RUN = "rlvr-graders", "math-verify", "exact match", "the run"
# Kinds of answers by what stands in the reference or in the answer: the first that fits.
SHAPES = {
    "matrix or vector": r"\\begin\{[a-zA-Z]?matrix|\\begin\{array|\\vec|\\mathbf",
    "set, interval or inequality": r"\\cup|\\cap|\\infty|\\in(?![a-z])|[<>\u2264\u2265]|\\[lg]eq?(?![a-z])|\\\{|\\setminus|\\emptyset",
    "tuple or list": r"(?<![\\{]),(?!\d{3}(?!\d))|;|\\pm|\bor\b|\band\b",
    "percentage": r"%|percent",
    "equation": r"=",
    "words or a unit": r"\\text|\\mathrm|\\circ|\\\$|(?<![\\A-Za-z])[A-Za-z]{3,}",
    "formula with letters": r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])",
    "root, power or constant": r"\\sqrt|\^|\\pi|\u03c0|\u221a",
    "fraction": r"\\[dt]?frac|/|\\binom",
    "decimal number": r"\d\.\d",
    "thousands separator": r"\d,\d{3}|\{,\}|\\,|\\!",
}

MARKUP = re.compile(r"\s|\$|\\(?:left|right|displaystyle|quad|[,;:! ])(?![A-Za-z])")


@dataclass(frozen=True)
class Judged:
    """A response with the verdict of every grader."""

    row: Answer
    verdicts: dict[str, Verdict]

    def score(self, grader: str) -> float | None:
        if grader == RUN:
            return self.row.reward
        return self.verdicts[grader].score


@dataclass(frozen=True)
class Audit:
    """All responses of a file under all graders."""

    judged: list[Judged]
    graders: list[str]
    seconds: dict[str, float]

    def disagreements(self, first: str, second: str) -> dict[tuple[str, str], list[Judged]]:
        """Responses to which two graders give different scores: by (who pays, the answer's kind), the most frequent first."""
        found: dict[tuple[str, str], list[Judged]] = defaultdict(list)
        for each in self.judged:
            one, other = each.score(first), each.score(second)
            if one is not None and other is not None and one != other:
                found[first if one > other else second, kind_of(each, first, second)].append(each)
        return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))

    def changed_groups(self, first: str, second: str) -> int:
        """Prompts whose responses get other advantages: a lone response has none, nor do responses that all get the same reward."""
        groups: dict[str, list[Judged]] = defaultdict(list)
        for each in self.judged:
            groups[each.row.group].append(each)
        return sum(_centred(rows, first) != _centred(rows, second) for rows in groups.values())

    def pairs(self) -> list[tuple[str, str]]:
        """Ours beside each other grader, and math-verify beside exact match."""
        beside = [(OURS, other) for other in self.graders if other != OURS]
        return beside + [(THEIRS, EXACT)] * (THEIRS in self.graders)


def _centred(rows: Sequence[Judged], grader: str) -> list[float]:
    """A prompt's rewards about their mean, which its advantages follow from."""
    scores = [each.score(grader) or 0.0 for each in rows]
    return [score - sum(scores) / len(scores) for score in scores]


def audit(
    rows: Sequence[Answer],
    extract: str | Extractor = "boxed",
    with_math_verify: bool = True,
    report: Callable[[str], None] = lambda line: None,
) -> Audit:
    """Judge every response by ours, math-verify (on the whole response, as its users call it) and exact match."""
    completions, answers = [row.completion for row in rows], [row.answer for row in rows]
    ways: dict[str, Callable[[], list[Verdict]]] = {
        OURS: lambda: grade_math_batch(completions, answers, extract=extract)
    }
    if with_math_verify:
        ways[THEIRS] = lambda: grade_math_verify_batch(completions, answers)
    ways[EXACT] = lambda: grade_exact_batch(completions, answers, extract=extract)
    verdicts, seconds = {}, {}
    for name, grade in ways.items():
        report(f"grading {len(rows)} responses: {name}")
        start = time.perf_counter()
        verdicts[name] = grade()
        seconds[name] = time.perf_counter() - start
    judged = [Judged(row, {name: verdicts[name][place] for name in ways}) for place, row in enumerate(rows)]
    graded = all(row.reward is not None for row in rows) and {row.reward for row in rows} <= {0.0, 1.0}
    return Audit(judged, [*ways, *([RUN] if graded else [])], seconds)


def advice(rows: Sequence[Answer], extract: str) -> tuple[int, str]:
    """How many responses have an answer where it was looked for, and a sentence about it where most have none."""
    found = {name: sum(find(row.completion) is not None for row in rows) for name, find in EXTRACTORS.items()}
    best = max((name for name in found if name not in ("whole", "last_number")), key=found.__getitem__)
    if 2 * found[extract] >= len(rows):
        return found[extract], ""
    told = f"{found[extract]} of {len(rows)} responses have an answer for --extract {extract}"
    return found[extract], told + (f", {found[best]} for --extract {best}" if found[best] > found[extract] else "")


def kind_of(each: Judged, first: str, second: str) -> str:
    """The kind of a disagreement in words: what a grader could not do, else what sort of answer it is about."""
    verdicts = {name: each.verdicts[name] for name in (first, second) if name in each.verdicts}
    for name, verdict in verdicts.items():
        if verdict.failed:
            return f"not judged by {name}: {verdict.reason.split(':')[0]}"
    for name, verdict in verdicts.items():
        if verdict.reason == NO_ANSWER:
            return f"no answer found by {name}"
        if "several answers" in verdict.reason:
            return "several answers where one is asked"
    given = [str(verdict.answer) for name, verdict in each.verdicts.items() if name != THEIRS and verdict.answer]
    if given and _bare(given[0]) == _bare(str(each.row.answer)):
        return "spacing and markup alone"
    text = "\n".join([str(each.row.answer), *given[:1]])
    return next((kind for kind, pattern in SHAPES.items() if re.search(pattern, text)), "whole number")


def _bare(text: str) -> str:
    return MARKUP.sub("", text).rstrip(".").replace("dfrac", "frac").replace("tfrac", "frac")


def summary(result: Audit) -> list[list[str]]:
    """A row for each grader: mean reward, answers found, answers not judged, time."""
    count = len(result.judged)
    table = [["grader", "mean reward", "no answer", "not judged", "seconds"]]
    for name in result.graders:
        scores = [score for each in result.judged if (score := each.score(name)) is not None]
        verdicts = [each.verdicts[name] for each in result.judged if name in each.verdicts]
        reasons = Counter("failed" if v.failed else v.reason for v in verdicts)
        seconds = f"{result.seconds[name]:.2f}" if name in result.seconds else ""
        found = [str(reasons[NO_ANSWER]), str(reasons["failed"])] if verdicts else ["", ""]
        table.append([name, f"{sum(scores) / count:.4f}", *found, seconds])
    return table


def differences(result: Audit) -> list[list[str]]:
    """A row for each pair of graders, who pays, and kind of answer."""
    table = [["graders", "paid by", "kind", "responses", "share"]]
    for first, second in result.pairs():
        for (payer, kind), rows in result.disagreements(first, second).items():
            share = f"{len(rows) / len(result.judged):.2%}"
            table.append([f"{first} / {second}", f"{payer} alone", kind, str(len(rows)), share])
    return table
