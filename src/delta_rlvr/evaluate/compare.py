"""Comparison of results, paired by question and over repeated evaluations, with sentences about what the data can show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from delta_rlvr.bounds import typed
from delta_rlvr.evaluate.bootstrap import NO_INTERVAL, Interval, interval_text, mean_interval
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.metrics import average_at_k
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.evaluate.settings import other_reward_file
from delta_rlvr.evaluate.significance import (
    SIGNIFICANCE,
    EffectSize,
    TestResult,
    detectable_difference,
    effect_size,
    holm,
    holm_of_known,
    mann_whitney,
    sign_flip_test,
)
from delta_rlvr.score_units import ScoreUnit, score_unit
from delta_rlvr.words import listed


@dataclass(frozen=True)
class Comparison:
    """The difference between a candidate and a baseline on the same questions."""

    baseline: str
    candidate: str
    baseline_score: float
    candidate_score: float
    difference: Interval
    """Mean difference by question (candidate - baseline), with its paired bootstrap interval."""
    paired: TestResult
    """Sign-flip test by question."""
    paired_adjusted: float
    """The p-value of `paired` after Holm's correction over all candidates of `compare_many`."""
    repeated: TestResult | None
    """Mann-Whitney U over repeated evaluations, one-sided (candidate greater): the paper's test."""
    repeated_adjusted: float | None
    effect: EffectSize | None
    """The effect size of the repeated evaluations."""
    questions: int
    repeats: tuple[int, int]
    """The number of repeated evaluations of baseline and candidate."""
    detectable: float | None
    """The smallest true difference that this many questions would show in four of five comparisons."""
    own_reward: bool = False
    """Whether the scores are mean custom rewards."""
    notes: tuple[str, ...] = ()
    """Sentences about what the data can and cannot show."""

    @property
    def unit(self) -> ScoreUnit:
        return score_unit(self.own_reward)


