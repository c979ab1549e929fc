"""scripts/trl_suite.py: what it keeps, what it runs again, and what it counts. (Its run of TRL's tests takes many minutes.)"""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from delta_rlvr.user_code import module_at

SCRIPT = Path(__file__).parents[3] / "scripts" / "trl_suite.py"

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_grpo_trainer.TestGRPOTrainer" name="test_train"/>
<testcase classname="tests.test_grpo_trainer.TestGRPOTrainer" name="test_images"><failure message="no such model"/></testcase>
<testcase classname="tests.test_grpo_trainer.TestGRPOTrainer" name="test_tools">{tools}</testcase>
<testcase classname="tests.test_grpo_trainer.TestGRPOTrainer" name="test_liger"><skipped type="pytest.skip"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """Runs the script; `pytest` is played by a function that writes what it would have written. `ran` names what was run."""
    script = module_at(str(SCRIPT))
    monkeypatch.setitem(sys.modules, "trl_stand_ins", SimpleNamespace(make_stand_ins=lambda *_: None))
    tests = tmp_path / "tests"
    tests.mkdir()
    for name in ("test_grpo_trainer.py", "qwen.tiktoken"):
        (tests / name).touch()
    ran, status, tools = [], {}, {}

    def play(command, env, **_):
        method = env["TRL_SUITE_METHOD"]
        ran.append(method)
        (place,) = [part.removeprefix("--junitxml=") for part in command if part.startswith("--junitxml=")]
        Path(place).write_text(REPORT.format(tools=tools.get(method, "")))
        digests = {"test_train": ["a", "b"], "test_tools": ["c" if method == "stock" else "d"]}
        with open(env["TRL_SUITE_WEIGHTS"], "w") as file:
            for test, ended in digests.items():
                file.writelines(json.dumps([test, digest]) + "\n" for digest in ended)
        return SimpleNamespace(returncode=status.get(method, 1))

    def start(*more):
        arguments = ["--trl-tests", tests, "--vocabulary", tests / "qwen.tiktoken", "--folder", tmp_path / "out"]
        monkeypatch.setattr(sys, "argv", ["trl_suite.py", *map(str, arguments), "--method", "dapo", *more])
        return script.main()

    monkeypatch.setattr(subprocess, "run", play)
    return SimpleNamespace(start=start, ran=ran, status=status, tools=tools)


def test_an_interrupted_run_of_stock_is_not_kept(suite):
    """pytest writes its report then too, with the tests that it came to."""
    suite.status["stock"] = 2
    with pytest.raises(SystemExit, match=r"exit code 2.*stock\.log"):
        suite.start()
    suite.status["stock"] = 1
    assert suite.start() == 0
    assert suite.ran == ["stock", "stock", "dapo"]


def test_stock_runs_again_for_other_tests_alone(suite):
    suite.start()
    suite.start()
    suite.start("--", "-k", "tools")
    assert suite.ran == ["stock", "dapo", "dapo", "stock", "dapo"]


def test_counts_and_what_fails_with_ours_alone(suite, capsys):
    suite.tools["dapo"] = '<failure message="ValueError: refused&#10;and so on"/>'
    assert suite.start() == 1
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "stock: 1 failed, 2 passed, 1 skipped",
        "dapo: 2 failed, 1 passed, 1 skipped",
        "  fails with ours alone: TestGRPOTrainer::test_tools: ValueError: refused",
        "tests whose trainings end in the same weights, bit for bit: 1 of 2",
    ]
