"""Finding the program in a completion. The programs here are our own, so an ordinary interpreter runs what was found."""

from __future__ import annotations

import ast
import contextlib
import gc
import io
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from code_completions import CODE, ECHO, NO_CODE, STYLES, WHOLE_PROGRAMS, WRONG
from rlvr_graders.code.extract import continue_prompt, extract_code
from rlvr_graders.code.syntax import parse


def filled(style, code=CODE):
    return (
        style.replace("INDENTED", textwrap.indent(code, "    ")).replace("CODE", code).replace("WRONG", WRONG)
    )


def run(program, text=""):
    """(names, what it printed) of a program that reads `text`."""
    names, printed, given = {"__name__": "__main__"}, io.StringIO(), sys.stdin
    sys.stdin = io.StringIO(text)
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(program, "found.py", "exec", dont_inherit=True), names)
    finally:
        sys.stdin = given
    return names, printed.getvalue()


@pytest.mark.parametrize("name", STYLES)
def test_a_function_is_found(name):
    program = extract_code(filled(STYLES[name]), "vowels")
    names, _ = run(program)
    function = names.get("vowels") or names["Solution"]().vowels
    assert [function(text) for text in ("hello", "xyz", "AEIOU")] == [2, 0, 5]


@pytest.mark.parametrize("name", STYLES)
def test_windows_line_ends_make_no_difference(name):
    style = filled(STYLES[name])
    assert extract_code(style.replace("\n", "\r\n"), "vowels") == extract_code(style, "vowels")


@pytest.mark.parametrize("name", NO_CODE)
def test_where_there_is_no_code(name):
    assert (extract_code(filled(NO_CODE[name]), "vowels") or "").strip() == ""
    assert (extract_code(filled(NO_CODE[name])) or "").strip() == ""


@pytest.mark.parametrize("name", WHOLE_PROGRAMS)
def test_a_whole_program_is_found(name):
    program = extract_code(filled(WHOLE_PROGRAMS[name], ECHO))
    assert run(program, "3\n")[1] == "6\n"


def test_the_last_right_name_wins_even_where_it_is_wrong():
    assert extract_code(f"```python\n{CODE}```\nBetter:\n```python\n{WRONG}```", "vowels") == WRONG
    assert (
        extract_code("```python\ndef other(s):\n    return 1\n```", "vowels")
        == "def other(s):\n    return 1\n"
    )


def test_code_that_does_not_parse_is_still_the_answer():
    assert (
        extract_code("```python\ndef vowels(s)\n    return 0\n```", "vowels")
        == "def vowels(s)\n    return 0\n"
    )


PROMPT = 'from math import isqrt\n\n\ndef is_prime(n: int) -> bool:\n    """Whether n is prime."""\n'
BODY = "    if n < 2:\n        return False\n    return all(n % d for d in range(2, isqrt(n) + 1))\n"
FUNCTION = "def is_prime(n):\n" + BODY
CONTINUATIONS = {
    "body": BODY,
    "body after a blank line": "\n" + BODY,
    "more behind it": BODY + "\n\ndef other():\n    pass\n\nprint(is_prime(3))\n",
    "cut off in the next function": BODY + "\n\ndef check():\n    assert is_prime(",
    "closed fence and prose": BODY + "```\n\nThis tries all divisors.",
    "prose": BODY + "\nThis works since isqrt(n) is enough.",
    "first line lost its blanks": BODY.lstrip(),
    "at the margin": f"```python\n{textwrap.dedent(BODY)}```",
    "in a block": f"Here's the rest:\n\n```python\n{BODY}```\nHope it helps",
    "two blanks": BODY.replace("    ", "  "),
    "end token": BODY + "<|endoftext|>",
    "whole in a block": f"```python\n{FUNCTION}```",
    "whole with the prompt": f"Sure:\n```python\n{PROMPT}{BODY}```",
    "whole without a fence": f"The function:\n\n{FUNCTION}\nIt tries all divisors.",
    "whole with a future import": f"```python\nfrom __future__ import annotations\n{FUNCTION}```",
    "inner function": "    def divides(d):\n        return n % d == 0\n    return n > 1 and not any(map(divides, range(2, n)))\n",
}


@pytest.mark.parametrize("name", CONTINUATIONS)
def test_a_prompt_is_continued(name):
    names, _ = run(continue_prompt(PROMPT, CONTINUATIONS[name], "is_prime"))
    assert [n for n in range(12) if names["is_prime"](n)] == [2, 3, 5, 7, 11]


def test_what_continues_nothing():
    for completion in ("", "I do not know how to do that."):
        assert continue_prompt(PROMPT, completion, "is_prime").startswith(PROMPT)


SIZE = 60_000
HOSTILE = {
    "blanks": " " * SIZE,
    "backticks": "`" * SIZE + "!",
    "fences": "```\n" * (SIZE // 4),
    "long line before a fence": "a" * SIZE + "```",
    "long line behind a fence": "``` " + "a" * SIZE + "`",
    "closing tags": "</code>" * (SIZE // 7) + "x",
    "end tokens": "<|a|>" * (SIZE // 5),
    "quotation marks": ">" * SIZE,
    "open docstrings": "```\n'''\n" * (SIZE // 8),
    "statements that do not parse": "x = \n" * (SIZE // 5),
    "code and prose in turn": "x = 1\noops oops oops\n" * (SIZE // 22),
    "an error at the end": "def f(x):\n    return x\n" * (SIZE // 24) + "oops oops",
    "brackets": "```python\n" + "(" * SIZE,
    "a long sum": "```python\nx = " + "1+" * 25_000 + "1\n```",
    "a long comparison": "```python\nx = a" + "<a" * 25_000 + "\n```",
    "signs": "```python\nx = " + "-" * 50_000 + "1\n```",
    "NUL": "```python\n" + "\0" * 1000 + "\n```",
    "half of a surrogate pair": "```python\n" + "\ud800" * 1000 + "\n```",
    "a megabyte": "```python\n" + "x = 1\n" * 170_000 + "```",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_takes_long(name):
    """Seconds at most, of the grader's own processor time: nothing here is killable. Quadratic would be minutes."""
    start = time.process_time()
    extract_code(HOSTILE[name], "f")
    extract_code(HOSTILE[name])
    continue_prompt(PROMPT, HOSTILE[name], "is_prime")
    assert time.process_time() - start < 20


def test_long_expressions_are_no_obstacle():
    """Deeper than Python's recursion limit of 1000, and fine for its compiler."""
    program = "def f(x):\n    return " + "x + " * 1500 + "x\n"
    assert extract_code(f"```python\n{program}```", "f") == program


def test_completions_are_parsed_side_by_side():
    """Trees that two threads of Python 3.11 made at once failed with "AST constructor recursion depth mismatch"."""
    texts = [f"x = {'-' * depth}1\n" + "y = [1, 2, 3]\n" * 50 for depth in (5, 60)]

    def give_way(*_):
        time.sleep(1e-6)  # another thread's turn, in the middle of a tree

    threshold = gc.get_threshold()
    gc.callbacks.append(give_way)
    gc.set_threshold(5)
    try:
        with ThreadPoolExecutor(2) as threads:
            trees = list(threads.map(parse, texts * 200))
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(give_way)
    assert {type(tree) for tree in trees} == {ast.Module}