@typed
def compare_results(
    baseline: EvaluationResult | Sequence[EvaluationResult],
    candidate: EvaluationResult | Sequence[EvaluationResult],
    *,
    names: tuple[str, str] = ("baseline", "candidate"),
    benchmarks: Sequence[str] | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare two models on the same questions, with one or several results each.

    Each sample number of a result is one repeated evaluation: a pass over all questions.
    """
    reference = _as_list(baseline)[0]
    sides = [[named_as(reference, result) for result in _as_list(results)] for results in (baseline, candidate)]
    chosen = list(benchmarks) if benchmarks is not None else reference.benchmarks()
    for side, name in zip(sides, names, strict=True):
        for result in side:
            _same_protocol(reference, result, name, chosen)
    means = [question_means(side, chosen) for side in sides]
    if means[0].keys() != means[1].keys():
        lacking = sorted(means[0].keys() ^ means[1].keys())[0]
        raise EvaluationError(
            f"the results do not have the same questions: only one has {' '.join(lacking)}. "
            "Complete the evaluations (run them again), or compare the benchmarks that both have"
        )
    keys = list(means[0])
    first, second = ([side[key] for key in keys] for side in means)
    gaps = [high - low for low, high in zip(first, second, strict=True)]
    by_benchmark: dict[str, list[float]] = {}
    for (benchmark, _), gap in zip(keys, gaps, strict=True):
        by_benchmark.setdefault(benchmark, []).append(gap)
    difference = mean_interval(list(by_benchmark.values()), seed=seed)
    paired = sign_flip_test(second, first, seed=seed)
    repeats = [repeated_scores(side, chosen) for side in sides]
    repeated = effect = None
    if all(len(values) >= 2 for values in repeats):
        repeated = mann_whitney(repeats[1], repeats[0], alternative="greater")
        effect = effect_size(repeats[1], repeats[0])
    comparison = Comparison(
        *names,
        sum(first) / len(first),
        sum(second) / len(second),
        difference,
        paired,
        paired.p,
        repeated,
        None if repeated is None else repeated.p,
        effect,
        len(keys),
        (len(repeats[0]), len(repeats[1])),
        detectable_difference(gaps),
        reference.own_reward,
    )
    return replace(comparison, notes=_sentences(comparison))


def unlike(before: EvaluationResult, after: EvaluationResult) -> str:
    """Return in what two held-out scores of a run were made differently, in words ("problems (8; 6) and max_tokens (64; 20)"); "" if
    in nothing. A run that was resumed with other settings has such scores."""
    pair = [_made_with(result) for result in (before, after)]
    differing = {name: values for name in pair[0] if (values := [one.get(name) for one in pair])[0] != values[1]}
    if None in differing.get("reward", ()):  # an older run did not store it
        del differing["reward"]
    digests = differing.pop("digests", None)  # of the grader too
    if "problems" in differing or (digests and "reward" not in differing):
        differing["problems"] = [result.summary()["problems"] for result in (before, after)]
    return listed([_with_values(name, values) for name, values in differing.items()])


def _made_with(result: EvaluationResult) -> dict[str, Any]:
    parts = result.document["benchmarks"]
    return {
        "reward": next((one.get("reward") for one in parts.values()), None),
        "digests": [one.get("digest") for one in parts.values()],
        "problems": {name: set(result.scores(name)) for name in parts},
        **{name: value for name, value in result.document["settings"].items() if name != "seed"},
    }


def _with_values(name: str, values: Sequence[Any]) -> str:
    """Return a difference with its values, where these tell it. A reward is stored with the digest of its file."""
    first, second = (value[0] if name == "reward" else value for value in values)
    return name if first == second else f"{name} ({first}; {second})"


def run_scores_unlike(evaluations: Mapping[str, Any]) -> str:
    """Return `unlike` of the scores in a run's `evaluations/`; "" where it has not both."""
    try:
        before, after = (EvaluationResult(evaluations[f"heldout_{when}"]) for when in ("before", "after"))
        return unlike(before, after)
    except (AttributeError, KeyError, TypeError, ValueError):  # a missing file, or another's
        return ""


def paired_change(before: EvaluationResult, after: EvaluationResult) -> str:
    """Return the change of a held-out score with its interval and test: "+3.8 points (-10.0 to +20.0, paired by problem; p = 0.74)"."""
    comparison = compare_results(before, after)
    unit, gain, p = comparison.unit, comparison.difference, comparison.paired.p
    spread = interval_text(gain.low, gain.high, unit.signed)
    # Either may call a difference near the limit chance, and the other not.
    apart = (gain.low > 0 or gain.high < 0) != (p < SIGNIFICANCE) and gain.low < gain.high
    why = ". Interval by bootstrap, p by sign flips: near the limit they may disagree" if apart else ""
    return f"{unit.signed(gain.mean)} {unit.name} ({spread}, paired by problem; p = {p:.2g}{why})"


@typed
def compare_many(
    baseline: EvaluationResult | Sequence[EvaluationResult],
    candidates: Mapping[str, EvaluationResult | Sequence[EvaluationResult]],
    *,
    baseline_name: str = "baseline",
    **options: Any,
) -> list[Comparison]:
    """Compare each candidate with one baseline. P-values are adjusted for the number of candidates (Holm)."""
    comparisons = [
        compare_results(baseline, results, names=(baseline_name, name), **options)
        for name, results in candidates.items()
    ]
    paired = holm([comparison.paired.p for comparison in comparisons])
    repeated = holm_of_known([one.repeated.p if one.repeated else None for one in comparisons])
    adjusted = [
        replace(comparison, paired_adjusted=p, repeated_adjusted=other)
        for comparison, p, other in zip(comparisons, paired, repeated, strict=True)
    ]
    return [replace(comparison, notes=_sentences(comparison)) for comparison in adjusted]


def _as_list(results: EvaluationResult | Sequence[EvaluationResult]) -> list[EvaluationResult]:
    listed = [results] if isinstance(results, EvaluationResult) else list(results)
    if not listed:
        raise EvaluationError("one side of the comparison has no result")
    return listed


def named_as(reference: EvaluationResult, result: EvaluationResult) -> EvaluationResult:
    """Return the result with benchmarks renamed as in `reference`, by their digests: runs and `evaluate` name held-out problems
    differently."""
    document = result.document
    names = {facts.get("digest"): name for name, facts in reference.document["benchmarks"].items()}
    named = {
        name: name if name in reference.benchmarks() else names.get(facts.get("digest"), name)
        for name, facts in document["benchmarks"].items()
    }
    # If two benchmarks of the result have the same questions, the match is ambiguous.
    ambiguous = len(set(named.values())) < len(named)
    if ambiguous or all(name == new for name, new in named.items()):
        return result
    return EvaluationResult(
        {
            **document,
            "benchmarks": {named[name]: facts for name, facts in document["benchmarks"].items()},
            "samples": [{**sample, "benchmark": named[sample["benchmark"]]} for sample in document["samples"]],
        }
    )


def _same_protocol(reference: EvaluationResult, other: EvaluationResult, name: str, chosen: Sequence[str]) -> None:
    """Refuse scores that were not made alike. Questions are checked first, since settings may follow from them. The seed may differ,
    and must for repeated evaluations."""
    for benchmark in chosen:
        for result in (reference, other):
            if benchmark not in result.document["benchmarks"]:
                asked = " and ".join(", ".join(one.benchmarks()) for one in (reference, other))
                raise EvaluationError(
                    f"{name}: a result has no benchmark {benchmark!r}: the two have different benchmarks ({asked})"
                )
        digests = [result.document["benchmarks"][benchmark].get("digest") for result in (reference, other)]
        if digests[0] != digests[1]:
            raise EvaluationError(
                f"{name}: the questions, prompts or answers of {benchmark} differ between the results"
            )
        if other_reward_file(*(result.document["benchmarks"][benchmark] for result in (reference, other))):
            raise EvaluationError(
                f"{name}: the rewards of {benchmark} differ between the results: grade the stored completions again with "
                "`samples`"
            )
    for setting, value in reference.document["settings"].items():
        if setting != "seed" and other.document["settings"].get(setting) != value:
            raise EvaluationError(
                f"{name} was evaluated with {setting} = {other.document['settings'].get(setting)!r} and the other "
                f"with {value!r}: these scores cannot be compared"
            )


def question_means(results: Sequence[EvaluationResult], chosen: Sequence[str]) -> dict[tuple[str, str], float]:
    pooled: dict[tuple[str, str], list[float]] = {}
    for result in results:
        for benchmark in chosen:
            for problem, scores in result.scores(benchmark).items():
                pooled.setdefault((benchmark, problem), []).extend(scores)
    return {key: average_at_k(scores) for key, scores in pooled.items()}


def repeated_scores(results: Sequence[EvaluationResult], chosen: Sequence[str]) -> list[float]:
    """Return the score of every pass over the questions: each sample number of each result. Empty if samples are missing."""
    if not all(result.complete for result in results):
        return []
    seeds = [result.document["settings"]["seed"] for result in results]
    if len(set(seeds)) < len(seeds) and None not in seeds:
        raise EvaluationError(f"repeated evaluations need different seeds, but these have {seeds}")
    return [score for result in results for score in result.passes(chosen)]


def _sentences(comparison: Comparison) -> tuple[str, ...]:
    sentences = []
    interval, gap, unit = comparison.difference, comparison.difference.mean, comparison.unit
    count = comparison.questions
    direction = "above" if gap > 0 else "below" if gap < 0 else "level with"
    if comparison.paired_adjusted < SIGNIFICANCE:
        sentences.append(
            f"{comparison.candidate} is {unit.plain(abs(gap))} {unit.name} {direction} {comparison.baseline}, and by question the "
            f"difference is more than chance (p = {comparison.paired_adjusted:.2g}): expect its sign to hold on "
            "other questions of this kind."
        )
    else:
        reach = interval_text(interval.low, interval.high, unit.signed)
        other = f"the difference on other questions may lie anywhere from {reach} {unit.name}"
        if reach == NO_INTERVAL:
            other = f"every question has the same difference ({unit.signed(gap)} {unit.name}), so there is {reach}"
        sentences.append(
            f"By question, the {count} questions do not tell {comparison.candidate} and {comparison.baseline} apart "
            f"(p = {comparison.paired_adjusted:.2g}): {other}. That is no proof of equality."
        )
    if comparison.detectable is not None and comparison.detectable > 0:
        sentences.append(
            f"With {count} questions as varied as these, only a true difference of about "
            f"{unit.plain(comparison.detectable)} {unit.name} or more would be found in four of five comparisons."
        )
    if comparison.repeated is not None and comparison.repeated_adjusted is not None:
        first, second = comparison.repeats
        verdict = "is" if comparison.repeated_adjusted < SIGNIFICANCE else "is not"
        sentences.append(
            f"Over repeated evaluations ({second} against {first}) {comparison.candidate} {verdict} above "
            f"{comparison.baseline} by more than the noise of sampling (Mann-Whitney U, one-sided, "
            f"p = {comparison.repeated_adjusted:.2g}): this holds for these questions and these two models only."
        )
    sentences.append("Neither test includes the noise of training: another training seed may change either score.")
    return tuple(sentences)
