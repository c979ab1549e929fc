"""Score completions that are there already: after a grader was mended, or when another program sampled them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.questions import Questions
from delta_rlvr.evaluate.records import Failure, Outcome, Sample, SampleRequest
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.evaluate.runner import Progress, run_evaluation
from delta_rlvr.evaluate.settings import EvaluationSettings, SampleKey


@dataclass(frozen=True)
class _StoredCompletions:
    """A sampler that only remembers."""

    samples: Mapping[SampleKey, Sample]
    backend: Mapping[str, Any]

    def describe(self) -> dict[str, Any]:
        return dict(self.backend)

    def sample(
        self, requests: Sequence[SampleRequest], wanted: Set[SampleKey]
    ) -> Iterator[Sequence[Outcome]]:
        for request in requests:
            stored = self.samples.get(request.key)
            absent = Failure("not among the stored samples")
            yield [(request, absent if stored is None else stored.completion)]


def score_samples(
    benchmarks: Sequence[Questions],
    samples: Iterable[Sample],
    *,
    settings: EvaluationSettings,
    model: Mapping[str, Any],
    backend: Mapping[str, Any],
    progress: Progress | None = None,
) -> EvaluationResult:
    """Grade every stored completion anew, whatever its verdict was. No model is needed.

    A sample that the settings ask for and nobody stored is named among the failures, and the result incomplete.
    """
    stored = {sample.key: sample for sample in samples}
    known = {(benchmark.name, problem.id) for benchmark in benchmarks for problem in benchmark.problems}
    for key in stored:
        if (key.benchmark, key.problem) not in known:
            raise EvaluationError(
                f"{key}: there is no such problem among those asked for "
                f"({', '.join(b.name for b in benchmarks)})"
            )
    sampler = _StoredCompletions(stored, backend)
    result = run_evaluation(benchmarks, sampler, settings, model=model, progress=progress)
    # The seed is what a sample was made with, not what we would use.
    for values in result.document["samples"]:
        values["seed"] = stored[SampleKey(values["benchmark"], values["problem"], values["sample"])].seed
    result.document["run"]["sampled"] = 0
    return result
