"""The command on files as engines write them, and the audit's tables and page."""

from __future__ import annotations

import gzip
import json
import re

import pytest

import rlvr_graders
from rlvr_graders.answer_files import Answer, FileError, extract_of, read_answers
from rlvr_graders.audit import EXACT, OURS, RUN, THEIRS, audit, kind_of
from rlvr_graders.cli import main

ROWS = [
    ("half", r"\boxed{\frac{1}{2}}", "0.5", 1),
    ("half", r"\boxed{0.5}", "0.5", 1),
    ("half", r"\boxed{0.6}", "0.5", 0),
    ("five", r"\boxed{5, 6}", "5", 0),
    ("five", "so 5 it is", "5", 1),
    ("set", r"\boxed{x > 2}", r"(2,\infty)", 0),
    ("odd", r"\boxed{<b onclick='alert(1)'>9</b>}", "9", 0),
]


def written(path, rows=ROWS, names=("prompt", "completion", "answer", "reward")):
    lines = "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines.encode()))
    else:
        path.write_text(lines)
    return path


@pytest.mark.parametrize("names", [("input", "output", "gts", "score"), ("prompt", "response", "answer", "reward")])
def test_files_of_engines_are_read(tmp_path, names):
    rollouts = tmp_path / "run" / "rollouts"
    rollouts.mkdir(parents=True)
    written(rollouts / "step_000001.jsonl.gz", names=names)
    written(rollouts / "step_000002.jsonl.gz", ROWS[:1], names=names)
    rows = read_answers(tmp_path / "run")
    assert [(row.group, row.completion, row.answer, row.reward) for row in rows] == [*ROWS, ROWS[0]]
    assert rows[-1].where == "step_000002.jsonl.gz:1"


@pytest.mark.parametrize("command", ["grade", "audit"])
def test_the_help_names_every_column_that_is_read(capsys, command):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "The column prompt (or input, problem, question) is optional" in said


def test_what_cannot_be_read_is_named(tmp_path, capsys):
    with pytest.raises(FileError, match=r"has no completion or completions or .* name its column with --completion"):
        read_answers(written(tmp_path / "a.jsonl", names=("p", "text", "answer", "r")))
    assert len(read_answers(tmp_path / "a.jsonl", completion="text")) == len(ROWS)
    (tmp_path / "b.jsonl").write_text('{"completion": "x"\n')
    assert main(["grade", str(tmp_path / "b.jsonl")]) == 2
    assert "b.jsonl:1: not JSON" in capsys.readouterr().err
    (tmp_path / "latin.jsonl").write_bytes('{"completion": "x"}\n{"completion": "Ö"}\n'.encode("latin-1"))
    assert main(["grade", str(tmp_path / "latin.jsonl"), "--answer", "completion"]) == 2
    assert "latin.jsonl, line 2: not UTF-8" in capsys.readouterr().err
    assert main(["grade", str(tmp_path / "missing.jsonl")]) == 2


@pytest.mark.parametrize(
    ("grader", "row", "words"),
    [
        ("math", '{"response": "x", "answer": "1", "answer": "2"}', r"'answer' comes twice"),
        ("math", '{"x": ' + "[" * 5000 + "]" * 5000 + "}", "nested more than 100 deep"),
        ("math", '{"x": ' + "9" * 5000 + "}", "a number has more digits than Python reads"),
        ("math", '{"response": null, "answer": "1"}', r"its completion is null \(response\)"),
        ("math", '{"response": "x", "answer": ["3", "4"]}', "its answer is a list: pass the reference"),
        ("exact", '{"response": "x", "answer": true}', "its answer is a bool"),
        ("choice", '{"response": "x", "answer": "ABC"}', "answer='ABC' is not one letter"),
        ("code", '{"response": "x", "answer": "no"}', "tests are a text that is not JSON"),
    ],
)
def test_a_bad_row_is_named(tmp_path, capsys, grader, row, words):
    good = {"response": "x", "answer": "[]" if grader == "code" else "A"}
    if grader == "code":
        good["answer"] = {"fn_name": "f", "inputs": [[1]], "outputs": [2]}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(good)}\n\n{row}\n")
    assert main(["grade", str(tmp_path / "a.jsonl"), "--grader", grader]) == 2
    assert re.search(rf"a.jsonl:3: .*{words}", capsys.readouterr().err)


