"""The evaluation itself: ask for what is missing, grade as answers come, keep each one at once, add up at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.questions import Grade, Questions
from delta_rlvr.evaluate.records import Failure, Sample, Sampler, SampleRequest
from delta_rlvr.evaluate.results import EvaluationResult, build_result
from delta_rlvr.evaluate.sample_file import SampleFile
from delta_rlvr.evaluate.settings import EvaluationSettings, SampleKey, sample_seed
from delta_rlvr.files import now
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.registry import grade_problem


class Progress:
    """Receives progress updates; this one shows nothing."""

    def start(self, total: int, done: int) -> None: ...

    def advance(self, sample: Sample) -> None: ...

    def fail(self, key: SampleKey, reason: str) -> None: ...

    def say(self, text: str) -> None: ...

    def stop(self) -> None: ...


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
) -> EvaluationResult:
    """Sample what `store` does not hold yet, grade it, and build the result of all of it."""
    names = [benchmark.name for benchmark in benchmarks]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise EvaluationError(f"{', '.join(sorted(doubled))} is asked for more than once")
    progress = progress or Progress()
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
    pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="grade")
    pending: dict[Future[Sample], Sample] = {pool.submit(judge, sample): sample for sample in ungraded}
    try:
        for outcomes in sampler.sample(requests, wanted) if wanted else ():
            for request, outcome in outcomes:
                if isinstance(outcome, Failure):
                    failures[request.key] = outcome.reason
                    progress.fail(request.key, outcome.reason)
                else:
                    sample = Sample(request.key, outcome, request.seed, None, "not graded yet", None)
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
        benchmarks,
        samples,
        failures,
        settings=settings,
        model=model,
        backend=sampler.describe(),
        run=run,
        preset=preset,
    )


def _requests(benchmarks: Sequence[Questions], settings: EvaluationSettings) -> list[SampleRequest]:
    """Every sample of an evaluation, in the order in which the result lists them."""
    requests = []
    for benchmark in benchmarks:
        for problem in benchmark.problems:
            for number in range(settings.samples):
                key = SampleKey(benchmark.name, problem.id, number)
                requests.append(SampleRequest(key, problem.prompt, sample_seed(settings.seed, key)))
    return requests


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
