"""The result of an evaluation as one JSON file: model and settings, every sample with its verdict, and the scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from delta_rlvr.bounds import typed
from delta_rlvr.evaluate.bootstrap import Interval, mean_interval
from delta_rlvr.evaluate.errors import EvaluationError, EvaluationFailed
from delta_rlvr.evaluate.metrics import average_at_k, majority_vote, pass_at_k
from delta_rlvr.evaluate.records import Questions, Sample
from delta_rlvr.evaluate.settings import EvaluationSettings, SampleKey
from delta_rlvr.files import replaces, write_json
from delta_rlvr.hints import near_path
from delta_rlvr.runs.layout import EVALUATIONS
from delta_rlvr.tasks.custom_reward import GRADER, is_reward_text
from delta_rlvr.versions import installed_versions
from rlvr_graders.lines import json_value

KIND = "delta-rlvr evaluation"
SCHEMA = 1
VERSIONS = ("delta-rlvr", "torch", "transformers", "mpmath", "numpy", "scipy", "datasets", "httpx")
"""The packages that a score depends on."""


def replaces_result(path: Path) -> bool:
    """Return whether a result would be replaced; refuse to replace anything else."""
    return replaces(path, rb'(?s)\s*\{\s*"kind":\s*"%s".*' % KIND.encode(), "a result of evaluate")


class EvaluationResult:
    """A result, just computed or read from its file."""

    @typed
    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    @classmethod
    @typed
    def load(cls, path: str | Path) -> EvaluationResult:
        path = Path(path)
        if path.is_dir():
            path = path / "result.json"
        if not path.is_file():
            own = path.parent / EVALUATIONS / "heldout_after.json"
            hint = f"; the held-out score of this run is {own}" if own.is_file() else near_path(path)
            raise EvaluationError(f"there is no result {path}{hint}")
        try:
            document = json_value(path.read_bytes(), str(path))
        except ValueError as error:
            raise EvaluationError(str(error)) from None
        if not isinstance(document, dict) or document.get("kind") != KIND:
            raise EvaluationError(f"{path} is not a result of `delta-rlvr evaluate`")
        if document.get("schema") != SCHEMA:
            raise EvaluationError(
                f"{path} has schema {document.get('schema')!r}, this version reads {SCHEMA}: update delta-rlvr"
            )
        result = cls(document)
        try:  # what others read of it
            _ = result.complete, result.accuracy, result.own_reward, document["settings"]["samples"]
            _ = [(result.scores(name), one["questions_asked"]) for name, one in document["benchmarks"].items()]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"{type(error).__name__}: {error}"
            raise EvaluationError(f"{path} is damaged ({what}): restore it, or evaluate again") from None
        return result

    def write(self, path: str | Path) -> None:
        """Write the file atomically. Only a result is replaced."""
        replaces_result(Path(path))
        write_json(Path(path), self.document)

    @property
    def complete(self) -> bool:
        """Whether every requested sample is present and graded."""
        return bool(self.document["complete"])

    @property
    def accuracy(self) -> float:
        """The average over all questions, as a share. Benchmarks are so weighted by their number of questions."""
        return float(self.document["average"]["score"])

    def summary(self) -> dict[str, Any]:
        """Return what `run.json` keeps of a held-out evaluation: the accuracy, its bootstrap interval over questions, the numbers of
        problems and samples, whether it is the mean of a custom reward, and the note about the interval."""
        average = self.document["average"]
        note = average.get("interval_note")
        return {
            "accuracy": self.accuracy,
            "low": float(average["low"]),
            "high": float(average["high"]),
            "problems": average["questions"],
            "samples": self.document["settings"]["samples"],
            **({"own_reward": True} if self.own_reward else {}),
            **({"interval_note": note} if note else {}),
        }

    @property
    def own_reward(self) -> bool:
        """Whether a custom reward judged. Scores are then mean rewards, not shares of right answers."""
        return any(numbers.get("own_reward") for numbers in self.document.get("benchmarks", {}).values())

    def benchmarks(self) -> list[str]:
        return list(self.document["benchmarks"])

    @typed
    def scores(self, benchmark: str) -> dict[str, list[float]]:
        """Return the scores by problem id, in order of sample number, without ungraded samples."""
        if benchmark not in self.document["benchmarks"]:
            raise EvaluationError(f"the result has no benchmark {benchmark!r}: it has {', '.join(self.benchmarks())}")
        by_problem: dict[str, list[tuple[int, float]]] = {}
        for sample in self.document["samples"]:
            if sample["benchmark"] == benchmark and sample["score"] is not None:
                by_problem.setdefault(sample["problem"], []).append((sample["sample"], float(sample["score"])))
        return {problem: [score for _, score in sorted(scores)] for problem, scores in by_problem.items()}

    @typed
    def passes(self, benchmarks: Sequence[str] | None = None) -> list[float]:
        """Return the evaluation as repeated evaluations: the average over all questions for each sample number."""
        chosen = self.benchmarks() if benchmarks is None else list(benchmarks)
        rows = [scores for name in chosen for scores in self.scores(name).values()]
        asked = sum(self.document["benchmarks"][name]["questions_asked"] for name in chosen)
        count = self.document["settings"]["samples"]
        if len(rows) != asked or any(len(scores) != count for scores in rows):
            raise EvaluationError(
                "samples are missing, so the sample numbers are not complete repeated evaluations: run the same command again to "
                "complete the result"
            )
        return [average_at_k([scores[number] for scores in rows]) for number in range(count)]


def build_result(
    benchmarks: Sequence[Questions],
    samples: Mapping[SampleKey, Sample],
    failures: Mapping[SampleKey, str],
    *,
    settings: EvaluationSettings,
    model: Mapping[str, Any],
    backend: Mapping[str, Any],
    run: Mapping[str, Any],
    preset: str | None = None,
) -> EvaluationResult:
    """Return the result of these samples and failures. `run`: what may differ between equal evaluations (times, paths)."""
    keys = [key for benchmark in benchmarks for key, _ in benchmark.samples(settings.samples)]
    unscored = dict(failures)
    for key in keys:
        if key not in samples:
            unscored.setdefault(key, "not sampled yet")
        elif samples[key].score is None:
            unscored.setdefault(key, samples[key].reason)
    ordered = [samples[key] for key in keys if key in samples]
    numbers: dict[str, dict[str, Any]] = {}
    strata: list[list[float]] = []
    for benchmark in benchmarks:
        questions: dict[str, list[Sample]] = {}
        for sample in ordered:
            if sample.key.benchmark == benchmark.name and sample.score is not None:
                questions.setdefault(sample.key.problem, []).append(sample)
        numbers[benchmark.name], means = _benchmark_numbers(benchmark, questions, settings)
        strata += [means] if means else []
    if not strata:
        reason = next(iter(unscored.values()), "nothing was asked")
        raise EvaluationFailed(f"no sample could be scored; the first reason is: {reason}")
    average = mean_interval(strata, seed=settings.seed)
    scored = [name for name, values in numbers.items() if values["questions"]]
    document = {
        "kind": KIND,
        "schema": SCHEMA,
        "complete": not unscored,
        "model": dict(model),
        "settings": settings.as_dict(),
        "preset": preset,
        "backend": dict(backend),
        "versions": installed_versions(*VERSIONS),
        "average": {
            "score": average.mean,
            **_interval(average),
            "questions": sum(len(means) for means in strata),
            "benchmarks": len(scored),
            "unweighted": sum(numbers[name]["score"] for name in scored) / len(scored),
            "method": "mean over questions (benchmarks weighted by their number of questions); "
            "BCa bootstrap over questions within each benchmark",
        },
        "benchmarks": numbers,
        "failures": [{**key._asdict(), "reason": unscored[key]} for key in keys if key in unscored],
        "samples": [sample.as_dict() for sample in ordered],
        "run": dict(run),
    }
    return EvaluationResult(document)


def _benchmark_numbers(
    benchmark: Questions, questions: Mapping[str, Sequence[Sample]], settings: EvaluationSettings
) -> tuple[dict[str, Any], list[float]]:
    scores = {problem: [float(s.score or 0.0) for s in samples] for problem, samples in questions.items()}
    means = [average_at_k(values) for values in scores.values()]
    graded = [sample for samples in questions.values() for sample in samples]
    described = {
        **benchmark.description,
        "digest": benchmark.digest,
        "questions": len(means),
        "questions_asked": len(benchmark.problems),
        "unanswered": [problem.id for problem in benchmark.problems if problem.id not in questions],
    }
    if not means:
        return described | {"score": None, "low": None, "high": None, "metrics": {}}, means
    interval = mean_interval([means], seed=settings.seed)
    # Metrics at k need k samples of every question. If samples are missing, k is the most that all have.
    shared = min(len(values) for values in scores.values())
    metrics: dict[str, float] = {}
    if shared == settings.samples:
        metrics[f"avg@{shared}"] = interval.mean
    right_or_wrong = all(score in (0, 1) for values in scores.values() for score in values)
    powers = {1 << exponent for exponent in range(shared.bit_length())}
    for k in sorted({*powers, shared}) if right_or_wrong else ():
        metrics[f"pass@{k}"] = sum(pass_at_k(values, k) for values in scores.values()) / len(scores)
    own_reward = any(problem.grader == GRADER for problem in benchmark.problems)
    # Programs, and texts that a function judges, have no answer that two samples can share.
    voteless = own_reward or any(problem.grader == "code" for problem in benchmark.problems)
    if not voteless:
        metrics[f"maj@{shared}"] = sum(
            majority_vote(scores[problem][:shared], [sample.answer for sample in samples[:shared]])
            for problem, samples in questions.items()
        ) / len(scores)
    # The number of a custom reward is not a reason, and it may differ for every sample.
    reasons = [one.reason for one in graded if not (own_reward and is_reward_text(one.reason))]
    lengths = [sample.completion.tokens for sample in graded if sample.completion.tokens is not None]
    return described | {
        "score": interval.mean,
        **_interval(interval),
        "metrics": metrics,
        "votes_without_answer": "abstain",
        "samples": len(graded),
        "truncated": sum(sample.completion.finish == "length" for sample in graded) / len(graded),
        "without_answer": None if voteless else sum(sample.answer is None for sample in graded) / len(graded),
        "mean_tokens": sum(lengths) / len(lengths) if lengths else None,
        "reasons": dict(Counter(reasons).most_common(20)),
        **({"own_reward": True} if own_reward else {}),
    }, means


def _interval(interval: Interval) -> dict[str, Any]:
    named = {name: getattr(interval, name) for name in ("low", "high", "level", "resamples")}
    return named | {"interval_note": interval.note}
