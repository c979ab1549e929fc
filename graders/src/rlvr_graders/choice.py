"""Grades a multiple-choice answer (GPQA, MMLU-Pro): the one letter that the response settles on."""

from __future__ import annotations

from collections.abc import Sequence

from .extract import Extractor, choice_letter, choice_line, extractor
from .verdict import CORRECT, NO_ANSWER, WRONG, Verdict

OF_A_LINE = ("answer_line", "boxed_or_line")


def grade_choice(completion: str, answer: str, *, extract: str | Extractor = "boxed_or_line") -> Verdict:
    r"""Judges a completion by the letter it chooses.

    Args:
        completion: what the model wrote.
        answer: the right letter, A to J; "(C)" and "C." are read as C.
        extract: where the answer stands: the last ``\boxed{}`` or, without one, a last line "Answer: C"; see `extract`.
    """
    right = choice_letter(str(answer))
    if right is None:
        raise ValueError(f"answer={answer!r} is not one letter from A to J: a choice is graded by its letter")
    find = extractor(extract)
    try:
        given = find(completion) or (choice_line(completion) if extract in OF_A_LINE else None)
    except Exception as error:
        return Verdict.from_error(error)
    if given is None or not given.strip():
        return Verdict(0.0, NO_ANSWER)
    # "c" and "(c)" are C; in "c) 45" and words, small letters choose nothing
    alone = len(given.strip("().*$ ")) == 1
    chosen = choice_letter(given.upper() if alone else given)
    if chosen is None:
        return Verdict(0.0, "no single letter is chosen", given)
    return Verdict(1.0, CORRECT, chosen) if chosen == right else Verdict(0.0, WRONG, chosen)


def grade_choice_batch(
    completions: Sequence[str], answers: Sequence[str], *, extract: str | Extractor = "boxed_or_line"
) -> list[Verdict]:
    """`grade_choice` for many completions."""
    if len(completions) != len(answers):
        raise ValueError(
            f"{len(completions)} completions but {len(answers)} answers: give one answer for each completion"
        )
    pairs = zip(completions, answers, strict=True)
    return [grade_choice(completion, answer, extract=extract) for completion, answer in pairs]
