"""The evaluation as a whole: numbers, interruption, resume, failures, re-scoring."""

import json
import random
import time
from dataclasses import replace

import pytest

from command_line import FORKS
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.records import Completion, Failure, Questions
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.evaluate.runner import score_samples
from delta_rlvr.evaluate.sample_file import read_samples
from delta_rlvr.evaluate.settings import EvaluationSettings, SampleKey, sample_seed
from delta_rlvr.tasks.problem import Problem
from evaluation_support import MODEL, digit_grade, evaluate_tiny, evaluated, sums


class Scripted:
    """A sampler that answers from the seed, fails where told to, and counts what it was asked."""

    def __init__(self, fail=(), stop_after=None, answer=lambda request: f"it is {request.seed % 10}"):
        self.fail, self.stop_after, self.answer = set(fail), stop_after, answer
        self.asked = []

    def describe(self):
        return {"kind": "scripted"}

    def sample(self, requests, wanted):
        for request in requests:
            if request.key not in wanted:
                continue
            if self.stop_after is not None and len(self.asked) >= self.stop_after:
                raise KeyboardInterrupt
            self.asked.append(request.key)
            if request.key in self.fail:
                yield [(request, Failure("no answer came in time (3 tries)"))]
            else:
                yield [(request, Completion(self.answer(request), "stop", 3))]


def _same(first, second):
    """Equal in everything but the section that tells of the run itself."""
    drop = lambda result: {name: value for name, value in result.document.items() if name != "run"}  # noqa: E731
    assert json.dumps(drop(first)) == json.dumps(drop(second))


SETTINGS = EvaluationSettings(samples=3, max_tokens=10, seed=5)


def test_numbers_by_hand():
    # Two benchmarks, 2 samples each. One: q0 (1, 0), q1 (1, 1); two: q0 (0, 0).
    script = {("one", "q0"): "28", ("one", "q1"): "44", ("two", "q0"): "99"}
    second = {("one", "q0"): "13"}
    answer = lambda r: (second if r.key.sample else script).get(  # noqa: E731
        (r.key.benchmark, r.key.problem), script[r.key.benchmark, r.key.problem]
    )
    result = evaluated(
        Scripted(answer=answer), EvaluationSettings(samples=2), benchmarks=[sums(2, "one"), sums(1, "two")]
    )
    one, two = result.document["benchmarks"]["one"], result.document["benchmarks"]["two"]
    assert one["metrics"] == {"avg@2": 0.75, "pass@1": 0.75, "pass@2": 1.0, "maj@2": 0.75}
    assert two["metrics"] == {"avg@2": 0.0, "pass@1": 0.0, "pass@2": 0.0, "maj@2": 0.0}
    # Weighted by questions (.5 + 1 + 0) / 3, unweighted (.75 + 0) / 2.
    assert result.accuracy == pytest.approx(0.5)
    assert result.document["average"]["unweighted"] == pytest.approx(0.375)
    assert result.complete
    assert result.passes() == pytest.approx([2 / 3, 1 / 3])
    assert result.summary()["problems"] == 3
    assert one["note"] == "a benchmark's own note", "the interval's note stands beside it"
    assert "rough" in one["interval_note"]
    assert one["reasons"] == {"correct": 3, "wrong answer": 1}


def test_seeds_are_apart_and_stable():
    # A changed seed rule would silently change every stored evaluation: the value is pinned.
    assert (
        sample_seed(0, SampleKey("aime25", "1", 0))
        == int.from_bytes(__import__("hashlib").sha256(b"0\x00aime25\x001\x000").digest()[:4], "big") // 2
    )
    keys = [SampleKey(b, str(p), n) for b in ("aime24", "aime25") for p in range(30) for n in range(16)]
    assert len({sample_seed(seed, key) for seed in (0, 1) for key in keys}) == 2 * len(keys)


@pytest.mark.parametrize("stop_after", [0, 1, 13, 26])
def test_interrupted_and_continued_equals_uninterrupted(tmp_path, stop_after):
    path = tmp_path / "samples.jsonl"
    whole = evaluated(Scripted(), SETTINGS)
    first = Scripted(stop_after=stop_after)
    with pytest.raises(KeyboardInterrupt):
        evaluated(first, SETTINGS, path)
    second = Scripted()
    result = evaluated(second, SETTINGS, path)
    assert len(first.asked) == stop_after
    assert sorted(first.asked + second.asked) == sorted(whole_key(s) for s in whole.document["samples"])
    _same(result, whole)
    assert result.document["run"]["sampled"] == 27 - stop_after
    third = Scripted()
    _same(evaluated(third, SETTINGS, path), whole)
    assert third.asked == []


