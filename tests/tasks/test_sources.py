"""Problems from files and data sets."""

from __future__ import annotations

import gzip
import json
import os
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from delta_rlvr.cli import main
from delta_rlvr.evaluate.benchmarks import load_benchmark
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.models import hub
from delta_rlvr.tasks import get_task, load_problems
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.problem_set import ProblemSet
from delta_rlvr.tasks.registry import check_rows, grade_problem
from delta_rlvr.tasks.sources.schemas import FieldNames, RowError, answer_text, question_hash, reader
from delta_rlvr.tasks.task import hashed_split
from delta_rlvr.tasks.templates import CHOICE, MATH, Template
from rows import write_rows

PROTOCOLS = Path(__file__).parents[2] / "evidence" / "protocols"
BRACKETS = Template("brackets", "<{question}>", "math", "boxed")


ROWS = [
    ("plain", {"problem": "What is 1+1?", "answer": "2"}, "What is 1+1?", "2"),
    ("plain", {"question": " Q ", "final_answer": 70, "id": 3}, "Q", "70"),
    ("plain", {"prompt": "Q", "gold": 0.5}, "Q", "0.5"),
    ("gsm8k", {"question": "Q", "answer": "He has 2*3=<<2*3=6>>6.\n#### 1,006"}, "Q", "1006"),
    (
        "deepmath",
        {"question": "Q", "final_answer": "\\frac{1}{2}", "difficulty": 5.0, "answer": "no"},
        "Q",
        "\\frac{1}{2}",
    ),
    ("math500", {"problem": "Q", "solution": "...", "answer": "(3,\\pi)", "unique_id": "test/1"}, "Q", "(3,\\pi)"),
    (
        "asdiv",
        {"body": "Two apples.", "question": "How many?", "answer": "2 (apples)", "idx": 0},
        "Two apples. How many?",
        "2",
    ),
    (
        "svamp",
        {"Body": "Two apples", "Question": "How many?", "Answer": 2.0, "ID": "c-1"},
        "Two apples. How many?",
        "2",
    ),
    ("mawps", {"input": "How many ?", "target": 43.0, "idx": 1}, "How many ?", "43"),
]


@pytest.mark.parametrize(("schema", "row", "question", "answer"), ROWS)
def test_each_schema(schema: str, row: dict[str, Any], question: str, answer: str) -> None:
    fields = reader(schema)(row)
    assert (fields.question, fields.answer, fields.grader) == (question, answer, "math")


def test_eurus2_keeps_its_messages_and_grader() -> None:
    row = {
        "data_source": "taco",
        "prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "Double it."}],
        "ability": "code",
        "reward_model": {"style": "rule", "ground_truth": '{"inputs": ["2\\n"], "outputs": ["4\\n"]}'},
        "extra_info": {"index": 7, "split": "train"},
    }
    fields = reader("eurus2")(row)
    assert fields.question == row["prompt"]
    assert (fields.id, fields.grader) == ("train-7", "code")
    with pytest.raises(RowError, match=r"no reward_model\.ground_truth"):
        reader("eurus2")({**row, "reward_model": {}})
    with pytest.raises(RowError, match="ability is 'music'"):
        reader("eurus2")({**row, "ability": "music"})


def test_answers_are_text() -> None:
    assert [answer_text(value) for value in (70, 70.0, " 70 ", 0.25, -3)] == ["70", "70", "70", "0.25", "-3"]
    for bad in ("", "  ", float("nan"), float("inf"), True, None, ["1"]):
        with pytest.raises(RowError, match="its answer is"):
            answer_text(bad)


def asked(content: Any, *roles: Any) -> dict[str, Any]:
    return {"prompt": [{"role": role, "content": content} for role in roles or ("user",)], "answer": "1"}


