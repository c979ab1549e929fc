"""math-verify as a grader like ours: its verdicts, its limits, from any thread."""

from __future__ import annotations

import threading
import time

import pytest

from rlvr_graders import MathVerifyReward, grade_math_verify, grade_math_verify_batch
from rlvr_graders.others import grade_exact_batch

pytest.importorskip("math_verify")


def test_the_verdicts_are_its_own():
    from math_verify import parse, verify

    pairs = [
        (r"so \boxed{\frac12}", "0.5"),
        (r"so \boxed{\frac13}", "0.5"),
        (r"The answer is $x^2+1$", "1+x^2"),
        ("no answer at all", "3"),
        (r"\boxed{3} or \boxed{4}", "4"),
    ]
    completions, answers = zip(*pairs, strict=True)
    theirs = [verify(parse(rf"$\boxed{{{gold}}}$"), parse(text)) for text, gold in pairs]
    verdicts = grade_math_verify_batch(completions, answers)
    assert [verdict.score for verdict in verdicts] == list(map(float, theirs))
    assert [verdict.reason for verdict in verdicts[1:4:2]] == ["wrong answer", "no final answer"]
    assert MathVerifyReward()(completions=completions, answer=answers) == list(map(float, theirs))


def test_the_answer_is_taken_from_where_it_is_looked_for():
    text = "#### 5\nThat was easy: 7 steps."
    assert grade_math_verify(text, "5", extract="hash_line").score == 1.0
    assert grade_math_verify(text, "5").score == 0.0


def test_its_limit_holds_off_the_main_thread():
    verdicts = []
    hanging = threading.Thread(
        target=lambda: verdicts.append(grade_math_verify(r"\boxed{9^{9^{9^{9}}}}", 1, timeout=1))
    )
    grade_math_verify("1", 1)  # the worker's start is not on the sample's clock
    start = time.monotonic()
    hanging.start()
    hanging.join()
    assert time.monotonic() - start < 2
    assert verdicts[0].failed
    assert verdicts[0].reason == "timed out after 1 s"


def test_exact_match_ignores_blanks_alone():
    verdicts = grade_exact_batch([r"\boxed{1, 2}", r"\boxed{0.50}", ""], ["1,2", "0.5", "1"])
    assert [verdict.score for verdict in verdicts] == [1.0, 0.0, 0.0]
    assert verdicts[2].reason == "no final answer"
