"""Benchmarks by name: their rows, their prompts, their graders, and what is said when data is absent or wrong."""

import gzip
import json
import os
from pathlib import Path

import pytest

from delta_rlvr.evaluate import data, readers
from delta_rlvr.evaluate.benchmarks import BENCHMARKS, check_benchmark, load_benchmark, load_benchmarks
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.settings import PRESETS, EvaluationSettings
from delta_rlvr.models import hub
from delta_rlvr.specs import with_settings
from delta_rlvr.tasks import templates
from delta_rlvr.tasks.registry import get_task, grade_problem
from rows import write_rows

REAL = os.environ.get("DELTA_RLVR_DATA")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DELTA_RLVR_DATA", str(tmp_path))
    monkeypatch.setattr(hub, "hub_answers", lambda: False)
    for name in ("math", "code", "choice"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_presets_are_the_papers():
    math = PRESETS["paper-math"]
    assert math.settings == EvaluationSettings(samples=16, max_tokens=30_000, temperature=1.0, top_p=0.7)
    assert [BENCHMARKS[name].questions for name in math.benchmarks] == [30, 30, 30, 30, 30, 33, 30]
    assert [BENCHMARKS[name].questions for name in PRESETS["paper-code"].benchmarks] == [164, 378, 1055]
    assert [BENCHMARKS[name].questions for name in PRESETS["paper-ood"].benchmarks] == [198, 600]
    assert {PRESETS[name].settings.samples for name in ("paper-code", "paper-ood")} == {5}


def test_math_rows_and_prompt(folder):
    rows = [{"problem_idx": n, "problem": f"What is {n}?", "answer": n} for n in range(30)]
    write_rows(folder / "math" / "aime25.jsonl", rows)
    questions = load_benchmark("aime25")
    problem = questions.problems[7]
    assert (problem.id, problem.answer) == ("7", "7")
    assert problem.prompt == ("What is 7?\n\nPlease reason step by step, and put your final answer within \\boxed{}.")
    assert questions.description["source"] == {"file": "aime25.jsonl"}
    assert grade_problem(problem, "so it is \\boxed{7}").score == 1.0
    assert grade_problem(problem, "so it is 7").score == 0.0
    chat = load_benchmark("aime25", has_template=True).problems[7]
    assert chat.prompt == [{"role": "user", "content": problem.prompt}]
    assert load_benchmark("aime25", style="plain", has_template=True).problems[7] == problem
    part = load_benchmark("aime25", limit=4)
    assert len(part.problems) == 4
    assert part.description["questions_of_benchmark"] == 30
    again = load_benchmark(**part.description["load"])
    assert again.digest == part.digest


def test_another_template_moves_the_answer(folder):
    write_rows(folder / "math" / "aime25.jsonl", [{"id": n, "problem": "What?", "answer": n} for n in range(30)])
    problem = load_benchmark("aime25", template="math_answer_line").problems[3]
    assert '"Answer: X"' in problem.prompt
    assert grade_problem(problem, "Hm.\nAnswer: 3").score == 1.0
    with pytest.raises(EvaluationError, match="graded as math, but the template choice is for choice"):
        load_benchmark("aime25", template="choice")
    with pytest.raises(EvaluationError, match="there is no template 'nice'"):
        load_benchmark("aime25", template="nice")


def test_absent_data_is_named_for_all_at_once(folder):
    with pytest.raises(EvaluationError) as caught:
        load_benchmarks(["aime26", "hmmt26-feb", "livecodebench"])
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert f"aime26: no data. Expected is the file {folder}/math/aime26.jsonl" in lines[0]
    assert "MathArena/aime_2026 (train) on the Hugging Face hub" in lines[0]
    assert "livecodebench/code_generation_lite" in lines[2]


def test_the_hub_is_not_asked_for_a_file_that_is_here(folder, monkeypatch):
    monkeypatch.setattr(data, "_hub_rows", lambda hub: pytest.fail("asked"))
    write_rows(folder / "math" / "aime24.jsonl", [{"problem": f"{n}?", "answer": n} for n in range(30)])
    assert len({problem.id for problem in load_benchmark("aime24").problems}) == 30


def test_a_folder_variable_that_is_not_set(monkeypatch):
    monkeypatch.delenv("DELTA_RLVR_DATA", raising=False)
    monkeypatch.setattr(hub, "hub_answers", lambda: False)
    with pytest.raises(EvaluationError, match=r"\$DELTA_RLVR_DATA/math/brumo25.jsonl \(DELTA_RLVR_DATA is not set\)"):
        load_benchmark("brumo25")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"id": 1, "problem": "a", "answer": 1}, {"problem": "b", "answer": 2}],
            r"line 2: it has no id, but other rows have one",
        ),
        (
            [{"ask": "a", "gold": 1}],
            r"no question \(looked for problem, .*; it has ask, gold\); name its columns, as in 'aime25.jsonl\?question=COLUMN",
        ),
        ([{"id": 1, "problem": "a", "answer": None}], r"line 1: its answer is null"),
        ([{"id": 1, "problem": "a", "answer": 1}, "{oops"], "line 2: not JSON"),
        ([{"id": 1, "problem": "a", "answer": 1}], r"aime25 has 30 questions, but the data .* has 1"),
    ],
)
def test_bad_rows_are_named(folder, rows, message):
    write_rows(folder / "math" / "aime25.jsonl", rows)
    with pytest.raises(EvaluationError, match=message):
        load_benchmark("aime25")


