"""Grade programs: `grade_code(completion, tests)`, a batch of them, and TRL's reward function.

The program runs in a sandbox; what is expected of it never enters there. See docs/rewards_code.md.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from delta_rlvr.rewards.code.cases import CodeTests, FunctionTests, StdioTests
from delta_rlvr.rewards.code.compare import answer_matches, output_matches
from delta_rlvr.rewards.code.datasets import parse_tests
from delta_rlvr.rewards.code.extract import continue_prompt, extract_code
from delta_rlvr.rewards.code.sandbox.errors import ProgramFailure
from delta_rlvr.rewards.code.sandbox.runner import Runner
from delta_rlvr.rewards.code.settings import CodeSettings
from delta_rlvr.rewards.functions import RewardFunction
from delta_rlvr.rewards.reporting import Progress, reporter
from delta_rlvr.rewards.verdict import Verdict

LONGEST_PROGRAM = 1 << 20


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
    A sandbox that fails raises SandboxError: a broken grader must not look like a wrong program. `stop`, once set
    by another thread, ends the grading with Stopped.
    """
    settings, tests = settings or CodeSettings(), parse_tests(tests)
    if prompt is None:
        program = extract_code(completion, None if isinstance(tests, StdioTests) else tests.entry_point)
    elif isinstance(tests, StdioTests):
        raise ValueError("prompt is for tests of a function; a whole program continues nothing")
    else:
        program = continue_prompt(prompt, completion, tests.entry_point)
    if program is None:
        return Verdict(0.0, "no code")
    if len(program) > LONGEST_PROGRAM:
        return Verdict(0.0, f"the program is longer than {LONGEST_PROGRAM} characters")
    try:
        _judge(program, tests, Runner(settings, stop))
    except ProgramFailure as failure:
        return Verdict(0.0, str(failure), program)
    return Verdict(1.0, "correct", program)


def _judge(program: str, tests: CodeTests, runner: Runner) -> None:
    """Raise ProgramFailure unless the program passes. The comparisons are made here, outside the sandbox."""
    if isinstance(tests, StdioTests):
        outputs = runner.runs(program, [run.input for run in tests.runs])
        _judge_each(
            outputs, lambda at, output: output_matches(output, tests.runs[at].output, tests), len(tests.runs)
        )
    elif isinstance(tests, FunctionTests):
        whole = tests.preamble + program
        answers = runner.calls(whole, tests.entry_point, [call.arguments for call in tests.calls])
        _judge_each(
            answers, lambda at, answer: answer_matches(answer, tests.calls[at], tests), len(tests.calls)
        )
    else:
        whole = tests.preamble + program
        runner.assertions(whole, tests.entry_point, tests.source, tests.setup, tests.in_place)


def _judge_each(results: Any, matches: Callable[[int, Any], bool], count: int) -> None:
    done = 0
    try:
        for done, result in enumerate(results, start=1):
            if not matches(done - 1, result):
                raise ProgramFailure(f"wrong answer on test {done} of {count}")
    except ProgramFailure as failure:
        if str(failure).startswith(("wrong answer", "does not load")):
            raise
        raise ProgramFailure(f"{failure} (test {done + 1} of {count})") from None
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
    if prompts is not None and len(prompts) != len(completions):
        raise ValueError(f"{len(completions)} completions and {len(prompts)} prompts: they must pair up")
    stop = threading.Event()
    pool = ThreadPoolExecutor(settings.workers or len(os.sched_getaffinity(0)), "grade-code")
    with contextlib.ExitStack() as stack:
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        stack.callback(stop.set)  # before the pool waits for its threads
        report = reporter(progress, len(completions), stack)
        futures: list[Future[Verdict]] = [
            pool.submit(
                grade_code,
                completion,
                tests[row],
                settings=settings,
                prompt=None if prompts is None else prompts[row],
                stop=stop,
            )
            for row, completion in enumerate(completions)
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

    def judge(
        self, completions: list[str], lengths: list[int] | None, columns: Mapping[str, Any]
    ) -> list[Verdict]:
        tests = columns.get(self.column)
        if tests is None:
            known = sorted(name for name in columns if name != "trainer_state")
            raise ValueError(
                f"{self.__name__} needs the column {self.column!r} in the data set; it has {known}. "
                "Rename yours or build the reward with column=..."
            )
        return grade_code_batch(completions, tests, settings=self.settings)

    def log(self, verdicts: list[Verdict], log_metric: Callable[[str, float], None]) -> None:
        total = max(len(verdicts), 1)
        log_metric(
            f"{self.__name__}/no_code", sum(verdict.reason == "no code" for verdict in verdicts) / total
        )
        late = sum(verdict.reason.startswith("timed out") for verdict in verdicts)
        log_metric(f"{self.__name__}/timed_out", late / total)


code_reward = CodeReward()
"""`CodeReward` with its defaults, for `reward_funcs=[code_reward]`."""
