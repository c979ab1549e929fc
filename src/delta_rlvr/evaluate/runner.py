"""The evaluation loop: sample what is missing, grade and store samples as they come, and compute the result."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

from delta_rlvr.bounds import MOST
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.records import Failure, Grade, Outcome, Questions, Sample, Sampler, SampleRequest
from delta_rlvr.evaluate.results import EvaluationResult, build_result
from delta_rlvr.evaluate.sample_file import SampleFile
from delta_rlvr.evaluate.settings import REWARD_FILE, EvaluationSettings, SampleKey
from delta_rlvr.files import now
from delta_rlvr.tasks.problem import Problem
from rlvr_graders.verdict import Verdict


class Progress:
    """Receives progress updates; this one shows nothing."""

    def start(self, total: int, done: int) -> None: ...

    def advance(self, sample: Sample) -> None: ...

    def fail(self, key: SampleKey, reason: str) -> None: ...

    def say(self, text: str) -> None: ...

    def stop(self) -> None: ...


def identity(
    benchmarks: Sequence[Questions], settings: EvaluationSettings, model: Mapping[str, Any], backend: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what must be the same for stored samples to be reused."""
    return {
        "model": dict(model),
        "settings": settings.as_dict(),
        "backend": dict(backend),
        "benchmarks": {
            benchmark.name: {
                "digest": benchmark.digest,
                **{key: benchmark.description.get(key) for key in ("load", REWARD_FILE)},
            }
            for benchmark in benchmarks
        },
    }


def run_evaluation(
    benchmarks: Sequence[Questions],
    sampler: Sampler,
    settings: EvaluationSettings,
    *,
    model: Mapping[str, Any],
    store: SampleFile | None = None,
    progress: Progress | None = None,
    preset: str | None = None,
) -> EvaluationResult:
    """Sample what is not in `store`, grade it, and return the result of all samples."""
    names = [benchmark.name for benchmark in benchmarks]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise EvaluationError(f"{', '.join(sorted(doubled))} is given more than once")
    progress = progress or Progress()
    began, started = time.monotonic(), now()
    asked = settings.samples * sum(len(benchmark.problems) for benchmark in benchmarks)
    if asked > MOST:
        raise EvaluationError(
            f"these are {asked} completions; give fewer samples per question (`k`) or a `limit`, {MOST} at most"
        )
    requests = [
        SampleRequest(key, problem.prompt, benchmark.seed(settings.seed, key))
        for benchmark in benchmarks
        for key, problem in benchmark.samples(settings.samples)
    ]
    for benchmark in benchmarks:
        _try_graders(benchmark)
    grading = _Grading(benchmarks, store, progress)
    wanted = {request.key for request in requests} - grading.samples.keys()
    failures: dict[SampleKey, str] = {}
    kept = len(requests) - len(wanted)
    for note in store.notes if store else ():
        progress.say(note)
    if kept:
        progress.say(f"{kept} of {len(requests)} samples are already stored; {len(wanted)} to go")
    progress.start(len(requests), kept - grading.waiting)
    with grading:
        for outcomes in sampler.sample(requests, wanted) if wanted else ():
            for request, outcome in outcomes:
                if isinstance(outcome, Failure):
                    failures[request.key] = outcome.reason
                    progress.fail(request.key, outcome.reason)
                else:
                    grading.add(Sample(request.key, outcome, request.seed, None, "not graded yet", None))
            grading.collect(block=False)
        while grading.waiting:
            grading.collect(block=True)
    run = {
        "started": started,
        "finished": now(),
        "seconds": round(time.monotonic() - began, 3),
        "sampled": len(wanted) - len(failures),
        "kept": kept,
    }
    return build_result(
        benchmarks,
        grading.samples,
        failures,
        settings=settings,
        model=model,
        backend=sampler.describe(),
        run=run,
        preset=preset,
    )


