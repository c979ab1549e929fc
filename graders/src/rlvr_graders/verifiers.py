"""Reward functions as verifiers' rubrics (and prime-rl through them) call them: by name, with one completion and its answer.

import verifiers as vf
from rlvr_graders.verifiers import math_reward

rubric = vf.Rubric(funcs=[math_reward])
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from .choice import grade_choice
from .functions import completion_text
from .math.grade import grade_math


async def math_reward(completion: Any, answer: Any, **_: Any) -> float:
    """1 where the final answer is right, else 0. Graded off the event loop."""
    return (await asyncio.to_thread(grade_math, completion_text(completion), answer)).score


async def choice_reward(completion: Any, answer: Any, **_: Any) -> float:
    """1 where the right letter is chosen, else 0."""
    return grade_choice(completion_text(completion), answer).score


async def code_reward(completion: Any, answer: Any, **_: Any) -> float:
    """1 where the program passes its tests (the answer; see `rlvr_graders.code.parse_tests`), else 0."""
    from .code import grade_code

    stop = threading.Event()
    try:
        return (await asyncio.to_thread(grade_code, completion_text(completion), answer, stop=stop)).score
    finally:  # where the task is cancelled: the thread goes on until it is told
        stop.set()