def test_columns_of_one_name_are_refused(tmp_path, capsys):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.Table.from_arrays([pyarrow.array(["A"])] * 3, names=["response", "answer", "answer"])
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "x.parquet")
    assert main(["grade", str(tmp_path / "x.parquet")]) == 2
    assert "x.parquet: 'answer' comes twice" in capsys.readouterr().err


def test_math_verify_is_asked_for_before_the_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    (tmp_path / "a.jsonl").write_text('{"response": "1", "answer": "1"}\n')
    for command in (["grade", "--grader", "math-verify"], ["audit"]):
        assert main([command[0], str(tmp_path / "a.jsonl"), *command[1:]]) == 2
        assert "math-verify is not installed: pip install" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["grade", "--output"], ["audit", "--without-math-verify", "--html"]])
def test_only_files_of_its_own_are_written_over(tmp_path, capsys, command):
    file, mine, ours = written(tmp_path / "answers.jsonl"), tmp_path / "notes.md", tmp_path / "ours"
    mine.write_text("my notes")
    before = file.read_bytes()
    for target in (file, mine):
        assert main([*command, str(target), str(file)]) == 2
        assert f"{target} is there already, and is no result of rlvr-graders" in capsys.readouterr().err
    assert (file.read_bytes(), mine.read_text()) == (before, "my notes")
    for _ in range(2):
        assert main([*command, str(ours), str(file)]) == 0
    capsys.readouterr()
    assert main([*command, str(tmp_path / "no" / "such" / "folder"), str(file)]) == 2
    assert capsys.readouterr().err.endswith("folder: No such file or directory\n")


def test_a_file_of_verdicts_is_not_its_own_input(tmp_path, capsys):
    verdicts = tmp_path / "verdicts.jsonl"
    assert main(["grade", str(written(tmp_path / "a.jsonl")), "--output", str(verdicts)]) == 0
    before = verdicts.read_bytes()
    assert main(["grade", str(verdicts), "--completion", "reason", "--answer", "where", "--output", str(verdicts)]) == 2
    assert verdicts.read_bytes() == before