def test_parts_of_a_message_are_one_text(tmp_path: Path) -> None:
    """The model was asked "[{'type': 'text', ...}]"."""
    parts = [{"type": "text", "text": "Add 1 "}, {"type": "text", "text": "and 2."}]
    (problem,) = load_problems(write_rows(tmp_path / "x.jsonl", [asked(parts)]))
    assert problem.prompt == [{"role": "user", "content": "Add 1 and 2."}]


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    """The last one won in silence."""
    (tmp_path / "x.csv").write_text("question,answer,answer,,\nA,1,2,,\n")
    with pytest.raises(ValueError, match=r"x.csv, line 1: 'answer' comes twice"):
        load_problems(tmp_path / "x.csv")
    (tmp_path / "x.json").write_text('[\n{"question": "A",\n"answer": "1", "answer": "2"}]')
    with pytest.raises(ValueError, match=r"x.json: in {'question': 'A', .*'answer' comes twice"):
        load_problems(tmp_path / "x.json")
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.Table.from_arrays([pyarrow.array(["A"])] * 3, names=["question", "answer", "answer"])
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"x.parquet: 'answer' comes twice"):
        load_problems(tmp_path / "x.parquet")


def test_what_the_rows_leave_open_is_said(tmp_path: Path) -> None:
    rows = [{"question": f"Q{n % 5}", "problem": f"P{n % 5}", "answer": n} for n in range(20)]
    path = write_rows(tmp_path / "x.jsonl", rows)
    with pytest.warns(UserWarning, match="x.jsonl") as told:
        get_task(str(path))
    assert [str(one.message) for one in told] == [
        f"{path}: the question is the column problem, not question ('{path}?question=COLUMN' names another)",
        f"{path}: 5 questions with different answers, such as 'P0'",
    ]