def test_any_file_of_problems_and_answers(tmp_path):
    twice = {"question": "1+1?", "answer": 2}
    path = write_rows(tmp_path / "mine.jsonl", [twice, {"question": "1+2?", "answer": "3"}, twice])
    questions = load_benchmark(str(path))
    assert questions.name == "mine"
    assert [problem.answer for problem in questions.problems] == ["2", "3", "2"]
    assert len({problem.id for problem in questions.problems}) == 3
    with gzip.open(tmp_path / "mine.jsonl.gz", "wt") as file:
        file.write(path.read_text())
    assert load_benchmark(str(tmp_path / "mine.jsonl.gz")).digest == questions.digest
    with pytest.raises(EvaluationError, match="no such file"):
        load_benchmark(str(tmp_path / "absent.jsonl"))
    with pytest.raises(EvaluationError, match="no benchmark 'aime23'"):
        load_benchmark("aime23")


def test_the_built_in_task():
    questions = load_benchmark("phrased-sums", limit=5, seed=3, has_template=True)
    assert len(questions.problems) == 5
    assert isinstance(questions.problems[0].prompt, str), "a task's prompts stay as they are"
    assert questions.description["max_tokens"] > 0
    assert questions.digest == load_benchmark("task:phrased-sums", limit=5, seed=3).digest
    assert questions.digest != load_benchmark("phrased-sums", limit=5, seed=4).digest
    verdict = grade_problem(questions.problems[0], "nonsense")
    assert verdict.score == 0.0
    with pytest.raises(EvaluationError, match="task nothing"):
        load_benchmark("task:nothing")


def test_a_task_of_rows_takes_a_prompt_as_train_does(tmp_path):
    """The text may hold commas and line breaks; the problems are those that training holds out."""
    path = write_rows(tmp_path / "own.jsonl", [{"q": f"{n} + 1", "answer": n + 1} for n in range(64)])
    text = "{question}, please\n####"
    spec = f"{path}?question=q"
    asked = load_benchmark(f"task:{spec}", template_text=text)
    trained = get_task(with_settings(spec, {"template_text": text}))
    assert asked.problems == tuple(trained.problems("heldout", None, 0))
    assert asked.problems[0].prompt.endswith(" + 1, please\n####")
    assert load_benchmark(f"task:{spec}", template="math_direct").problems[0].prompt.endswith("nothing else.")
    again = load_benchmark(**asked.description["load"])  # as a stored result does it
    assert again.problems == asked.problems
    with pytest.raises(EvaluationError, match="has its own prompts: leave template_text out"):
        load_benchmark("task:phrased-sums", template_text=text)


