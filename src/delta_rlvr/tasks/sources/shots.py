"""Few-shot prompts for base models: question and answer pairs before the question.

An answer is one line, so the response is the first line of the completion; the rest is ignored. The line is the answer alone, or a
short working and then "The answer is ...".
"""

from __future__ import annotations

from collections.abc import Sequence

Shot = tuple[str, str]
"""A question and the line that answers it."""

_ANSWER_IS = "The answer is"


def few_shot_prompt(question: str, shots: Sequence[Shot]) -> str:
    """Return the shots, the question, and "Answer:" for the model to complete."""
    blocks = [f"Question: {one_line(asked)}\nAnswer: {one_line(answer)}" for asked, answer in shots]
    return "\n\n".join([*blocks, f"Question: {one_line(question)}\nAnswer:"])


def first_line(completion: str) -> str:
    """Return the first line that is not empty, stripped."""
    return completion.strip().partition("\n")[0].strip()


def worked_line(working: str, answer: str) -> str:
    """Return the answer line of a shot with its working."""
    return f"{one_line(working).rstrip('.')}. {_ANSWER_IS} {answer}."


def worked_answer(completion: str) -> str:
    """Return the answer after the working in the first line; "" if there is none."""
    _, mark, answer = first_line(completion).rpartition(_ANSWER_IS)
    return answer.strip().removesuffix(".") if mark else ""


def one_line(text: str) -> str:
    """Return the text without line breaks: a blank line would end its block."""
    return " ".join(text.split())