def test_a_file_with_and_without_ids(tmp_path: Path) -> None:
    path = write_rows(
        tmp_path / "set.jsonl",
        [{"problem": "A", "answer": 1}, "", {"problem": "A", "answer": 1}, {"problem": "B", "answer": 2, "id": 9}],
    )
    problems = load_problems(path, template=BRACKETS)
    assert [problem.prompt for problem in problems] == ["<A>", "<A>", "<B>"]
    first, repeat, named = (problem.id for problem in problems)
    assert repeat == f"{first}-2"  # the same question again: numbered
    assert named == "set/9"
    assert problems == load_problems(path, template=BRACKETS)
    with gzip.open(tmp_path / "set.jsonl.gz", "wt") as file:
        file.write(path.read_text())
    assert [p.id for p in load_problems(tmp_path / "set.jsonl.gz")] == [first, repeat, named]
    assert len(load_problems(path, limit=2)) == 2


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"problem": "A", "answer": 1}, {"problem": "B"}],
            r"bad\.jsonl, line 2: it has no answer \(looked for answer, final_answer.*'/.*bad\.jsonl\?question=",
        ),
        ([{"problem": "A", "answer": 1}, "", '{"problem": "B",'], r"bad\.jsonl, line 3: not JSON"),
        ([{"answer": 1}], r"line 1: it has no question"),
        ([{"problem": "A", "answer": None}], r"line 1: its answer is null \(answer\)$"),
        ([{"problem": "A", "answer": ""}], r"line 1: its answer is empty"),
        ([{"problem": "  ", "answer": 1}], r"line 1: its question is neither text nor"),
        (["[1, 2]"], r"line 1: expected an object .* got list"),
        (
            [{"problem": "A", "answer": 1, "id": 5}, {"problem": "B", "answer": 1, "id": 5}],
            r"line 2: the same id as .*line 1 \(5\)",
        ),
        ([], "no rows"),
        (['{"problem": "A", "answer": "1", "answer": "2"}'], r"line 1: in .*: 'answer' comes twice: rename"),
        (['{"problem": "A", "answer": 1, "x": ' + "[" * 5000 + "]" * 5000 + "}"], "line 1: .* nested more than 100"),
        (['{"problem": "A", "answer": 1, "x": ' + "[" * 600 + "]" * 600 + "}"], "line 1: .* nested more than 100"),
        (['{"problem": "A", "answer": ' + "9" * 5000 + "}"], "line 1: a number has more digits than Python reads"),
        ([asked("A"), {"problem": "B", "answer": "1"}], "line 2: some rows ask by text and some by messages"),
        ([asked([{"type": "image"}])], "line 1: the user's message has a part that is not text"),
        *(
            ([asked(content)], "line 1: the user's message has the content")
            for content in (None, "", 5, [], [{"type": "text", "text": None}])
        ),
        ([asked("A", None)], "line 1: a message has the role None: give one of system, "),
        ([asked("A", "teacher")], "line 1: a message has the role 'teacher'"),
        ([asked("A", "system")], "line 1: its messages are of system: ask as the user"),
        ([asked("A", "user", "assistant")], "line 1: its messages are of user, assistant: ask as the user"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, rows: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_problems(write_rows(tmp_path / "bad.jsonl", rows))


def test_fields_of_ones_own(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "own.jsonl", [{"frage": "A", "antwort": 1, "nummer": "x"}])
    (problem,) = load_problems(path, names=FieldNames("frage", "antwort", "nummer"))
    assert (problem.id, problem.prompt, problem.answer) == ("own/x", "A", "1")
    with pytest.raises(ValueError, match="has its own field names"):
        load_problems(path, schema="gsm8k", names=FieldNames("frage"))
    with pytest.raises(ValueError, match="schema='nope' is unknown; use one of plain"):
        load_problems(path, schema="nope")
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_problems(tmp_path / "none.jsonl")


def test_a_data_set_folder_and_its_parts(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [{"question": f"Q{number}", "final_answer": str(number)} for number in range(5)]
    both = datasets.DatasetDict(
        {"train": datasets.Dataset.from_list(rows), "test": datasets.Dataset.from_list(rows[:2])}
    )
    both.save_to_disk(str(tmp_path / "saved"))
    problems = load_problems(tmp_path / "saved", schema="deepmath")
    assert [(problem.prompt, problem.answer) for problem in problems] == [(f"Q{n}", str(n)) for n in range(5)]
    assert len(load_problems(tmp_path / "saved", schema="deepmath", part="test")) == 2
    with pytest.raises(ValueError, match="has no part 'dev'; it has train, test"):
        load_problems(tmp_path / "saved", part="dev")
    with pytest.raises(ValueError, match="without configurations: leave subset out"):
        load_problems(tmp_path / "saved", subset="main")
    both["test"].save_to_disk(str(tmp_path / "alone"))
    assert len(load_problems(tmp_path / "alone", schema="deepmath")) == 2
    with pytest.raises(ValueError, match="has no part 'dev'; it has "):
        load_problems(tmp_path / "alone", part="dev")


def test_a_data_set_in_the_hubs_layout(tmp_path: Path) -> None:
    """What `load_dataset` does with an id it does with a folder of the same layout, without a network."""
    pytest.importorskip("datasets")
    folder = tmp_path / "hub"
    folder.mkdir()
    write_rows(folder / "train.jsonl", [{"question": "Q", "answer": "#### 5"}, {"question": "R", "answer": 6}])
    with pytest.raises(ValueError, match=r"\(train\), row 1: its answer has no '####'"):
        load_problems(folder, schema="gsm8k")
    assert [p.answer for p in load_problems(folder, schema="gsm8k", limit=1)] == ["5"]


def many(tmp_path: Path, count: int = 200) -> Path:
    return write_rows(tmp_path / "many.jsonl", [{"question": f"What is {n}+1?", "answer": n + 1} for n in range(count)])


def test_rows_as_a_task(tmp_path: Path) -> None:
    task = get_task(str(many(tmp_path)))
    train, heldout = task.problems("train", None), task.problems("heldout", None)
    assert len(train) + len(heldout) == 200
    assert 10 < len(heldout) < 45  # one in eight
    assert not {p.id for p in train} & {p.id for p in heldout}
    assert task.problems("train", 30, seed=1, start=10) == task.problems("train", None, seed=1)[10:40]
    assert task.problems("train", None, seed=1) != train
    with pytest.raises(ValueError, match=r"has \d+ heldout problems, but 500 from 0 on were requested"):
        task.problems("heldout", 500)
    assert train[0].prompt == MATH.fill(train[0].meta["question"])
    verdict = task.grade(train[0], f"So it is \\boxed{{{train[0].answer}}}.")
    assert verdict.score == 1.0
    assert task.grade(train[0], train[0].answer).reason == "no final answer"
    assert task.decisive(train[0], "1") is None


def test_a_template_brings_its_extractor(tmp_path: Path) -> None:
    task = get_task(f"{many(tmp_path)}?template=math_answer_line&chat=true")
    problem = task.problems("train", 1)[0]
    assert isinstance(problem.prompt, list)
    assert problem.prompt[0]["role"] == "user"
    assert problem.prompt[0]["content"].startswith(problem.meta["question"])
    assert task.grade(problem, f"It is so.\nAnswer: {problem.answer}").score == 1.0
    with pytest.raises(ValueError, match="there is no template 'maths'"):
        get_task(f"{many(tmp_path)}?template=maths")
    with pytest.raises(ValueError, match="shots replace the prompt template"):
        get_task(f"{many(tmp_path)}?template=math&shots=2")


def test_rows_with_shots(tmp_path: Path) -> None:
    task = get_task(f"{many(tmp_path)}?shots=2&max_tokens=16")
    train, heldout = task.problems("train", None), task.problems("heldout", None)
    prompt = str(train[0].prompt)
    assert prompt.count("Question: ") == 3
    assert prompt.endswith(f"Question: {train[0].meta['question']}\nAnswer:")
    shots = prompt.split("\n\n")[:2]
    assert all(not str(p.prompt).rsplit("\n\n", 1)[1].startswith(shots[0].split("\n")[0]) for p in train + heldout)
    assert len(train) + len(heldout) == 198  # what is shown is not asked
    assert task.max_tokens == 16
    gold = train[0].answer
    right, wrong = task.grade_batch(train[:1] * 2, [f" {gold}\n\nQuestion: x\nAnswer: 0", f" 0\n\nAnswer: {gold}"])
    assert (right.score, wrong.score) == (1.0, 0.0)


def test_shots_that_show_a_working(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"question": f"What is {n}+1?", "answer": n + 1} for n in range(60)]
    for row in rows[::5]:
        row["steps"] = f"{row['answer'] - 1} + 1 =\n{row['answer']}."
    path = write_rows(tmp_path / "worked.jsonl", rows)
    task = get_task(f"{path}?shots=3&working=steps")
    train = task.problems("train", None)
    shown = str(train[0].prompt).split("\n\n")[:-1]
    assert len(shown) == 3
    for block in shown:
        question, line = block.split("\n")
        number = int(question.removeprefix("Question: What is ").removesuffix("+1?"))
        assert number % 5 == 0  # the others have no working to show
        assert line == f"Answer: {number} + 1 = {number + 1}. The answer is {number + 1}."
        assert question.removeprefix("Question: ") not in {problem.meta["question"] for problem in train}
    gold = train[0].answer
    # (completion, score): the last "The answer is" of the first line counts, and nothing else does
    cases = [
        (f" 3 + 1 = 4. The answer is {gold}.\n\nQuestion: x\nAnswer: 1. The answer is 0.", 1.0),
        (f" The answer is 0. The answer is {gold}", 1.0),
        (f" {gold}", 0.0),
        (f" The answer is {gold}. The answer is", 0.0),
        (f" 3 + 1 = 4.\nThe answer is {gold}.", 0.0),
    ]
    verdicts = task.grade_batch(train[:1] * len(cases), [text for text, _ in cases])
    assert [verdict.score for verdict in verdicts] == [score for _, score in cases]
    with pytest.raises(ValueError, match="the working is shown in shots"):
        get_task(f"{path}?working=steps")
    with pytest.raises(ValueError, match="only 0 training problems have a working, too few for 3 shots"):
        get_task(f"{path}?shots=3&working=stepz")


def test_a_response_to_shots_is_one_line(tmp_path: Path) -> None:
    path = many(tmp_path)
    assert [get_task(f"{path}{query}").one_line for query in ("", "?chat=true", "?shots=2")] == [False, False, True]
    assert not get_task("phrased-sums").one_line


def test_what_is_held_out_elsewhere_is_not_trained_on(tmp_path: Path) -> None:
    other = write_rows(
        tmp_path / "test.jsonl", [{"question": f"What is {n}+1?", "answer": n + 1} for n in range(190, 220)]
    )
    task = get_task(f"{many(tmp_path)}?heldout={other}")
    asked = {p.meta["question"] for p in task.problems("heldout", None)}
    assert asked == {f"What is {n}+1?" for n in range(190, 220)}
    assert {p.meta["question"] for p in task.problems("train", None)} == {f"What is {n}+1?" for n in range(190)}


def test_files_and_folders_that_hold_no_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    with pytest.raises(FileNotFoundError, match=r"out: the folder has no .jsonl, .* file"):
        get_task("out")
    (tmp_path / "out" / "p.jsonl").write_text('{"question": "1", "answer": "1"}\n')
    for spec, meant in (
        ("out/p.jsnl", "out/p.jsonl"),
        ("out/p.jsonl&shots=1", r"out/p.jsonl\?shots=1"),
        ("p.jsonl&x=1", r"p.jsonl\?x=1"),
    ):
        with pytest.raises(FileNotFoundError, match=f"did you mean '{meant}'"):
            get_task(spec)
    for place, content in (("torn", gzip.compress(b"x" * 99)[:20]), ("plain", b"{}")):
        (tmp_path / f"{place}.jsonl.gz").write_bytes(content)
        with pytest.raises(ValueError, match=f"{place}.jsonl.gz is not a whole gzip file"):
            get_task(f"{place}.jsonl.gz")
    (tmp_path / "table.jsonl").write_text("question,answer\n1,1\n")
    with pytest.raises(ValueError, match=r"table.jsonl, line 1: not JSON .*; it looks like CSV"):
        get_task("table.jsonl")
    (tmp_path / "null.jsonl").write_text('{"question": "1", "answer": null}\n')
    with pytest.raises(ValueError, match=r"null.jsonl, line 1: its answer is null \(answer\)"):
        get_task("null.jsonl")
    (tmp_path / "marked.jsonl").write_bytes(b"\xef\xbb\xbf" + b'{"question": "1", "answer": "1"}\n' * 20)
    assert load_problems("marked.jsonl", limit=1)[0].answer == "1"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("phrased-sum", "there is no task 'phrased-sum'; did you mean 'phrased-sums'?"),
        ("phrased-sums?adends=3", "phrased-sums has no setting 'adends'; did you mean 'addends'. .it has: addends"),
        ("phrased-sums?addends", "key=value pairs"),
        ("", "'' names no file and no data set"),
        ("https://example.org/p.jsonl", "https://example.org/p.jsonl: addresses are not read: download the file"),
        ("x.jsonl?chat=maybe", "chat=maybe: give true or false"),
        ("x.jsonl?sots=3", "there is no setting sots; did you mean 'shots'. .rows have schema"),
        ("x.jsonl?answer=", "x.jsonl.answer=: answer has no value: give one, or leave it out"),
        ("x.jsonl?max_tokens=0", "max_tokens=0: give a whole number, 1 or more"),
        ("x.jsonl?part=test", "x.jsonl.part=test: a file is read whole; leave part out, or name the file"),
        ("x.jsonl?subset=main&heldout=y.jsonl", "a file is read whole; leave subset out"),
    ],
)
def test_a_misspelt_task_is_refused(spec: str, message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        get_task(spec)


def test_settings_of_a_built_in_task() -> None:
    task = get_task("phrased-sums?addends=2&carries=last")
    (problem,) = task.problems("train", 1)
    assert problem.id.startswith("phrased-sums?addends=2&carries=last/")
    assert len(problem.meta["addends"]) == 2


DATA = os.environ.get("DELTA_RLVR_DATA")


@pytest.mark.skipif(DATA is None, reason="DELTA_RLVR_DATA names no folder of real problem sets")
@pytest.mark.parametrize(
    ("file", "schema", "count"),
    [
        ("math/aime24.jsonl", "plain", 30),
        ("math/aime25.jsonl", "plain", 30),
        ("math/hmmt25_feb.jsonl", "plain", 30),
        ("math/math500.jsonl", "math500", 500),
        ("math/gsm8k_train.jsonl", "gsm8k", 7473),
        ("math/gsm8k_test.jsonl", "gsm8k", 1319),
        ("word/asdiv.jsonl", "asdiv", 2215),
        ("word/svamp.jsonl", "svamp", 1000),
        ("word/mawps.jsonl", "mawps", 2065),
    ],
)
def test_real_sets(file: str, schema: str, count: int) -> None:
    problems = load_problems(Path(str(DATA)) / file, schema=schema)
    assert len(problems) == count
    assert max(Counter(problem.id for problem in problems).values()) == 1


def test_files_of_a_data_folder_and_the_brief_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As evidence/protocols/qwen-gsm8k.yaml names them: no folder of one machine stands in the task's name."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data" / "math"
    folder.mkdir(parents=True)
    for name, answer in (("gsm8k_train", 72), ("gsm8k_test", 10)):
        row = {"question": f"What is {answer}?", "answer": f"It is itself.\n#### {answer}"}
        write_rows(folder / f"{name}.jsonl", [row])
    (spec,) = yaml.safe_load((PROTOCOLS / "qwen-gsm8k.yaml").read_text())["tasks"]
    with pytest.raises(FileNotFoundError, match="DELTA_RLVR_DATA"):
        get_task(spec)
    monkeypatch.setenv("DELTA_RLVR_DATA", str(tmp_path / "data"))
    task = get_task(spec)
    (problem,) = task.problems("train", 1)
    assert problem.prompt == [
        {"role": "user", "content": "What is 72?\n\nThink step by step, briefly. End with 'The answer is N.'"}
    ]
    assert [one.answer for one in task.problems("heldout", 1)] == ["10"]
    assert task.max_tokens == 300
    assert not task.one_line
    assert task.grade(problem, "36 x 2 = 72. The answer is 72.").score == 1.0
    assert task.grade(problem, "72 was asked. The answer is 36.").score == 0.0


ROWS = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(3)]


