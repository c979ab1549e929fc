"""The evaluation itself: ask for what is missing, grade as answers come, keep each one at once, add up at
the end."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, Protocol

from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.records import Completion, Failure, Sample, Sampler, SampleRequest
from delta_rlvr.evaluate.results import BenchmarkQuestions, EvaluationResult, build_result
from delta_rlvr.evaluate.sample_file import SampleFile
from delta_rlvr.evaluate.settings import EvaluationSettings, SampleKey, sample_seed
from delta_rlvr.files import dump, now
from delta_rlvr.rewards.verdict import Verdict
from delta_rlvr.tasks.grading import grade_problem
from delta_rlvr.tasks.problem import Problem

Grade = Callable[[Problem, str], Verdict]


class Progress(Protocol):
    """Who is told how far it is."""

    def start(self, total: int, done: int) -> None: ...

    def advance(self, sample: Sample) -> None: ...

    def fail(self, key: SampleKey, reason: str) -> None: ...

    def say(self, text: str) -> None: ...

    def stop(self) -> None: ...


class Silent:
    """Progress for nobody."""

    def start(self, total: int, done: int) -> None: ...

    def advance(self, sample: Sample) -> None: ...

    def fail(self, key: SampleKey, reason: str) -> None: ...

    def say(self, text: str) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Questions:
    """The problems of one benchmark, ready to be asked."""

    name: str
    problems: tuple[Problem, ...]
    description: Mapping[str, Any]
    """Where they are from and how they are asked and graded; stored with the result."""
    grade: Grade | None = None
    """Its own grader, where the problems' `grader` does not say it all (a task's)."""

    def __post_init__(self) -> None:
        if not self.problems:
            raise EvaluationError(f"{self.name} has no problems")
        seen: dict[str, int] = {}
        for place, problem in enumerate(self.problems):
            if not isinstance(problem.id, str) or not problem.id:
                raise EvaluationError(f"{self.name}: problem {place} has no id")
            if problem.id in seen:
                raise EvaluationError(
                    f"{self.name}: problems {seen[problem.id]} and {place} share the id {problem.id!r}; "
                    "ids must be "
                    "unique, because samples are kept under them"
                )
            seen[problem.id] = place

    @property
    def digest(self) -> str:
        """Changes when a prompt, an answer, the order or the number of problems does."""
        summed = hashlib.sha256()
        for problem in self.problems:
            prompt = problem.prompt if isinstance(problem.prompt, str) else list(problem.prompt)
            summed.update(dump([problem.id, prompt, problem.answer, problem.grader]).encode() + b"\n")
        return summed.hexdigest()[:16]

    def for_result(self) -> BenchmarkQuestions:
        return BenchmarkQuestions(
            self.name,
            tuple(problem.id for problem in self.problems),
            {**self.description, "digest": self.digest},
            frozenset(problem.grader for problem in self.problems),
        )


def identity(
    benchmarks: Sequence[Questions],
    settings: EvaluationSettings,
    model: Mapping[str, Any],
    backend: Mapping[str, Any],
) -> dict[str, Any]:
    """What must be the same for stored samples to be used again."""
    return {
        "model": dict(model),
        "settings": settings.as_dict(),
        "backend": dict(backend),
        "benchmarks": {
            benchmark.name: {"digest": benchmark.digest, "load": benchmark.description.get("load")}
            for benchmark in benchmarks
        },
    }


def run_evaluation(
    benchmarks: Sequence[Questions],
    sampler: Sampler,
    settings: EvaluationSettings,
    grade: Grade = grade_problem,
    *,
    model: Mapping[str, Any],
    store: SampleFile | None = None,
    progress: Progress | None = None,
    preset: str | None = None,
    graders_at_once: int | None = None,
) -> EvaluationResult:
    """Sample what `store` does not hold yet, grade it, and build the result of all of it."""
    names = [benchmark.name for benchmark in benchmarks]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise EvaluationError(f"{', '.join(sorted(doubled))} is asked for more than once")
    progress = progress or Silent()
    began, started = time.monotonic(), now()
    problems = {
        (b.name, problem.id): (problem, b.grade or grade) for b in benchmarks for problem in b.problems
    }
    requests = _requests(benchmarks, settings)
    for benchmark in benchmarks:
        _try_graders(benchmark.problems, benchmark.grade or grade)
    samples = dict(store.samples) if store else {}
    wanted = {request.key for request in requests} - samples.keys()
    failures: dict[SampleKey, str] = {}
    kept = len(requests) - len(wanted)
    for note in store.notes if store else ():
        progress.say(note)
    if kept:
        progress.say(f"{kept} of {len(requests)} samples are there already; {len(wanted)} to go")

    def keep(sample: Sample) -> None:
        samples[sample.key] = sample
        if store:
            store.append([sample])
        if sample.score is None:
            progress.fail(sample.key, sample.reason)
        else:
            progress.advance(sample)

    def judge(sample: Sample) -> Sample:
        return _judge(sample, *problems[sample.key.benchmark, sample.key.problem])

    ungraded = [sample for sample in samples.values() if sample.score is None]
    progress.start(len(requests), kept - len(ungraded))
    pool = ThreadPoolExecutor(graders_at_once or os.cpu_count() or 1, thread_name_prefix="grade")
    pending: dict[Future[Sample], Sample] = {pool.submit(judge, sample): sample for sample in ungraded}
    try:
        for outcomes in sampler.sample(requests, wanted) if wanted else ():
            for request, outcome in outcomes:
                if isinstance(outcome, Failure):
                    failures[request.key] = outcome.reason
                    progress.fail(request.key, outcome.reason)
                else:
                    sample = _ungraded(request, outcome)
                    pending[pool.submit(judge, sample)] = sample
            _collect(pending, keep, block=False)
        while pending:
            _collect(pending, keep, block=True)
    except BaseException:
        if store:  # what only waits for its grade is kept as it is, and graded next time
            waiting = [sample for sample in pending.values() if sample.key not in samples]
            store.append(waiting)
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        progress.stop()
    run = {
        "started": started,
        "finished": now(),
        "seconds": round(time.monotonic() - began, 3),
        "sampled": len(wanted) - len(failures),
        "kept": kept,
    }
    return build_result(
        [benchmark.for_result() for benchmark in benchmarks],
        samples,
        failures,
        settings=settings,
        model=model,
        backend=sampler.describe(),
        run=run,
        preset=preset,
    )


def sample_keys(benchmarks: Sequence[Questions], settings: EvaluationSettings) -> Iterable[SampleKey]:
    """Every sample of an evaluation, in the order in which the result lists them."""
    for benchmark in benchmarks:
        for problem in benchmark.problems:
            for number in range(settings.samples):
                yield SampleKey(benchmark.name, problem.id, number)


def _requests(benchmarks: Sequence[Questions], settings: EvaluationSettings) -> list[SampleRequest]:
    prompts = {(b.name, problem.id): problem.prompt for b in benchmarks for problem in b.problems}
    return [
        SampleRequest(key, prompts[key.benchmark, key.problem], sample_seed(settings.seed, key))
        for key in sample_keys(benchmarks, settings)
    ]


def _ungraded(request: SampleRequest, completion: Completion) -> Sample:
    return Sample(request.key, completion, request.seed, None, "not graded yet", None)


def _judge(sample: Sample, problem: Problem, grade: Grade) -> Sample:
    try:
        verdict = grade(problem, sample.completion.text)
    except Exception as error:
        # The completion cost more than its grade: it is kept, named, and graded by the next start.
        return replace(sample, score=None, reason=f"the grader failed: {type(error).__name__}: {error}")
    return replace(sample, score=float(verdict.score), reason=verdict.reason, answer=verdict.answer)


def _collect(pending: dict[Future[Sample], Sample], keep: Callable[[Sample], None], *, block: bool) -> None:
    done, _ = wait(pending, timeout=None if block else 0, return_when=FIRST_COMPLETED)
    for future in done:
        keep(future.result())
        del pending[future]


def _try_graders(problems: Iterable[Problem], grade: Grade) -> None:
    """Grade nothing with every grader once: a missing sandbox or package shows before hours of sampling."""
    tried: set[str] = set()
    for problem in problems:
        if problem.grader not in tried:
            tried.add(problem.grader)
            try:
                grade(problem, "")
            except Exception as error:
                cause = f"{type(error).__name__}: {error}"
                raise EvaluationError(
                    f"the grader {problem.grader!r} of {problem.id} does not work here: {cause}"
                ) from error