def whole_key(sample):
    return SampleKey(sample["benchmark"], sample["problem"], sample["sample"])


def test_kill_minus_nine_half_way(tmp_path):
    """A real process, killed without warning while it samples; the second start does only what is missing."""
    path = tmp_path / "samples.jsonl"
    process = FORKS.Process(target=evaluate_tiny, args=(path, 0.15))
    process.start()
    deadline = time.monotonic() + 240
    while not path.exists() or path.read_bytes().count(b"\n") < 14:  # the header and two batches
        assert process.is_alive(), "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.join()
    # A kill in the middle of a write leaves part of a line: cut the file inside its last sample as well.
    path.write_bytes(path.read_bytes()[: -random.Random(0).randint(1, 60)])
    left = path.read_bytes().count(b"\n") - 1
    assert 0 < left < 52
    resumed, whole = evaluate_tiny(path), evaluate_tiny(None)
    _same(resumed, whole)
    assert resumed.document["run"]["kept"] == left
    assert resumed.document["run"]["sampled"] == 52 - left
    assert len({sample["completion"] for sample in whole.document["samples"]}) > 20


def test_failures_are_named_and_never_scored(tmp_path):
    path = tmp_path / "samples.jsonl"
    failed = [SampleKey("sums", "q1", n) for n in range(3)] + [SampleKey("more", "q0", 2)]
    result = evaluated(Scripted(fail=failed), SETTINGS, path)
    assert not result.complete
    assert [whole_key(failure) for failure in result.document["failures"]] == failed
    assert "3 tries" in result.document["failures"][0]["reason"]
    numbers = result.document["benchmarks"]["sums"]
    assert (numbers["questions"], numbers["questions_asked"], numbers["unanswered"]) == (5, 6, ["q1"])
    scores = result.scores("sums")
    assert numbers["score"] == pytest.approx(sum(sum(s) / 3 for s in scores.values()) / 5)
    assert "avg@3" not in result.document["benchmarks"]["more"]["metrics"]
    assert "pass@2" in result.document["benchmarks"]["more"]["metrics"]
    with pytest.raises(EvaluationError, match="samples are missing"):
        result.passes()
    again = Scripted()
    _same(evaluated(again, SETTINGS, path), evaluated(Scripted(), SETTINGS))
    assert again.asked == failed


def test_all_failed_says_why():
    keys = [SampleKey("sums", f"q{n}", k) for n in range(6) for k in range(3)]
    with pytest.raises(EvaluationError, match=r"no sample could be scored.*in time"):
        evaluated(Scripted(fail=keys), SETTINGS, benchmarks=[sums(6)])


def test_a_broken_grader_loses_no_completion(tmp_path):
    path = tmp_path / "samples.jsonl"

    def broken(problem, completion):
        if problem.id == "q2" and completion:
            raise OSError("sandbox vanished")
        return digit_grade(problem, completion)

    result = evaluated(Scripted(), SETTINGS, path, grade=broken)
    assert not result.complete
    assert {failure["problem"] for failure in result.document["failures"]} == {"q2"}
    assert "sandbox vanished" in result.document["failures"][0]["reason"]
    again = Scripted()
    _same(evaluated(again, SETTINGS, path), evaluated(Scripted(), SETTINGS))
    assert again.asked == [], "graded anew, not sampled anew"


def test_a_grader_that_cannot_work_is_found_before_sampling():
    def absent(problem, completion):
        raise RuntimeError("bubblewrap is not installed")

    sampler = Scripted()
    with pytest.raises(EvaluationError, match=r"'math' of q0 does not work here.*bubblewrap"):
        evaluated(sampler, SETTINGS, grade=absent)
    assert sampler.asked == []


