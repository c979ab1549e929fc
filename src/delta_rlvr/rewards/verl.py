"""The reward functions in verl's form: `compute_score(data_source, solution_str, ground_truth, extra_info=None, **settings) -> dict`.

    reward.custom_reward_function.path=pkg://delta_rlvr.rewards.verl
    reward.custom_reward_function.name=compute_score
    +reward.custom_reward_function.reward_kwargs.extract=boxed

verl calls it from threads, one response at a time; that is safe here. The dictionary's `score` is the reward; verl logs the other
keys, and takes `acc` for its validation metric: correctness without any shaping.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from .choice import grade_choice
from .math.grade import TIMEOUT, grade_math
from .shaping import Form, SoftOverlong, check_form
from .verdict import Verdict


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    grader: str = "math",
    extract: str | None = None,
    timeout: float = TIMEOUT,
    form: Form | None = None,
    form_weight: float = 0.1,
    overlong: Mapping[str, Any] | None = None,
    tokenizer: str | None = None,
    **_unused: Any,
) -> dict[str, Any]:
    """The reward of one response, its parts and its reason.

    Args:
        data_source, solution_str, ground_truth, extra_info: as verl passes them.
        grader: "math", "choice" or "code"; `ground_truth` is then an answer, a letter, or the tests.
        extract: where the final answer stands; each grader has its default.
        timeout: seconds of algebra, for math.
        form, form_weight: adds `form_weight` where the response has that form (see `shaping.check_form`).
        overlong: the fields of `SoftOverlong`. verl does not tell a reward function the number of tokens: it is taken from
            extra_info["response_length"] where something of yours puts it there, else counted with `tokenizer`. verl's own
            `reward.reward_manager.name=dapo` with `overlong_buffer_cfg` is the same penalty without counting again: use one of them.
        tokenizer: name or folder of the model's tokenizer, for `overlong`.
    """
    verdict = _correctness(grader, solution_str, ground_truth, extract, timeout)
    # The keys are the same for every response: verl collects them by those of the first.
    result: dict[str, Any] = {
        "score": verdict.score,
        "acc": verdict.score,
        "reason": verdict.reason,
        "answer": verdict.answer or "",
        "not_graded": float(verdict.failed),
    }
    if form is not None:
        result["form"] = check_form(solution_str, form).score
        result["score"] += form_weight * result["form"]
    if overlong is not None:
        length = _length(solution_str, extra_info or {}, tokenizer)
        result["overlong"] = SoftOverlong(**overlong).penalty(length)
        result["score"] += result["overlong"]
    return result


def _correctness(grader: str, completion: str, truth: Any, extract: str | None, timeout: float) -> Verdict:
    if grader == "math":
        return grade_math(completion, truth, timeout=timeout, extract=extract or "boxed")
    if grader == "choice":
        return grade_choice(completion, truth, extract=extract or "boxed_or_line")
    if grader == "code":
        from .code import grade_code, parse_tests

        return grade_code(completion, parse_tests(truth))
    raise ValueError(f'grader={grader!r} is not "math", "choice" or "code"')


def _length(completion: str, extra_info: Mapping[str, Any], tokenizer: str | None) -> int:
    if "response_length" in extra_info:
        return int(extra_info["response_length"])
    if tokenizer is None:
        raise ValueError(
            'overlong needs the number of tokens: set tokenizer=... in reward_kwargs, put "response_length" into extra_info, '
            "or use verl's own overlong_buffer_cfg instead"
        )
    return len(_tokenizer(tokenizer).encode(completion, add_special_tokens=False))


@lru_cache(maxsize=4)
def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name)
