"""Readers that make problems from the rows of benchmarks, one for each schema."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.sources import schemas
from delta_rlvr.tasks.sources.schemas import RowError, answer_text, pick, question_hash
from delta_rlvr.tasks.templates import LETTERS, Template
from rlvr_graders.code.datasets import mbpp_tests

Row = Mapping[str, Any]

DESCRIBED_FUNCTION = Template(
    "described_function",
    "Write the Python function that this text asks for; the assertion shows its name and its arguments.\n\n"
    "{question}\n\n"
    "Think step by step, and give the whole function with its imports in one ```python code block at the end.",
    grader="code",
    extract="code_block",
)
"""The template for MBPP+. Ours; the paper gives none."""
STARTED_CLASS = Template(
    "started_class",
    "{question}\n\nThink step by step, and give the whole class, completed, with its imports in one ```python code "
    "block at the end.",
    grader="code",
    extract="code_block",
)
"""The template for problems of LiveCodeBench that begin with a `class Solution`, which is part of the question. Ours."""


def read_math(row: Row, template: Template, graded: bool = True, names: schemas.FieldNames | None = None) -> Problem:
    """{problem, answer} under the usual names or those given; the id is optional. A custom reward needs no answer."""
    return _math(schemas.read_plain(row, names, graded), template, row=dict(row))


def read_gsm8k(row: Row, template: Template) -> Problem:
    """{question, answer}: the gold answer follows ####."""
    return _math(schemas.read_gsm8k(row), template)


def _math(fields: schemas.Fields, template: Template, **meta: Any) -> Problem:
    prompt = template.fill(fields.question) if isinstance(fields.question, str) else fields.question
    meta |= {"question": fields.question, "extract": template.extract}
    return Problem(fields.id or "", prompt, fields.answer, "math", meta)


def read_gpqa(row: Row, template: Template) -> Problem:
    """{Question, Correct Answer, Incorrect Answer 1..3}: the text of the options fixes their order."""
    question, right = _text(row, "Question").strip(), _text(row, "Correct Answer").strip()
    options = [right, *(_text(row, f"Incorrect Answer {number}").strip() for number in (1, 2, 3))]
    # The right option comes first in every row. Hashing spreads it evenly, in the same way in every run.
    options.sort(key=lambda option: hashlib.sha256(f"{question}\0{option}".encode()).digest())
    name = str(row.get("Record ID") or question_hash(question))
    return _choice(name, question, options, options.index(right), template)


def read_mmlu_pro(row: Row, template: Template) -> Problem:
    """{question_id, question, options, answer_index}."""
    options = row.get("options")
    if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
        raise RowError("it has no list of options")
    index = row.get("answer_index")
    if not isinstance(index, int) or not 0 <= index < len(options):
        raise RowError(f"its answer_index is {index!r}, and it has {len(options)} options")
    letter = row.get("answer")
    if letter is not None and letter != LETTERS[index]:
        raise RowError(f"its answer {letter!r} and its answer_index {index} do not agree")
    return _choice(str(row["question_id"]), _text(row, "question"), options, index, template)


def read_humaneval(row: Row, template: Template) -> Problem:
    """{task_id, prompt, entry_point, test}, or EvalPlus' own form with base_input and plus_input."""
    _need(row, "task_id", "prompt", "entry_point", "test" if "plus_input" not in row else "base_input")
    kept = (*("task_id", "prompt", "entry_point", "test", "canonical_solution"), *("base_input", "plus_input", "atol"))
    tests = {name: row[name] for name in kept if name in row}
    if "plus_input" not in row:
        tests.pop("canonical_solution", None)  # only EvalPlus computes expected outputs with it
    return Problem(str(row["task_id"]), template.fill(str(row["prompt"]).strip()), tests, "code")


def read_mbpp_plus(row: Row, template: Template) -> Problem:
    """EvalPlus' own form, or the hub's {task_id, prompt, test_imports, test_list, test}."""
    if "plus_input" in row:
        return read_humaneval(row, template)
    _need(row, "task_id", "prompt", "test_list", "test")
    question = f'"""\n{str(row["prompt"]).strip()}\n{row["test_list"][0]}\n"""'
    tests = {"kind": "assertions", "entry_point": mbpp_tests(row).entry_point, "source": row["test"]}
    return Problem(f"Mbpp/{row['task_id']}", template.fill(question), tests, "code")


def read_livecodebench(row: Row, template: Template) -> Problem:
    """{question_content, question_id, starter_code, public_test_cases, private_test_cases, metadata}."""
    _need(row, "question_id", "question_content", "public_test_cases")
    starter = str(row.get("starter_code") or "").strip()
    question = str(row["question_content"]).strip()
    started = f"{question}\n\n```python\n{starter}\n```"
    prompt = STARTED_CLASS.fill(started) if starter else template.fill(question)
    tests = {name: row.get(name) for name in ("public_test_cases", "private_test_cases", "metadata")}
    return Problem(str(row["question_id"]), prompt, tests, "code")


def _choice(name: str, question: str, options: list[str], right: int, template: Template) -> Problem:
    meta = {"question": question, "options": options, "extract": template.extract}
    return Problem(name, template.fill(question, options), LETTERS[right], "choice", meta)


def _need(row: Row, *names: str) -> None:
    for name in names:
        pick(row, name, (), name)


def _text(row: Row, name: str) -> str:
    return answer_text(pick(row, name, (), name))