def written(path: Path) -> Path:
    if path.suffix == ".parquet":
        pytest.importorskip("pandas").DataFrame(ROWS).to_parquet(path)
    elif path.suffix == ".csv":
        lines = [f'"{row["question"]}",{row["answer"]}' for row in ROWS]
        path.write_text("\n".join(["\ufeffquestion,answer", *lines]) + "\n", encoding="utf-8")
    elif path.name == "lines.json":
        write_rows(path, ROWS)
    else:
        path.write_text(json.dumps({"data": ROWS} if path.name == "nested.json" else ROWS))
    return path


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.json", "lines.json", "nested.json"])
def test_files_of_rows_of_every_kind(tmp_path, name):
    problems = load_problems(written(tmp_path / name), graded=False)
    assert [problem.answer for problem in problems] == ["0", "2", "4"]
    assert problems[1].prompt == "What is 1 + 1?"
    assert problems[0].meta["row"] == ROWS[0]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.json", "[1]", "row 0: expected an object"),
        ("x.json", "[{]", "not JSON"),
        ("x.json", '{"a": 1}', "give a list of objects"),
        ("x.csv", "question,answer\na,b,c\n", "line 2: the number of fields differs from the heading .2."),
        ("x.csv", "question,answer\na\n", "line 2: the number of fields differs"),
        ("x.csv", "question;answer\na, b and c;6\n", "x.csv: its columns are separated by semicolons"),
        ("x.csv", "question\tanswer\na\t6\n", "x.csv: its columns are separated by tabs"),
        ("x.parquet", "no", "is not a Parquet file"),
        ("x.txt", "q", "x.txt is not a file of rows: give one that ends in .jsonl"),
    ],
)
def test_files_that_hold_no_rows_are_refused_at_once(tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=words):
        get_task(str(tmp_path / name))