def test_completions_that_wait_for_their_grade_survive_an_interrupt(tmp_path):
    path = tmp_path / "samples.jsonl"

    def slow(problem, completion):
        if completion:
            time.sleep(0.2)
        return digit_grade(problem, completion)

    with pytest.raises(KeyboardInterrupt):
        evaluated(Scripted(stop_after=10), SETTINGS, path, grade=slow)
    assert len(read_samples(path)[1]) == 10
    again = Scripted()
    _same(evaluated(again, SETTINGS, path), evaluated(Scripted(), SETTINGS))
    assert len(again.asked) == 17


def test_stored_samples_are_scored_without_a_model(tmp_path):
    path = tmp_path / "samples.jsonl"
    benchmarks = [sums(6), sums(3, "more")]
    whole = evaluated(Scripted(), SETTINGS, path)
    header, samples = read_samples(path)
    result = score_samples(benchmarks, samples, settings=SETTINGS, model=header["model"], backend=header["backend"])
    _same(result, whole)
    result.write(tmp_path / "result.json")
    assert [s.completion for s in read_samples(tmp_path / "result.json")[1]] == [
        s.completion for s in sorted(samples, key=lambda s: (s.key.benchmark != "sums", s.key.problem, s.key.sample))
    ]

    def stern(problem, completion):
        return digit_grade(problem, "")

    sternly = [replace(benchmark, grade=stern) for benchmark in benchmarks]
    harsh = score_samples(sternly, samples, settings=SETTINGS, model=MODEL, backend={})
    assert harsh.accuracy == 0.0
    lacking = [sample for sample in samples if sample.key != SampleKey("sums", "q0", 0)]
    part = score_samples(benchmarks, lacking, settings=SETTINGS, model=MODEL, backend={})
    assert [whole_key(failure) for failure in part.document["failures"]] == [SampleKey("sums", "q0", 0)]
    assert not part.complete
    with pytest.raises(EvaluationError, match=r"more q\d sample \d: there is no such problem"):
        score_samples(benchmarks[:1], samples, settings=SETTINGS, model=MODEL, backend={})


def test_ids_must_be_there_and_unique():
    twice = (Problem("a", "1", "1", "math"), Problem("b", "1", "1", "math"), Problem("a", "1", "1", "math"))
    with pytest.raises(EvaluationError, match="problems 0 and 2 share the id 'a'"):
        Questions("set", twice, {})
    with pytest.raises(EvaluationError, match="problem 1 has no id"):
        Questions("set", (twice[0], Problem("", "1", "1", "math")), {})
    with pytest.raises(EvaluationError, match="no problems"):
        Questions("set", (), {})
    with pytest.raises(EvaluationError, match="sums is given more than once"):
        evaluated(Scripted(), SETTINGS, benchmarks=[sums(2), sums(2)])


def test_the_digest_sees_every_change():
    base = sums(3)
    changed = Problem("q2", base.problems[2].prompt + " ", base.problems[2].answer, "math")
    digests = {
        base.digest,
        Questions("sums", base.problems[:2], {}).digest,
        Questions("sums", base.problems[::-1], {}).digest,
        Questions("sums", (*base.problems[:2], changed), {}).digest,
    }
    assert len(digests) == 4
    assert sums(3).digest == base.digest


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"samples": 0}, "samples = 0"),
        ({"max_tokens": 0}, "max_tokens = 0"),
        ({"temperature": -1.0}, "temperature = -1.0"),
        ({"temperature": float("nan")}, "temperature = nan"),
        ({"top_p": 0.0}, r"top_p = 0\.0"),
        ({"seed": -1}, "seed = -1"),
        ({"stop": ("",)}, "stop"),
        ({"temperature": 0.0, "samples": 4}, "same completion every time"),
    ],
)
def test_settings_are_checked(values, message):
    with pytest.raises(EvaluationError, match=message):
        EvaluationSettings(**values)


def test_results_of_others_are_refused(tmp_path):
    for content, message in [
        ("{", "not JSON"),
        ("{}", "not a result"),
        ('{"kind": "delta-rlvr evaluation", "schema": 9}', "schema 9"),
        ('{"kind": "delta-rlvr evaluation", "schema": 1}', r"result.json is damaged \(KeyError: 'complete'\)"),
    ]:
        (tmp_path / "result.json").write_text(content)
        with pytest.raises(EvaluationError, match=message):
            EvaluationResult.load(tmp_path)
    with pytest.raises(EvaluationError, match="no result"):
        EvaluationResult.load(tmp_path / "absent.json")
