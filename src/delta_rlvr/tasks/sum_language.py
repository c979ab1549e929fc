"""The phrasings of a solution: many ways to say each step, none of which matters for the answer.

The warm start draws phrasings at random, so the policy is uncertain there, and right and wrong responses share them. Words carry no
information about the numbers: only digits decide.
"""

from __future__ import annotations

OPENERS = {
    "first": ("First, ", "To begin, ", "At the start, ", "Let us see: ", "Well, ", "Starting out, "),
    "middle": ("Next, ", "Then, ", "After that, ", "Now, ", "Going on, ", "From there, "),
    "last": ("Finally, ", "Lastly, ", "In the end, ", "One more: ", "At last, ", "To finish, "),
}
"""How a step begins, by its place. The last step has its own openers, so that it is clear when to stop."""

STEPS = (
    "{total} plus {addend} makes {result}.",
    "adding {addend} to {total} gives {result}.",
    "{total} and {addend} come to {result}.",
    "we take {total} with {addend} and get {result}.",
    "putting {addend} on {total} yields {result}.",
    "from {total} up by {addend} is {result}.",
)
"""One addition. The result is the last number of the sentence in every phrasing: `sum_credit` relies on it."""

ANSWERS = (
    " So the answer is {result}.",
    " The answer must be {result}.",
    " This makes the answer {result}.",
    " Hence the answer: {result}.",
    " And the answer comes to {result}.",
    " That leaves the answer at {result}.",
)
"""The final answer. No other sentence has the word "answer"."""

FILLERS = (
    " That was not too hard.",
    " I wrote this down with care.",
    " Slow and steady wins the race.",
    " It helps to go step by step.",
    " My old teacher would be proud.",
    " There is no need to hurry here.",
    " Let me look at it once again.",
    " A quiet mind counts best of all.",
)
"""Sentences without a number, put between steps by the setting `filler`."""

FACTS = (
    " Tom is {number} years old.",
    " The shelf holds {number} books.",
    " Bus {number} is late.",
    " It is {number} miles to town.",
    " Ann lives at number {number}.",
    " The cake costs {number} coins.",
)
"""Facts of a prompt that have nothing to do with the sum."""

REMARKS = (
    " We can leave {number} aside.",
    " Here {number} plays no part.",
    " There is no use for {number} now.",
    " As for {number}, it changes nothing.",
)
"""Remarks of a response about such a fact. They have one number only: `sum_credit` relies on it."""

ANSWER_WORD = "answer"

PHRASINGS = 6
"""The number of phrasings of an opener, a step and an answer."""


def ask(addends: list[int], facts: list[int], fact_phrasings: list[int], aloud: bool) -> str:
    """Return the prompt: the numbers to add, distracting facts, and whether to think aloud."""
    listed = ", ".join(str(number) for number in addends[:-1]) + f" and {addends[-1]}"
    request = f"Think aloud and add {listed}." if aloud else f"Add {listed}."
    pairs = zip(facts, fact_phrasings, strict=True)
    sentences = [FACTS[phrasing].format(number=number) for number, phrasing in pairs]
    return request + "".join(sentences) + "\n"