def test_gzip_files_that_are_none_or_break_off_and_a_byte_order_mark(tmp_path, capsys):
    whole = written(tmp_path / "a.jsonl.gz").read_bytes()
    for content in (b'{"completion": "x"}', whole[: len(whole) // 2]):
        (tmp_path / "b.jsonl.gz").write_bytes(content)
        assert main(["grade", str(tmp_path / "b.jsonl.gz")]) == 2
        assert "b.jsonl.gz is not a whole gzip file (" in capsys.readouterr().err
    marked = tmp_path / "marked.jsonl"
    marked.write_bytes(b"\xef\xbb\xbf" + written(tmp_path / "a.jsonl").read_bytes())
    assert len(read_answers(marked)) == len(ROWS)


def test_grade(tmp_path, capsys):
    file = written(tmp_path / "answers.jsonl")
    assert main(["grade", str(file), "--output", str(tmp_path / "out.jsonl")]) == 0
    verdicts = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [verdict["score"] for verdict in verdicts] == [1, 1, 0, 0, 0, 1, 0]
    assert verdicts[4]["reason"] == "no final answer"
    assert "3 of 7 right" in capsys.readouterr().err
    tests = {"fn_name": "f", "inputs": [[1]], "outputs": [2]}
    programs = [("p", "def f(x):\n    return x + 1", tests, 1), ("p", "def f(x):\n    return x", tests, 0)]
    assert main(["grade", str(written(tmp_path / "code.jsonl", programs)), "--grader", "code"]) == 0
    assert [json.loads(line)["score"] for line in capsys.readouterr().out.splitlines()] == [1, 0]


def test_the_audit_counts_who_would_have_paid(tmp_path):
    pytest.importorskip("math_verify")
    result = audit(read_answers(written(tmp_path / "run.jsonl")))
    assert result.graders == [OURS, THEIRS, EXACT, RUN]
    scores = {name: [each.score(name) for each in result.judged] for name in result.graders}
    assert scores[OURS] == [1, 1, 0, 0, 0, 1, 0]
    assert scores[EXACT] == [0, 1, 0, 0, 0, 0, 0]
    against_exact = {key: len(rows) for key, rows in result.disagreements(OURS, EXACT).items()}
    assert against_exact == {(OURS, "fraction"): 1, (OURS, "set, interval or inequality"): 1}
    # Every response on which two graders differ is counted once, and belongs to one group.
    for first, second in result.pairs():
        differing = sum(a != b for a, b in zip(scores[first], scores[second], strict=True))
        assert sum(map(len, result.disagreements(first, second).values())) == differing
    # The half's first response; the set has one response, whose advantage is 0 under either.
    assert result.changed_groups(OURS, EXACT) == 1
    assert (RUN, "no answer found by rlvr-graders") in result.disagreements(OURS, RUN)


def test_the_audits_page_shows_text_as_text(tmp_path, capsys):
    file, page = written(tmp_path / "run.jsonl"), tmp_path / "audit.html"
    assert main(["audit", str(file), "--html", str(page), "--without-math-verify"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"rlvr-graders +0\.4286", shown)
    text = page.read_text()
    assert "default-src 'none'" in text
    assert "<b onclick" not in text
    assert "<script" not in text
    # Exact match refuses rows 1 and 6 of ROWS; the run paid for row 5, where no answer stands, and not for row 6.
    against_exact = "Of 7 responses, exact match refuses 2 that rlvr-graders pays and pays 0 that rlvr-graders refuses."
    against_run = "Of 7 responses, the run refuses 1 that rlvr-graders pays and pays 1 that rlvr-graders refuses."
    assert shown.startswith(against_exact)
    assert against_run in shown
    assert text.index(against_exact) < text.index("mean reward")


def test_the_audit_says_where_answers_stand(tmp_path, capsys):
    """ "exact match and rlvr-graders agree on every response", it began, where neither found one answer."""
    rows = [("p", f"Answer: {n}", str(n), 1) for n in range(4)]
    file = str(written(tmp_path / "run.jsonl", rows))
    assert main(["audit", file, "--without-math-verify"]) == 2
    told = capsys.readouterr()
    assert "0 of 4 responses have an answer for --extract boxed, 4 for --extract answer_line" in told.err
    assert told.out == ""
    assert main(["grade", file]) == 2
    assert "4 for --extract answer_line" in capsys.readouterr().err
    assert main(["grade", file, "--extract", "boxed"]) == 0
    assert "4 for --extract answer_line\n0 of 4 right" in capsys.readouterr().err
    assert main(["audit", file, "--without-math-verify", "--extract", "answer_line"]) == 0
    assert capsys.readouterr().out.startswith("exact match and rlvr-graders agree")
    # One answer where it was looked for is little: that comes first.
    written(tmp_path / "run.jsonl", [*rows, ROWS[1]])
    assert main(["audit", file, "--without-math-verify"]) == 0
    assert capsys.readouterr().out.startswith(
        "1 of 5 responses have an answer for --extract boxed, 5 for --extract boxed_or_line\n\n"
    )


@pytest.mark.parametrize(
    ("settings", "extract"),
    [
        ({"extract": "answer_line", "task": "mine.jsonl"}, "answer_line"),
        ({"extract": None, "task": "mine.jsonl?template_text=%7Bquestion%7D&extract=hash_line"}, "hash_line"),
        ({"task": "phrased-sums"}, None),
        ({"extract": "code_block"}, None),
    ],
)
def test_a_run_says_where_its_answers_stand(tmp_path, settings, extract):
    (tmp_path / "run.json").write_text(json.dumps({"settings": settings}))
    assert extract_of(tmp_path) == extract
    assert extract_of(tmp_path / "run.json") is None


def test_rows_without_a_prompt(tmp_path, capsys):
    """Seven answers counted as six prompts, four of them with changed advantages: a lone response has none."""
    rows = [
        ({"completion": text, "answer": answer}) for text, answer in ((r"\boxed{1/2}", "0.5"), (r"\boxed{3.}", "3"))
    ]
    file = tmp_path / "answers.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["audit", str(file), "--without-math-verify"]) == 0
    told = capsys.readouterr().out
    assert (
        "2 responses. The rows name no prompt: they are grouped by their reference answers, of which there are 2."
        in told
    )
    assert (
        "refuses 2 that rlvr-graders pays and pays 0 that rlvr-graders refuses. The advantages of 0 prompts change."
        in told
    )


def test_help_names_the_columns(capsys):
    with pytest.raises(SystemExit):
        main(["grade", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "(default: the first of completion, completions, response, output, solution_str, prediction)" in told
    assert "(default: the first of answer, ground_truth, gts," in told
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert re.fullmatch(r"rlvr-graders \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_the_package_shows_its_names_alone():
    assert dir(rlvr_graders) == sorted(rlvr_graders.__all__)


def test_a_thousands_separator_is_no_list():
    (row,) = audit([Answer("1", r"\boxed{100{,}000}", "100000", None, "p")], with_math_verify=False).judged
    assert kind_of(row, OURS, EXACT) == "thousands separator"