def test_multiple_choice_from_a_file(tmp_path):
    """`--template choice` was offered for files, and refused every one of them."""
    rows = [
        {"question": "Which is a city?", "options": ["Rome", "blue"], "answer": "A"},
        {"question": "Which is a colour?", "options": ["Rome", "blue"], "answer": "blue"},
    ]
    write_rows(tmp_path / "x.jsonl", rows)
    (tmp_path / "x.csv").write_text('question,options,answer\nWhich?,"[""Rome"", ""blue""]",B\n')
    city, colour = load_problems(tmp_path / "x.jsonl", template=CHOICE)
    assert city.prompt.startswith("Which is a city?\n\n(A) Rome\n(B) blue\n\n")
    assert (city.answer, colour.answer, city.grader) == ("A", "B", "choice")
    assert [grade_problem(colour, text).score for text in (r"\boxed{B}", r"\boxed{A}")] == [1.0, 0.0]
    assert load_problems(tmp_path / "x.csv", template=CHOICE)[0].answer == "B"
    labelled = [{"label": "A", "text": "Rome"}, {"label": "B", "text": "blue"}]
    write_rows(tmp_path / "z.jsonl", [rows[0] | {"options": labelled}, rows[1] | {"options": [1.0, 2], "answer": 2}])
    first, second = load_problems(tmp_path / "z.jsonl", template=CHOICE)
    assert first.prompt == city.prompt
    assert "(A) 1\n(B) 2\n" in second.prompt
    assert second.answer == "B"
    for wrong, words in (
        ({"options": ["Rome"]}, "a list of 2 to 10 texts"),
        ({"answer": "C"}, "its answer is 'C'"),
        # These went into the prompt as Python writes them.
        ({"options": labelled[::-1]}, "the labels of its options are not A, B, in this order"),
        ({"options": [{"label": "A", "text": ["x"]}, labelled[1]]}, r"its option \['x'\] is not a text"),
        *(({"options": ["Rome", other]}, "its option .* is not a text") for other in (["x"], None, "", " ", {}, True)),
    ):
        write_rows(tmp_path / "y.jsonl", [rows[0] | wrong])
        with pytest.raises(ValueError, match=f"line 1: .*{words}"):
            load_problems(tmp_path / "y.jsonl", template=CHOICE)


