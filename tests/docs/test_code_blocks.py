"""The Python blocks of README and docs run, page by page, and give what their comments say."""

import ast
import difflib
import re
import tomllib

import pytest

from delta_rlvr.models import load_policy
from delta_rlvr.runs import RunDescription, RunWriter
from delta_rlvr.tasks import get_task
from delta_rlvr.testing import check_rule
from pages import PAGES, ROOT, blocks, name_of
from rlvr_graders import Verdict

RUN_ELSEWHERE = {"docs/training.md": "tests/commands/test_training_page.py runs its settings and its script"}
BLOCKS = {name_of(page): list(blocks(page)) for page in PAGES}
PYTHON = [
    page
    for page, found in BLOCKS.items()
    if page not in RUN_ELSEWHERE and any(block.language == "python" for block in found)
]


def policy():
    task = get_task("phrased-sums")
    model, tokenizer = load_policy()
    return {"model": model, "tokenizer": tokenizer, "task": task, "problems": task.problems("heldout", 3)}


def kept_run():
    description = RunDescription(engine="trl", method="delta", seed=0, model="mine", task="mine")
    with RunWriter.create("runs/mine", description) as writer:
        for step, reward in ((1, 0.25), (2, 0.5)):
            writer.log({"step": step, "reward": reward})
    return {}


# What a page takes as given: names, or files in the folder that it is read in.
GIVEN = {
    "docs/evaluation.md": policy,
    "docs/report.md": kept_run,
    "docs/tasks.md": lambda: {"completions": [r"\boxed{3}", "none"], "answers": [3, 4]},
}


@pytest.mark.parametrize("page", PYTHON)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "a_page", **GIVEN.get(page, dict)()}
    for block in BLOCKS[page]:
        if block.language == "python":
            run(block, names)
    for name, value in list(names.items()):
        if name.startswith("test_"):
            value()
    said = capsys.readouterr().out
    assert LOOK_CLOSER.get(page, lambda names, said: True)(names, said)


def run(block, names):
    """Run a block statement by statement; a value with a comment behind or below it must be what the comment says."""
    lines = block.code.splitlines()
    for statement in ast.parse(block.code).body:
        if not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), f"{block.page}:{block.line}", "exec"), names)
            continue
        value = eval(compile(ast.Expression(statement.value), f"{block.page}:{block.line}", "eval"), names)
        end = statement.end_lineno
        below = lines[end] if end < len(lines) else ""
        for comment in (lines[end - 1][statement.end_col_offset :], below if below.startswith("#") else ""):
            compare(value, comment.strip().removeprefix("#").strip())


def compare(value, comment):
    if verdict := re.match(r"score (\S+), reason '([^']*)'", comment):
        assert (value.score, value.reason) == (float(verdict.group(1)), verdict.group(2))
    elif comment.startswith(("[", "Verdict(")):
        assert value == eval(comment, {"Verdict": Verdict})


def one_mean(names, said):
    return said == "tensor(1.)\n" or abs(float(re.search(r"[\d.]+", said).group()) - 1) < 1e-4


def first_hour(names, said):
    """The reward by hand: right, 7 beside it, far away, no number, and a number with a thousand digits."""
    texts = ["so 120.", "so 113.", "so 500.", "none", "9" * 1000]
    assert names["last_number"](texts, ["120"] * 5) == [1.0, 0.5, 0.0, 0.0, 0.0]
    with open("problems.jsonl") as file:
        assert len(file.readlines()) == 400
    return bool(check_rule(names["Unlikely"]()))


LOOK_CLOSER = {
    "README.md": one_mean,
    "docs/first_hour.md": first_hour,
    "docs/report.md": lambda names, said: said == "reward 0.25 -> 0.50 at step 2\n",
    "docs/tasks.md": lambda names, said: names["asked"].prompt[0] == names["system"],
    "docs/own_rule.md": lambda names, said: check_rule(names["LargeStates"]()),
}


@pytest.mark.parametrize("page", [page for page, found in BLOCKS.items() if "diff" in {b.language for b in found}])
def test_a_change_of_a_script(page):
    """What a diff adds imports what exists, and only the lines that it must change are changed."""
    (block,) = [block for block in BLOCKS[page] if block.language == "diff"]
    lines = [line for line in block.code.splitlines() if line.strip()]
    before = [line[1:] for line in lines if line[0] in "- "]
    after = [line[1:] for line in lines if line[0] in "+ "]
    added = [line for line in difflib.ndiff(before, after) if line.startswith("+ ")]
    assert len(added) == sum(line.startswith("+") for line in lines)
    names = {}
    exec(next(line for line in after if line.startswith("from ")), names)
    tree = ast.parse("\n".join(after))
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and hasattr(node.func, "id")}
    assert called <= set(names)


def test_toml_blocks():
    for found in BLOCKS.values():
        for block in found:
            if block.language == "toml":
                assert tomllib.loads(block.code)


def test_no_block_is_left_out():
    """Every block has a language that is tried somewhere, or none."""
    known = {"python", "diff", "toml", "yaml", ""}
    for found in BLOCKS.values():
        for block in found:
            assert block.language in known, f"{block.page}:{block.line}"
            if block.language == "yaml":
                assert block.page in RUN_ELSEWHERE
    for page in RUN_ELSEWHERE:
        assert BLOCKS[page], page
        assert (ROOT / RUN_ELSEWHERE[page].split()[0]).is_file()
