"""A custom reward in place of a task's grader: a function with TRL's signature, for training and evaluation.

    def reward(completions, answer, **columns):
        return [float(right in text) for text, right in zip(completions, answer)]

It is named as `my.py:reward` or `my_package.rewards:reward`. Its arguments are lists of the same length, passed by name: `prompts`,
`completions` (texts, or messages if the prompt is a chat), and every column of the rows of the file or data set. In training it also
gets TRL's arguments (`completion_ids`, `trainer_state`, `log_extra`, `log_metric`). It may be `async`, as in TRL.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import inspect
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from delta_rlvr.hints import did_you_mean
from delta_rlvr.tasks.grading import MATH_VERIFY
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.user_code import failed_with, module_at
from rlvr_graders.verdict import Verdict, printable

GRADER = "own reward"
"""The grader of a problem that a custom reward judges."""
NAMED = (MATH_VERIFY,)
"""Rewards that are graders with a name, in place of our grader of mathematics."""
_REWARD_TEXT = "reward "
FROM_TRL = ("completion_ids", "trainer_state", "log_extra", "log_metric", "environments")
"""The arguments that TRL gives a reward function beside texts and columns."""


class RewardError(ValueError):
    """The reward function cannot be used, raised an error, or did not return rewards."""


class CustomReward:
    """The function that `reward` names. TRL calls the object; an evaluation calls `grade`."""

    def __init__(self, spec: str) -> None:
        where, colon, name = spec.rpartition(":")
        if not colon:
            raise RewardError(
                f"reward={spec!r}: name the function too, as in my_rewards.py:my_reward or my_package.rewards:my_reward, or "
                f"give a built-in one: {', '.join(NAMED)}"
            )
        module = module_at(where)
        function = getattr(module, name, None)
        if not callable(function):
            known = [key for key, value in vars(module).items() if inspect.isfunction(value)]
            has = f"it has {', '.join(known)}" if known else "it has no function"
            raise RewardError(
                f"reward={spec!r}: there is no function {name!r} in {where}{did_you_mean(name, known)} ({has})"
            )
        self.__name__ = name  # TRL logs the reward under it
        self.last_verdicts: list[Verdict] = []
        self.spec = spec
        self.function: Callable[..., Any] = function
        self.parameters = inspect.signature(function).parameters
        self.takes_any = any(one.kind is one.VAR_KEYWORD for one in self.parameters.values())
        self.problems: Mapping[str, Problem] = {}
        """The problems by id, in which the rows from TRL are looked up."""
        kinds = {one.kind for name, one in self.parameters.items() if name == "completions" or one.default is one.empty}
        if ("completions" not in self.parameters and not self.takes_any) or inspect.Parameter.POSITIONAL_ONLY in kinds:
            raise RewardError(
                f"reward={spec!r} takes {inspect.signature(function)}: it must take `completions`, "
                "and columns of the rows by their names"
            )

    def check(self, problem: Problem, training: bool) -> None:
        """Refuse a function that needs a column that the rows do not have, or fails on two empty completions."""
        known = {"prompts", "completions", *_columns([problem]), *(FROM_TRL if training else ())}
        for name, one in self.parameters.items():
            required = one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
            if required and name not in known:
                if name in FROM_TRL:
                    raise RewardError(
                        f"reward={self.spec!r} needs {name!r}, which only training has: give it a default value"
                    )
                raise RewardError(
                    f"reward={self.spec!r} needs {name!r}, and the rows have {', '.join(sorted(_columns([problem])))}"
                )
            if required and name in FROM_TRL:
                return  # which only TRL can call
        chat = not isinstance(problem.prompt, str)
        empty = [[{"role": "assistant", "content": ""}], [{"role": "assistant", "content": ""}]] if chat else ["", ""]
        try:
            self._scores([problem.prompt] * 2, empty, _columns([problem] * 2))
        except RewardError as error:
            raise RewardError(
                f"{error}. It was tried with two empty completions, which a model may give too"
            ) from error

    def __call__(self, prompts: Any = None, completions: Sequence[Any] = (), **given: Any) -> list[Any]:
        columns = _columns([self.problems[name] for name in given["id"]])
        scores = self._scores(prompts, completions, given | columns)
        self.last_verdicts = [_verdict(score) for score in scores]
        return scores

    def grade(self, problem: Problem, completion: str) -> Verdict:
        """Judge one completion."""
        chat = not isinstance(problem.prompt, str)
        text = [{"role": "assistant", "content": completion}] if chat else completion
        return _verdict(self._scores([problem.prompt], [text], _columns([problem]))[0])

    def _scores(self, prompts: Any, completions: Sequence[Any], columns: Mapping[str, Any]) -> list[float | None]:
        given = {**columns, "prompts": prompts, "completions": list(completions)}
        if not self.takes_any:
            given = {name: value for name, value in given.items() if name in self.parameters}
        try:
            scores = self.function(**_copied(given))
            if inspect.iscoroutine(scores):
                scores = asyncio.run_coroutine_threadsafe(scores, _event_loop()).result()
        except (Exception, SystemExit) as error:  # which would end the whole run without a word
            hint = ""
            if completions and not isinstance(completions[0], str):
                hint = "; the prompt is a chat, so a completion is a list of messages: its text is completion[0]['content']"
            raise RewardError(f"reward={self.spec!r} {failed_with(self.function, error)}{hint}") from error
        if not isinstance(scores, list | tuple) and getattr(scores, "ndim", None) != 1:
            shown = printable(f"{scores!r:.60}")
            raise RewardError(f"reward={self.spec!r} gave {shown}: give a list, one reward per completion")
        listed = list(scores)
        if len(listed) != len(completions):
            raise RewardError(f"reward={self.spec!r} gave {len(listed)} rewards for {len(completions)} completions")
        return [self._score(score) for score in listed]

    def _score(self, score: Any) -> float | None:
        if score is None:
            return None
        try:
            number = math.nan if isinstance(score, str | bytes) else float(score)
        except OverflowError:
            number = score = math.inf
        except Exception:  # an object of its own
            number = math.nan
        if not math.isfinite(number):
            raise RewardError(
                f"reward={self.spec!r} gave {printable(f'{score!r:.60}')}: give a finite number, or None for a response that cannot be "
                "scored"
            )
        return number


def custom_function(reward: str | None) -> str | None:
    """Return `reward` if it names a custom function, else None."""
    return None if reward in NAMED else reward


def judged_by(reward: str | None) -> dict[str, Any]:
    """Return the arguments of `get_task` that depend on the reward."""
    if reward == MATH_VERIFY and importlib.util.find_spec("math_verify") is None:
        raise RewardError(f"reward={reward!r}: the package is not here: pip install 'rlvr-graders[math-verify]'")
    if reward is None or reward in NAMED:
        return {"grader": reward}
    function = CustomReward(reward)
    return {"graded": False, "reads": None if function.takes_any else tuple(function.parameters)}


def judged_by_function(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems, marked as judged by a custom reward."""
    return [replace(problem, grader=GRADER) for problem in problems]


@functools.cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of async rewards, on its own thread. All calls share it, so that open connections stay usable."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="async rewards", daemon=True).start()
    return loop


def _copied(value: Any) -> Any:
    """Return the lists and dicts of arguments anew: what a function does to its own must not reach the trainer and the problems."""
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    if isinstance(value, list):
        return value[:] if value and isinstance(value[0], int) else [_copied(one) for one in value]
    return value


def _columns(problems: Sequence[Problem]) -> dict[str, list[Any]]:
    """Return the columns of the problems: id, answer and the fields of their rows."""
    rows = [{"id": problem.id, "answer": problem.answer, **problem.meta.get("row", {})} for problem in problems]
    names = dict.fromkeys(name for row in rows for name in row)
    # TRL's arguments of these names win over columns.
    taken = ("prompts", "completions", *FROM_TRL)
    return {name: [row.get(name) for row in rows] for name in names if name not in taken}


def _verdict(score: float | None) -> Verdict:
    if score is None:
        return Verdict.failure("the reward function gave no reward")
    return Verdict(score, f"{_REWARD_TEXT}{score:g}")


def is_reward_text(reason: str) -> bool:
    """Return whether a reason contains only the reward's number."""
    return reason.startswith(_REWARD_TEXT)