def test_options_that_no_prompt_shows_are_told(tmp_path):
    """A letter was graded as mathematics, and the model never saw the options."""
    file = write_rows(
        tmp_path / "mc.jsonl", [{"question": f"Which {n}?", "options": ["a", "b"], "answer": "B"} for n in range(20)]
    )
    with pytest.warns(UserWarning, match="have the column options, .* --template choice shows them"):
        get_task(str(file))
    with pytest.warns(
        UserWarning, match=r"--template choice shows them, as --benchmarks '\S*task:\S*mc.jsonl\?template=choice'"
    ):
        load_benchmark(str(file))
    with warnings.catch_warnings(action="error"):
        get_task(f"{file}?template=choice")
        get_task(f"{file}?template=math")
        load_benchmark(f"task:{file}?template=choice")
    with pytest.raises(
        EvaluationError, match=r"graded as math.* is for choice: use benchmarks='task:\S*mc.jsonl\?template=choice'"
    ):
        load_benchmark(str(file), template="choice")


def test_a_template_for_programs_is_refused_for_mathematics(tmp_path, capsys):
    """A run ended in its first step: "extract='code_block' is not known"."""
    file = write_rows(tmp_path / "p.jsonl", [{"question": "1+1?", "answer": "2"}])
    for check in (check_rows, get_task):
        with pytest.raises(ValueError, match="is graded as math, but the template code is for code"):
            check(f"{file}?template=code")
    words = ["train", "--task", str(file), "--template", "code", "--output", str(tmp_path / "run")]
    assert main(words) == 2
    assert "is graded as math, but the template code is for code" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["./mine/set", "data/set.txt", "a/b/c", "/none/set", "~/none"])