def score_samples(
    benchmarks: Sequence[Questions],
    samples: Iterable[Sample],
    *,
    settings: EvaluationSettings,
    model: Mapping[str, Any],
    backend: Mapping[str, Any],
    progress: Progress | None = None,
) -> EvaluationResult:
    """Grade every stored completion again, without a model. Requested samples that are not stored are failures of the result."""
    stored = {sample.key: sample for sample in samples}
    known = {(benchmark.name, problem.id) for benchmark in benchmarks for problem in benchmark.problems}
    for key in stored:
        if (key.benchmark, key.problem) not in known:
            raise EvaluationError(
                f"{key}: there is no such problem in these benchmarks: {', '.join(b.name for b in benchmarks)}"
            )
    sampler = _StoredCompletions(stored, backend)
    result = run_evaluation(benchmarks, sampler, settings, model=model, progress=progress)
    # Each sample keeps the seed that it was made with.
    for values in result.document["samples"]:
        values["seed"] = stored[SampleKey(values["benchmark"], values["problem"], values["sample"])].seed
    result.document["run"]["sampled"] = 0
    return result


@dataclass(frozen=True)
class _StoredCompletions:
    """A sampler that returns stored completions."""

    samples: Mapping[SampleKey, Sample]
    backend: Mapping[str, Any]

    def describe(self) -> dict[str, Any]:
        return dict(self.backend)

    def sample(self, requests: Sequence[SampleRequest], wanted: Set[SampleKey]) -> Iterator[Sequence[Outcome]]:
        for request in requests:
            stored = self.samples.get(request.key)
            absent = Failure("not among the stored samples")
            yield [(request, absent if stored is None else stored.completion)]


class _Grading:
    """Grades samples in threads and stores each as soon as it is graded. `samples`: all graded and stored samples."""

    def __init__(self, benchmarks: Sequence[Questions], store: SampleFile | None, progress: Progress) -> None:
        self._problems = {
            (benchmark.name, problem.id): (problem, benchmark.grade)
            for benchmark in benchmarks
            for problem in benchmark.problems
        }
        self._store, self._progress = store, progress
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="grade")
        self._pending: dict[Future[Sample], Sample] = {}
        self.samples = dict(store.samples) if store else {}
        for sample in self.samples.values():
            if sample.score is None:
                self.add(sample)

    @property
    def waiting(self) -> int:
        """The number of samples without a verdict."""
        return len(self._pending)

    def add(self, sample: Sample) -> None:
        problem, grade = self._problems[sample.key.benchmark, sample.key.problem]
        self._pending[self._pool.submit(_judge, sample, problem, grade)] = sample

    def collect(self, *, block: bool) -> None:
        """Store the graded samples; with `block`, wait for at least one verdict."""
        done, _ = wait(self._pending, timeout=None if block else 0, return_when=FIRST_COMPLETED)
        for future in done:
            sample = future.result()
            self.samples[sample.key] = sample
            if self._store:
                self._store.append([sample])
            if sample.score is None:
                self._progress.fail(sample.key, sample.reason)
            else:
                self._progress.advance(sample)
            del self._pending[future]

    def __enter__(self) -> _Grading:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Samples without a verdict are stored ungraded, and graded next time.
        if kind is not None and self._store:
            self._store.append([one for one in self._pending.values() if one.key not in self.samples])
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._progress.stop()


def _judge(sample: Sample, problem: Problem, grade: Grade) -> Sample:
    try:
        verdict = _verdict(problem, sample.completion.text, grade)
    except Exception as error:
        # The completion is kept and reported, and graded again at the next start.
        return replace(sample, score=None, reason=f"the grader failed: {type(error).__name__}: {error}")
    return replace(sample, score=float(verdict.score), reason=verdict.reason, answer=verdict.answer)


def _verdict(problem: Problem, completion: str, grade: Grade) -> Verdict:
    verdict = grade(problem, completion)
    if not isinstance(verdict, Verdict):
        raise TypeError(f"it gave {verdict!r:.60}; give a Verdict, as in Verdict(1.0, 'right')")
    return verdict


def _try_graders(benchmark: Questions) -> None:
    """Try every grader on an empty completion, so that a missing sandbox or package is reported before hours of sampling."""
    first: dict[str, Problem] = {}
    for problem in benchmark.problems:
        first.setdefault(problem.grader, problem)
    for problem in first.values():
        try:
            _verdict(problem, "", benchmark.grade)
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            raise EvaluationError(
                f"the grader {problem.grader!r} of {problem.id} does not work here: {cause}"
            ) from error
