"""Question and answer pairs before the question: how a model that is no chat model is asked.

Every question takes one block, so the response is the first line of the completion; what the model goes on to invent
after it does not count. The line is the bare answer, or a short working and then "The answer is ...".
"""

from __future__ import annotations

from collections.abc import Sequence

Shot = tuple[str, str]
"""A question and the line that answers it."""

_ANSWER_IS = "The answer is"


def few_shot_prompt(question: str, shots: Sequence[Shot]) -> str:
    """The shots, the question, and "Answer:" for the model to go on from."""
    blocks = [f"Question: {one_line(asked)}\nAnswer: {one_line(answer)}" for asked, answer in shots]
    return "\n\n".join([*blocks, f"Question: {one_line(question)}\nAnswer:"])


def first_line(completion: str) -> str:
    """The first line that says anything, without the space around it."""
    return completion.strip().partition("\n")[0].strip()


def worked_line(working: str, answer: str) -> str:
    """The line of a shot that shows how its answer comes about."""
    return f"{one_line(working).rstrip('.')}. {_ANSWER_IS} {answer}."


def worked_answer(completion: str) -> str:
    """What the first line gives as its answer after a working; "" where it gives none."""
    _, said, answer = first_line(completion).rpartition(_ANSWER_IS)
    return answer.strip().removesuffix(".") if said else ""


def one_line(text: str) -> str:
    """The text without line breaks: a blank line would end its block."""
    return " ".join(text.split())