def test_a_path_that_is_not_there_is_not_looked_up_on_the_hub(name, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: pytest.fail("asked the hub"))
    with pytest.raises(FileNotFoundError, match="there is no such file or folder"):
        get_task(name)


def test_a_hub_that_does_not_answer_is_one_line(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def fails(*_args, **_options):
        raise ConnectionError("Couldn't reach the Hub\nafter 5 tries")

    monkeypatch.setattr(datasets, "load_dataset", fails)
    monkeypatch.setattr(hub, "hub_answers", lambda: False)
    with pytest.raises(
        ValueError,
        match=r"^a/b: the data set could not be loaded .*: it is not in the cache, and huggingface.co does not answer$",
    ):
        get_task("a/b")


def test_a_prompt_of_ones_own(tmp_path):
    path = written(tmp_path / "x.json")
    task = get_task(f"{path}?template_text=Q%3A+{{question}}+Put+{{it}}+in+%5Cboxed{{}}.")
    problem = (*task.train, *task.heldout)[0]
    assert re.fullmatch(r"Q: What is \d \+ \d\? Put \{it\} in \\boxed\{\}\.", problem.prompt)
    assert problem.meta["extract"] == "boxed"
    spec = f"{path}?template_text={{question}}%3D&extract=last_number"
    assert (*get_task(spec).train,)[0].meta["extract"] == "last_number"
    for query, words in {
        "template_text=no+place": "has no place for the question",
        "template_text={question}%3D": "does not say where the answer stands",
        "template_text={question}%3D&extract=nowhere": "extract='nowhere' is not known",
        "template_text={question}&template=math": "give template or template_text, not both",
        "extract=boxed": "extract goes with template_text",
        "template_text={question}&shots=1": "shots replace the prompt template; leave template_text out",
    }.items():
        with pytest.raises(ValueError, match=words):
            get_task(f"{path}?{query}")


def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path):
    """A bare codec error named neither the file nor the line."""
    for name, text in (
        ("a.csv", "question,answer\nA?,1\ncaf\xe9?,2\n"),
        ("a.jsonl", '{"question": "A?", "answer": "1"}\n\n"caf\xe9"\n'),
    ):
        (tmp_path / name).write_bytes(text.encode("latin-1"))
        with pytest.raises(ValueError, match=rf"{name}, line 3: not UTF-8 .*save the file as UTF-8"):
            load_problems(tmp_path / name)


def test_half_a_character_is_named_with_its_line(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"question": "A?", "answer": "1"}\n{"question": "b \\ud800?", "answer": "1"}\n')
    with pytest.raises(
        ValueError, match=r"a.jsonl, line 2: its question contains \\ud800, which is half of a character"
    ):
        load_problems(tmp_path / "a.jsonl")


def test_rows_that_are_all_held_out_are_said_in_plain_words():
    """60 identical questions: "0 problems to train on, too few for 0 shots and training"."""
    questions = (f"Sum {number}?" for number in range(100))
    held = next(one for one in questions if hashed_split(question_hash(one)) == "heldout")
    rows = [Problem(f"x/{number}", held, "1", "math", {"question": held}) for number in range(60)]
    with pytest.raises(ValueError, match="no problem to train on: its 60 rows have 1 different question, and all"):
        ProblemSet.split("x", rows)
