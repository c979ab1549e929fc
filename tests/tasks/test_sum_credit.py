"""Where the decision falls, on responses written by hand. `^` marks under the text say what must be found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_rlvr.tasks.sum_credit import first_wrong_digit, stated_answer, sum_digits
from delta_rlvr.tasks.task import flag_tokens, token_spans


def marked(marks: str) -> list[tuple[int, int]]:
    """Spans of the runs of ^ in a line."""
    spans, start = [], None
    for place, mark in enumerate(marks + " "):
        if mark == "^" and start is None:
            start = place
        elif mark != "^" and start is not None:
            spans.append((start, place))
            start = None
    return spans


RIGHT = [
    # 37 + 48 = 85, 85 + 26 = 111: the results count, the copies of 37, 48, 85, 26 and the answer do not
    (
        "First, 37 plus 48 makes 85. Lastly, adding 26 to 85 gives 111. So the answer is 111.",
        "                        ^^                                ^^^                       ",
    ),
    # straight to the answer: then the answer itself was worked out
    ("So the answer is 111.", "                 ^^^ "),
    # fillers have no number, and a remark names one without working anything out
    (
        "Well, 37 and 48 come to 85. That was not too hard. Here 62 plays no part. The answer must be 111.",
        "                        ^^                                                                   ^^^ ",
    ),
]


@pytest.mark.parametrize(("text", "marks"), RIGHT)
def test_the_results_decide_a_right_response(text: str, marks: str) -> None:
    assert sum_digits(text) == marked(marks)


WRONG = [
    # a forgotten carry: 37 + 48 = 85, not 75; what follows is right given 75
    (
        "First, 37 plus 48 makes 75. Lastly, adding 26 to 75 gives 101. So the answer is 101.",
        "                        ^                                                           ",
    ),
    # the last digit of the second sum: 85 + 26 = 111, not 112
    (
        "First, 37 plus 48 makes 85. Lastly, adding 26 to 85 gives 112. So the answer is 112.",
        "                                                            ^                       ",
    ),
    # an addend is copied wrongly: 36 for 37; 37 shares the first digit, so the second one is wrong
    (
        "First, 36 plus 48 makes 84. Lastly, adding 26 to 84 gives 110. So the answer is 110.",
        "        ^                                                                           ",
    ),
    # the running total is copied wrongly: 86 for 85
    (
        "First, 37 plus 48 makes 85. Lastly, adding 26 to 86 gives 112. So the answer is 112.",
        "                                                  ^                                 ",
    ),
    # an addend is used twice and 26 never: 48 is no longer to be had, and 26 or 85 does not begin with 4
    (
        "First, 37 plus 48 makes 85. Lastly, 85 plus 48 makes 133. So the answer is 133.",
        "                                            ^                                  ",
    ),
    # every step is right, the answer is copied wrongly
    (
        "First, 37 plus 48 makes 85. Lastly, adding 26 to 85 gives 111. So the answer is 121.",
        "                                                                                 ^  ",
    ),
    # it stops before 26 was added: the answer's first digit is where that shows
    ("First, 37 plus 48 makes 85. So the answer is 85.", "                                             ^  "),
    # a number that ends too soon: the full stop stands where the last 1 of 111 should
    (
        "First, 37 plus 48 makes 85. Lastly, adding 26 to 85 gives 11. So the answer is 11.",
        "                                                            ^                     ",
    ),
    # a number with a digit too many
    ("First, 37 plus 48 makes 855. So the answer is 855.", "                          ^                       "),
    # a distracting fact (62) is added instead of 26; of what may stand there, 26 and 85, neither begins with 6
    (
        "First, 37 plus 48 makes 85. Lastly, adding 62 to 85 gives 147. So the answer is 147.",
        "                                           ^                                        ",
    ),
    # a remark names a number that is nowhere: 63, where 62 is meant
    (
        "First, 37 plus 48 makes 85. Here 63 plays no part. So the answer is 85.",
        "                                  ^                                    ",
    ),
    # cut off, but right as far as it goes: no digit is to blame
    ("First, 37 plus 48 makes 85. Lastly, adding 26 to", "                                                "),
    ("", ""),
]


@pytest.mark.parametrize(("text", "marks"), WRONG)
def test_the_first_wrong_digit_decides_a_wrong_response(text: str, marks: str) -> None:
    assert first_wrong_digit([37, 48, 26], [62], text) == marked(marks)


@pytest.mark.parametrize(
    "text",
    [
        # the addends in another order, a start told on its own, and the total left out: all are right sums
        "First, 26 plus 48 makes 74. Lastly, adding 37 to 74 gives 111. So the answer is 111.",
        "Start with 37. Adding 48 gives 85. Adding 26 gives 111. So the answer is 111.",
        "All of 37 and 48 and 26 make 111. So the answer is 111.",
    ],
)
def test_another_way_to_a_right_sum_has_no_wrong_digit(text: str) -> None:
    assert first_wrong_digit([37, 48, 26], [], text) == []


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("So the answer is 111.", "111"),
        ("Hence the answer: 7.", "7"),
        ("The answer is 5. No, the answer is 6.", "6"),  # the last word counts
        ("85 and 26 come to 111.", None),  # worked out but never given as the answer
        ("The answer is. 111", None),  # another sentence
        ("", None),
    ],
)
def test_stated_answer(text: str, answer: str | None) -> None:
    assert stated_answer(text) == answer


@given(st.text(alphabet="0123456789 .ansewr:", max_size=80))
def test_any_text_can_be_read(text: str) -> None:
    for start, end in [*sum_digits(text), *first_wrong_digit([37, 48], [5], text)]:
        assert 0 <= start < end <= len(text)


def test_spans_become_token_flags() -> None:
    tokens = ["First", ", ", "3", "7", " plus ", "8", " makes ", "4", "5", "."]
    text = "".join(tokens)
    spans = token_spans(tokens)
    assert [text[start:end] for start, end in spans] == tokens
    # 37 + 8 = 45, at characters 20 and 21
    assert flag_tokens(sum_digits(text), spans) == [0, 0, 0, 0, 0, 0, 0, 1, 1, 0]
    # a span inside a longer token flags that token; a touching neighbour is not flagged
    assert flag_tokens([(20, 22)], [(0, 20), (20, 24), (22, 24)]) == [0, 1, 0]
