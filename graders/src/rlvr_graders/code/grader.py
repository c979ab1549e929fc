"""Grade programs: `grade_code(completion, tests)`, a batch of them, and TRL's reward function.

The program runs in a sandbox; what is expected of it never enters there. See graders/docs/code.md.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

from rlvr_graders.code.cases import Call, CodeTests, FunctionTests, StdioTests
from rlvr_graders.code.compare import answer_matches, most_bytes, most_items, output_matches
from rlvr_graders.code.datasets import parse_tests
from rlvr_graders.code.extract import continue_prompt, extract_code
from rlvr_graders.code.sandbox.errors import ProgramFailure, SandboxError, SandboxLost, Stopped
from rlvr_graders.code.sandbox.runner import Runner
from rlvr_graders.code.settings import CodeSettings
from rlvr_graders.functions import Columns, RewardFunction
from rlvr_graders.reporting import Progress, reporter
from rlvr_graders.verdict import Verdict

ATTEMPTS = 3  # where sandbox after sandbox is killed from outside
LONGEST_PROGRAM = 1 << 20
LONGEST_COMPLETION = 4 << 20
log = logging.getLogger(__name__)


def grade_code(
    completion: str,
    tests: CodeTests | Any,
    *,
    settings: CodeSettings | None = None,
    prompt: str | None = None,
    stop: threading.Event | None = None,
) -> Verdict:
    """Score 1.0 where the completion's program passes all tests, else 0.0, with the reason.

    `tests` is a record (FunctionTests, AssertionTests, StdioTests) or a data set's own form of them (`parse_tests`).
    `prompt` is for completions that go on where it ends (HumanEval's form): the program is then the two together.
    Nothing that a completion says raises. Tests or settings that are wrong do, and so does a sandbox that fails
    (SandboxError): a broken grader must not look like a wrong program. `stop`, once set by another thread, ends the
    grading with Stopped.
    """
    settings, tests = settings or CodeSettings(), parse_tests(tests)
    if prompt is not None and isinstance(tests, StdioTests):
        raise ValueError("prompt is for tests of a function; a whole program continues nothing")
    runner = Runner(settings, stop)
    program = None
    try:
        program = _program(completion, tests, prompt)
        if program is None:
            return Verdict(0.0, "no code")
        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(SandboxLost):
                _judge(program, tests, runner)
                break
        else:
            _judge(program, tests, runner)
    except ProgramFailure as failure:
        return Verdict(0.0, str(failure), program)
    except (SandboxError, Stopped):
        raise
    except Exception as error:  # nothing that a sample says may end a run
        log.warning("a program could not be graded", exc_info=True)
        return Verdict.from_error(error, program)
    return Verdict(1.0, "correct", program)


def _program(completion: str, tests: CodeTests, prompt: str | None) -> str | None:
    if len(completion) > LONGEST_COMPLETION:
        raise ProgramFailure(f"the completion is longer than {LONGEST_COMPLETION} characters")
    entry_point = None if isinstance(tests, StdioTests) else tests.entry_point
    if prompt is None or entry_point is None:
        program = extract_code(completion, entry_point)
    else:
        program = continue_prompt(prompt, completion, entry_point)
    if program is not None and len(program) > LONGEST_PROGRAM:
        raise ProgramFailure(f"the program is longer than {LONGEST_PROGRAM} characters")
    return program


def _judge(program: str, tests: CodeTests, runner: Runner) -> None:
    """Raise ProgramFailure unless the program passes. The comparisons are made here, outside the sandbox."""
    if isinstance(tests, StdioTests):
        # A character takes four bytes at most.
        outputs = runner.runs(program, [(run.input, 4 * most_bytes(len(run.output))) for run in tests.runs])
        _judge_each(outputs, tests.runs, lambda output, run: output_matches(output, run.output, tests))
    elif isinstance(tests, FunctionTests):
        items: list[int] = []

        def questions(calls: Sequence[Call]) -> Iterator[tuple[tuple[Any, ...], int]]:
            for call in calls:  # one by one: a wrong program is asked few of them
                items.append(most_items(call, tests))
                yield call.arguments, most_bytes(items[-1])

        answers = runner.calls(program, tests.entry_point, questions(tests.calls), tests.preamble)
        _judge_each(answers, tests.calls, lambda answer, call: answer_matches(answer, call, tests, items[-1]))
    else:
        runner.assertions(program, tests)


def _judge_each(results: Any, expected: Sequence[Any], matches: Callable[[Any, Any], bool]) -> None:
    count = len(expected)
    done = 0
    try:
        for done, result in enumerate(results, start=1):
            if not matches(result, expected[done - 1]):
                raise ProgramFailure(f"wrong answer on test {done} of {count}")
    except ProgramFailure as failure:
        reason, test = str(failure), f"test {done + 1} of {count}"
        if reason.startswith(("wrong answer on", "does not load")):
            raise
        raise ProgramFailure(f"{reason} on {test}" if reason == "wrong answer" else f"{reason} ({test})") from None
    finally:
        results.close()  # ends the sandbox now, not when the generator is collected
    if done != count:
        raise ProgramFailure(f"answered {done} of {count} tests")


def grade_code_batch(
    completions: Sequence[str],
    tests: Sequence[CodeTests | Any],
    *,
    settings: CodeSettings | None = None,
    prompts: Sequence[str | None] | None = None,
    progress: Progress = False,
) -> list[Verdict]:
    """Grade many completions in parallel, in order. `progress` is True for a bar (needs rich), or is told (done, total).

    Works from any thread. An exception, a KeyboardInterrupt among them, ends all sandboxes before it goes on.
    """
    settings = settings or CodeSettings()
    if len(completions) != len(tests):
        raise ValueError(f"{len(completions)} completions and {len(tests)} tests: they must pair up")
    prompts = [None] * len(completions) if prompts is None else prompts
    if len(prompts) != len(completions):
        raise ValueError(f"{len(completions)} completions and {len(prompts)} prompts: they must pair up")
    stop = threading.Event()
    pool = ThreadPoolExecutor(settings.workers or len(os.sched_getaffinity(0)), "grade-code")
    with contextlib.ExitStack() as stack:
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        stack.callback(stop.set)  # before the pool waits for its threads
        report = reporter(progress, len(completions), stack)
        futures = [
            pool.submit(grade_code, completion, test, settings=settings, prompt=prompt, stop=stop)
            for completion, test, prompt in zip(completions, tests, prompts, strict=True)
        ]
        waiting = set(futures)
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()  # an error of the sandbox ends the batch at once
            report(len(futures) - len(waiting))
        return [future.result() for future in futures]


class CodeReward(RewardFunction):
    """1 where the program passes its tests, else 0: `grade_code` on the column `tests` (see `parse_tests`)."""

    def __init__(
        self, settings: CodeSettings | None = None, *, column: str = "tests", name: str = "code_reward"
    ) -> None:
        super().__init__(name)
        self.settings = settings
        self.column = column

    def judge(self, completions: list[str], lengths: list[int] | None, columns: Columns) -> list[Verdict]:
        return grade_code_batch(completions, self.needed(self.column, columns), settings=self.settings)

    def counts(self, verdicts: list[Verdict]) -> dict[str, int]:
        return {
            "no_code": sum(verdict.reason == "no code" for verdict in verdicts),
            "timed_out": sum(verdict.reason.startswith("timed out") for verdict in verdicts),
            "not_graded": sum(verdict.failed for verdict in verdicts),
        }


code_reward = CodeReward()
"""`CodeReward` with its defaults, for `reward_funcs=[code_reward]`."""
