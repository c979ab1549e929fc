"""Whatever a sample says, it gets a verdict: nothing raises, nothing hangs, and the grader never has to excuse itself."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr_graders import grade_choice, grade_math, grade_math_batch
from rlvr_graders.extract import EXTRACTORS
from rlvr_graders.math.algebra import ValueAlgebra
from rlvr_graders.math.compare import judge

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import nesting  # noqa: E402

ALGEBRA = ValueAlgebra()
COMMANDS = r"""
\frac \sqrt \text{ \begin{pmatrix} \end{pmatrix} \begin{cases} \end{cases} \begin{aligned} \left \right \le \in \mathbb{R} \cup \pm
\infty \pi \% ^\circ \log \sin \binom \sum \prod \pmod \overline \{ \} \choose \dots \mid \Rightarrow \boxed{ \mathrm{ \$ \setminus
\ne \, \! \lfloor \rfloor \det \max \int \lim \\ \frac12 \not \limits_ { } ( ) [ ] ^ _ \ $ & 0 1 2 10 99 0.5 1,000 x y n e i C HTT
, ; . = < > + - * / ! | % : ' ~ ... f( cm
"""
PHRASES = [
    " ",
    " and ",
    " or ",
    "where ",
    r"\text{if }",
    r"\text{ million}",
    r"\text{not }",
    r"\forall ",
    "^{10^{9}}",
    "!!",
]
CHARACTERS = "\x00\u200b\ud800\U0001d465\uff15\xbd\xb2\u20ac\u221a\u4e2a\u202e"
PIECES = [*COMMANDS.split(), *PHRASES, *CHARACTERS]


def answers() -> list[str]:
    lines = [
        line
        for kind in ("equivalent", "unequal")
        for line in (HERE / f"{kind}_pairs.txt").read_text("utf-8").splitlines()
    ]
    return [answer for line in lines if line and not line.startswith("# ") for answer in line.split(" ||| ")]


REAL = answers()
noise = st.lists(st.sampled_from(PIECES), min_size=1, max_size=14).map("".join)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A real answer, cut off, doubled in parts, or with something else in it."""
    text = draw(st.sampled_from(REAL))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        until = draw(st.integers(at, len(text)))
        middle = draw(st.one_of(st.just(""), st.just(text[at:until] * 2), noise))
        text = text[:at] + middle + (text[until:] if draw(st.booleans()) else "")
    return text


samples = st.one_of(damaged(), noise, st.text(max_size=30))


def judged(reference: str, prediction: str) -> str:
    begin = time.process_time()
    reason = judge(reference, prediction, ALGEBRA)
    seconds = time.process_time() - begin
    assert seconds < 5, f"{seconds:.1f} s for {prediction!r} where {reference!r} is asked"
    return reason


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(REAL), samples)
def test_any_prediction_is_judged(reference: str, prediction: str) -> None:
    assert isinstance(judged(reference, prediction), str)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(samples, st.sampled_from(REAL))
def test_any_reference_is_judged(reference: str, prediction: str) -> None:
    assert isinstance(judged(reference, prediction), str)


@settings(max_examples=200, deadline=None)
@given(
    samples, st.text(max_size=20), st.sampled_from(["<think>", "</think>", "Answer: ", "#### ", "The answer is ", ""])
)
def test_any_completion_has_its_answer_or_none(answer: str, prose: str, mark: str) -> None:
    for completion in (f"{prose}\\boxed{{{answer}}}{mark}", f"{mark}{answer}", f"{prose}{mark}\\boxed{{{answer}"):
        for extract in EXTRACTORS.values():
            assert extract(completion) is None or isinstance(extract(completion), str)
        assert not grade_choice(completion, "C").failed


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(REAL))
def test_a_real_answer_answers_itself_or_is_not_understood(answer: str) -> None:
    assert judged(answer, answer) == "correct" or judged(answer, answer).startswith("unparsable")


NOISE_BEHIND = [
    "answer ",
    "answer is ",
    "the answer to ",
    "option ",
    "so ",
    "*",
    "_",
    " ",
    "(",
    "C) ",
    "####",
    "1,000 ",
    "\\boxed",
    "}",
    "{",
    "</s>",
    "<|",
    "\t",
]


@pytest.fixture
def without_collection():
    """The heap of a long test run takes longer to collect than the calls that are timed here."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collection")
def test_nested_constructs_keep_the_calling_process_for_milliseconds_and_no_call_beyond_its_limit() -> None:
    """A sample of `nesting.py`; run that file for all of them. Time of this thread alone: workers have their own limit."""
    generator = random.Random(0)
    rows = [row for row in nesting.pairs(generator, three=500) if generator.random() < 0.02]
    assert len(rows) > 400
    grade_math(r"\boxed{\sqrt{8}+x}", r"x+2\sqrt{2}")
    for reference, prediction in rows:
        cpu, wall = time.thread_time(), time.monotonic()
        verdict = grade_math(f"\\boxed{{{prediction}}}", reference, timeout=0.5)
        cpu, wall = time.thread_time() - cpu, time.monotonic() - wall
        assert cpu < 0.05, f"{cpu:.3f} s for {prediction!r} where {reference!r} is asked"
        assert wall < 3, f"{wall:.1f} s for {prediction!r}: {verdict.reason}"


@pytest.mark.usefixtures("without_collection")
def test_extraction_is_linear() -> None:
    for one in NOISE_BEHIND:
        for other in NOISE_BEHIND:
            text = (one + other * 9) * 300
            for extract in (*EXTRACTORS.values(), lambda text: grade_choice(text, "C")):
                begin = time.thread_time()
                extract(text[:2000])
                extract("answer is " + text[:2000])
                assert time.thread_time() - begin < 0.05, (one, other, extract)


def random_samples(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """The same kinds of samples as above from Python's own generator, which is faster by far."""
    generator = random.Random(seed)
    for _ in range(count):
        reference = generator.choice(REAL)
        text = generator.choice([reference, generator.choice(REAL)])
        if generator.random() < 0.3:
            text = "".join(generator.choices(PIECES, k=generator.randint(1, 14)))
        for _ in range(generator.randint(1, 4)):
            at = generator.randint(0, len(text))
            until = min(len(text), at + generator.randint(0, 6))
            middle = generator.choice(["", generator.choice(PIECES), text[at:until] * 2, generator.choice(REAL)[:12]])
            text = text[:at] + middle + (text[until:] if generator.random() < 0.8 else "")
        yield reference, text


def test_thousands_of_damaged_answers_are_judged() -> None:
    for reference, prediction in random_samples(5000, seed=1000):
        assert isinstance(judged(reference, prediction), str)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_100_000_gradings_as_a_run_calls_them() -> None:
    """Through the workers, with a time limit: no exception, no failure of the grader, no time limit reached."""
    failed = []
    for seed in range(20):
        rows = list(random_samples(5000, seed))
        verdicts = grade_math_batch(
            [f"so \\boxed{{{given}}}" for _, given in rows], [asked for asked, _ in rows], timeout=20
        )
        assert len(verdicts) == len(rows)
        failed += [
            (row, v.reason) for row, v in zip(rows, verdicts, strict=True) if v.failed and "reference" not in v.reason
        ]
    assert failed == []