def test_a_file_is_asked_as_a_whole_whatever_its_columns_are_called(tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text("review,sentiment,number\n" + "".join(f"Text {n}.,good,r{n}\n" for n in range(20)))
    spec = f"{path}?question=review&answer=sentiment&id=number"
    check_benchmark(spec)
    asked = load_benchmark(spec, template_text="{question} ####")
    assert [(one.id, one.prompt, one.answer) for one in asked.problems] == [
        (f"r{n}", f"Text {n}. ####", "good") for n in range(20)
    ]
    assert load_benchmark(**asked.description["load"]).problems == asked.problems
    with pytest.raises(EvaluationError, match="takes the settings answer, id, question, not chat"):
        check_benchmark(f"{path}?question=review&chat=true")
    with pytest.raises(EvaluationError, match=r"it has no answer \(looked for label; it has review, sentiment"):
        check_benchmark(f"{path}?question=review&answer=label", graded=False)


def test_gpqa_spreads_the_right_option():
    def row(number):
        wrong = {f"Incorrect Answer {n}": f"wrong {n}" for n in (1, 2, 3)}
        return {"Question": f"Q{number}", "Correct Answer": "right", **wrong}

    problems = [readers.read_gpqa(row(number), templates.CHOICE) for number in range(400)]
    for problem in problems[:20]:
        assert f"({problem.answer}) right" in problem.prompt
    counts = [sum(problem.answer == letter for problem in problems) for letter in "ABCD"]
    assert min(counts) > 60, "about a hundred each"
    assert readers.read_gpqa(row(5), templates.CHOICE) == problems[5]
    assert grade_problem(problems[0], f"\\boxed{{{problems[0].answer}}}").score == 1.0
    assert grade_problem(problems[0], "\\boxed{E}").score == 0.0


def test_mmlu_pro_draws_the_same_600_whatever_the_order(folder):
    rows = [
        {"question_id": n, "question": f"Q{n}", "options": ["x", "y", "z"], "answer": "B", "answer_index": 1}
        for n in range(900)
    ]
    path = write_rows(folder / "choice" / "mmlu_pro.jsonl", rows)
    forward = {problem.id for problem in load_benchmark("mmlu-pro").problems}
    write_rows(path, rows[::-1])
    assert forward == {problem.id for problem in load_benchmark("mmlu-pro").problems}
    assert len(forward) == 600
    with pytest.raises(ValueError, match="do not agree"):
        readers.read_mmlu_pro(rows[0] | {"answer": "C"}, templates.CHOICE)
    with pytest.raises(ValueError, match="answer_index is 7"):
        readers.read_mmlu_pro(rows[0] | {"answer_index": 7}, templates.CHOICE)


ADD = "```python\ndef add(a, b):\n    return a + b\n```"
SUBTRACT = ADD.replace("+", "-")


def _code_problems():
    humaneval = {
        "task_id": "HumanEval/0",
        "prompt": 'def add(a, b):\n    """The sum."""\n',
        "entry_point": "add",
        "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(-1, 1) == 0\n",
    }
    evalplus = {
        "task_id": "Mbpp/7",
        "prompt": '"""\nWrite a function to add.\nassert add(1, 2) == 3\n"""\n',
        "entry_point": "add",
        "canonical_solution": "\ndef add(a, b):\n    return a + b\n",
        "base_input": [[1, 2]],
        "plus_input": [[5, 6], [0, 0]],
        "atol": 0,
    }
    hub = {
        "task_id": 7,
        "prompt": "Write a function to add.",
        "test_imports": [],
        "test_list": ["assert add(1, 2) == 3"],
        "test": "inputs = [[1, 2], [5, 6]]\nresults = [3, 11]\n"
        "for i, (inp, exp) in enumerate(zip(inputs, results)):\n    assert add(*inp) == exp\n",
    }
    return [
        readers.read_humaneval(humaneval, templates.CODE_FUNCTION),
        readers.read_mbpp_plus(evalplus, templates.CODE_FUNCTION),
        readers.read_mbpp_plus(hub, templates.CODE_FUNCTION),
    ]


needs_bubblewrap = pytest.mark.skipif(not Path("/usr/bin/bwrap").exists(), reason="bubblewrap is not installed")


@needs_bubblewrap
@pytest.mark.parametrize("place", range(3))
def test_functions_are_graded_in_the_sandbox(place):
    problem = _code_problems()[place]
    assert "add" in problem.prompt
    right, wrong = grade_problem(problem, ADD), grade_problem(problem, SUBTRACT)
    assert (right.score, right.answer) == (1.0, None)
    assert wrong.score == 0.0
    assert wrong.reason != "no code"


@needs_bubblewrap
def test_livecodebench_rows():
    row = {
        "question_id": "abc_a",
        "question_content": "Read two numbers, print their sum.",
        "starter_code": "",
        "public_test_cases": json.dumps([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]),
        "private_test_cases": json.dumps([{"input": "5 6\n", "output": "11\n", "testtype": "stdin"}]),
        "metadata": "{}",
    }
    problem = readers.read_livecodebench(row, templates.CODE)
    assert "standard input" in problem.prompt
    assert grade_problem(problem, "```python\nprint(sum(map(int, input().split())))\n```").score == 1.0
    assert grade_problem(problem, "```python\ninput(); print(3)\n```").score == 0.0
    started = readers.read_livecodebench(
        row
        | {
            "starter_code": "class Solution:\n    def add(self, a: int, b: int) -> int:\n        ",
            "public_test_cases": json.dumps([{"input": "1\n2", "output": "3", "testtype": "functional"}]),
            "private_test_cases": "[]",
            "metadata": json.dumps({"func_name": "add"}),
        },
        templates.CODE,
    )
    assert "class Solution:" in started.prompt
    solution = "```python\nclass Solution:\n    def add(self, a, b):\n        return a + b\n```"
    assert grade_problem(started, solution).score == 1.0


@pytest.mark.skipif(REAL is None, reason="DELTA_RLVR_DATA names no folder with the real sets")
class TestRealFiles:
    """On the real files, where they are."""

    @pytest.mark.parametrize("name", ["aime24", "aime25", "hmmt25-feb", "math500", "gsm8k", "humaneval", "mbpp-plus"])
    def test_counts_and_ids(self, name):
        questions = load_benchmark(name)
        assert len(questions.problems) == BENCHMARKS[name].questions
        assert all(problem.prompt.strip() for problem in questions.problems)

    @pytest.mark.parametrize("name", ["aime24", "aime25", "hmmt25-feb"])
    def test_the_gold_answer_is_right(self, name):
        for problem in load_benchmark(name).problems:
            assert grade_problem(problem, f"\\boxed{{{problem.answer}}}").score == 1.0, problem.id

    @needs_bubblewrap
    @pytest.mark.parametrize(
        ("name", "file"), [("humaneval", "code/HumanEval.jsonl.gz"), ("mbpp-plus", "code/mbpp_plus.jsonl")]
    )
    def test_canonical_programs_pass(self, name, file):
        rows = dict(
            zip(
                (p.id for p in load_benchmark(name).problems),
                (row for _, row in data.read_file(Path(REAL) / file)),
                strict=True,
            )
        )
        for problem in load_benchmark(name).problems[:12]:
            row = rows[problem.id]
            program = f"```python\n{row['prompt']}{row['canonical_solution']}\n```"
            assert grade_problem(problem, program).score == 1.0, problem.id
            assert (
                grade_problem(problem, f"```python\ndef {row['entry_point']}(*a):\n    return 'no'\n```").score == 0.0
            )
