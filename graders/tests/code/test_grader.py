"""grade_code on small problems of our own: every kind of test, every way out, and batches."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import psutil
import pytest

from code_problems import PROBLEMS
from rlvr_graders import grade_code as exported
from rlvr_graders.code import (
    AssertionTests,
    Call,
    CodeReward,
    CodeSettings,
    FunctionTests,
    Run,
    SandboxError,
    StdioTests,
    code_reward,
    grade_code,
    grade_code_batch,
)
from rlvr_graders.code.cases import dump_tests

DOUBLE = FunctionTests("double", (Call((2,), 4), Call((5,), 10)))
RIGHT = "```python\ndef double(x):\n    return 2 * x\n```"
WRONG = "```python\ndef double(x):\n    return x ** 2\n```"


@pytest.mark.parametrize("name", PROBLEMS)
def test_right_programs_pass_and_wrong_ones_fail(name):
    problem = PROBLEMS[name]
    programs = [*problem.right, *problem.wrong]
    verdicts = grade_code_batch([f"```python\n{code}\n```" for code in programs], [problem.tests] * len(programs))
    assert [verdict.score for verdict in verdicts] == [1.0] * len(problem.right) + [0.0] * len(problem.wrong), verdicts
    assert all(verdict.reason == "correct" for verdict in verdicts[: len(problem.right)])


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def double(x):\n    return 2 * x", "correct"),
        ("def double(x):\n    return x ** 2", "wrong answer on test 2 of 2"),
        ("def double(x):\n    return x / 0", "raised ZeroDivisionError: division by zero (test 1 of 2)"),
        ("def double(x):\n    raise exit(0)", "ended before answering: it called exit (test 1 of 2)"),
        ("def double(x)\n    return 2 * x", "does not load: raised SyntaxError"),
        ("def triple(x):\n    return 3 * x", "does not load: raised NameError: the program defines no function double"),
        ("import numpy\ndef double(x):\n    return numpy.int64(2) * x", "correct"),
        ("double = lambda x: 'a' * 10**11", "ran out of memory (test 1 of 2)"),
        ("double = lambda x: 'a' * 10**8", "too much output: more than 16777216 bytes (test 1 of 2)"),
    ],
)
def test_the_reason_says_what_happened(program, reason):
    verdict = grade_code(f"```python\n{program}\n```", DOUBLE)
    assert verdict.reason.startswith(reason)
    assert verdict.score == (reason == "correct")
    assert verdict.answer.strip() == program


def test_reasons_are_one_printable_line():
    program = "def double(x):\n    raise ValueError('\\x1b[2Jred\\u202e\\ud800\\tend')"
    verdict = grade_code(f"```python\n{program}\n```", DOUBLE)
    assert verdict.reason == "raised ValueError: \\x1b[2Jred\\u202e\\ud800\\tend (test 1 of 2)"


def test_no_exception_leaves_the_grader(monkeypatch, caplog):
    """Whatever goes wrong over one sample is its own affair: the batch goes on, and the metrics count it."""
    from rlvr_graders.code import grader

    real = grader.answer_matches

    def breaks(encoded, *rest):
        if encoded == b"i7;":
            raise ZeroDivisionError("of the grader's own")
        return real(encoded, *rest)

    monkeypatch.setattr(grader, "answer_matches", breaks)
    metrics: dict[str, float] = {}
    rewards = code_reward(
        ["p"] * 3, [RIGHT, "def double(x):\n    return 7", RIGHT], tests=[DOUBLE] * 3, log_metric=metrics.__setitem__
    )
    assert rewards == [1.0, 0.0, 1.0]
    verdict = code_reward.last_verdicts[1]
    assert verdict.failed
    assert verdict.reason == "the grader failed: ZeroDivisionError: of the grader's own"
    assert metrics["code_reward/not_graded"] == pytest.approx(1 / 3)
    assert "a program could not be graded" in caplog.text


def test_a_completion_without_code():
    verdict = grade_code("The answer is to double it.", DOUBLE)
    assert (verdict.score, verdict.reason, verdict.answer) == (0.0, "no code", None)


def test_a_prompt_and_its_continuation():
    prompt = 'from math import pi\n\ndef area(r):\n    """Area of a circle.\n    >>> area(0)\n    0.0\n    """\n'
    tests = FunctionTests("area", (Call((2,), 12.566370614359172),), absolute_tolerance=1e-9)
    for completion, score in [
        ("    return pi * r * r\n", 1),
        ("    return pi * r\n", 0),
        ("```python\ndef area(r):\n    return pi * r ** 2\n```", 1),  # the prompt's import still holds
        ("```python\nreturn pi * r ** 2\n```", 1),
        ("Here:\n```python\n    x = r * r\n    return pi * x\n```", 1),
        ("I do not know.", 0),
    ]:
        assert grade_code(completion, tests, prompt=prompt).score == score, completion
    with pytest.raises(ValueError, match="prompt is for tests of a function"):
        grade_code("x", StdioTests((Run("", ""),)), prompt="y")


def test_the_program_only_gets_copies_of_arguments():
    # Emptying the list would make the test's own sum 0, and the answer 0 right.
    cheat = "def total(x):\n    x.clear()\n    return 0"
    tests = AssertionTests("total", source="x = [1, 2]\nassert total(x) == sum(x)\n")
    assert grade_code(cheat, tests).reason.startswith("wrong answer")


def test_exceptions_arrive_as_what_they_are():
    tests = AssertionTests(
        "root",
        source="try:\n    root(-1)\n    raise SystemError('no error')\n"
        "except ValueError as error:\n    assert str(error) == 'negative'\n",
    )
    own = "class Negative(ValueError):\n    pass\ndef root(x):\n    raise Negative('negative')"
    assert grade_code(own, tests).score == 1
    assert grade_code(own.replace("ValueError", "KeyError"), tests).reason == "raised Negative: 'negative'"
    assert grade_code(own.replace("(ValueError)", "(BaseException)"), tests).reason == "raised Negative: negative"


def test_the_stand_in_is_a_function_of_that_name():
    source = "import inspect\nassert inspect.isfunction(f) and f.__name__ == 'f'\nassert f(x=1) == 1\n"
    assert grade_code("def f(x):\n    return x", AssertionTests("f", source)).reason == "correct"


@pytest.mark.parametrize("ending", ["n = input('n: ')", "assert double(2) == 5", "print(double(int(input())))"])
def test_what_a_program_does_behind_its_function_is_not_judged(ending):
    assert grade_code(f"def double(x):\n    return 2 * x\n{ending}", DOUBLE).reason == "correct"
    verdict = grade_code(f"{ending}\ndef double(x):\n    return 2 * x", DOUBLE)
    assert verdict.reason.startswith("does not load")


DRIVERS = {
    "read": "words = sys.stdin.read().split()\nprint(double(int(words[0])))",
    "readline": "count = int(sys.stdin.readline())",
    "open": "print(double(int(open(0).read())))",
    "input": "x, y = map(int, input().split())",
}


@pytest.mark.parametrize("name", DRIVERS)
def test_what_comes_of_missing_input_is_forgiven_behind_the_function(name):
    driver = DRIVERS[name]
    assert grade_code(f"import sys\ndef double(x):\n    return 2 * x\n{driver}", DOUBLE).reason == "correct"
    verdict = grade_code(f"import sys\n{driver}\ndef double(x):\n    return 2 * x", DOUBLE)
    assert verdict.reason.startswith("does not load")
    without = grade_code("def double(x):\n    return 2 * x\nint('')\ninput()", DOUBLE)  # which asked for none
    assert without.reason.startswith("does not load: raised ValueError")


FILES = {
    "own path": "import os\nprint(os.path.basename(__file__))",
    "own source": "import inspect\ndef f():\n    return 1\nprint(len(inspect.getsource(f)) and 'main.py')",
    **{
        method: "import multiprocessing as m\ndef same(x):\n    return x\nif __name__ == '__main__':\n"
        f"    with m.get_context('{method}').Pool(1) as pool:\n        print(*pool.map(same, ['main.py']))"
        for method in ("spawn", "forkserver")
    },
}


@pytest.mark.parametrize("name", FILES)
def test_a_whole_program_is_a_file(name):
    tests = StdioTests((Run("", "main.py"),) * 2)
    settings = CodeSettings(seconds_per_test=30)
    assert grade_code(f"```python\n{FILES[name]}\n```", tests, settings=settings).reason == "correct"


def test_a_function_has_its_source():
    program = "import inspect\ndef double(x):\n    assert 'inspect' in inspect.getsource(double)\n    return 2 * x"
    assert grade_code(f"```python\n{program}\n```", DOUBLE).reason == "correct"


def test_the_programs_own_future_imports_hold_and_ours_do_not():
    tests = FunctionTests("f", (Call((1,), "int"),), preamble="import math\n")
    right = "def f(x: int):\n    kind = f.__annotations__['x']\n    return kind if isinstance(kind, str) else 'a class'"
    assert grade_code("from __future__ import annotations\n" + right, tests).reason == "correct"
    assert grade_code(right, tests).reason == "wrong answer on test 1 of 1"


def test_tests_that_call_nothing_judge_nothing():
    verdict = grade_code("def f():\n    return 1", AssertionTests("f", source="assert True\n"))
    assert (verdict.score, verdict.reason) == (0.0, "the tests cannot judge: they never call the program")


def test_tests_whose_setup_fails_say_so():
    verdict = grade_code("def f():\n    return 1", AssertionTests("f", source="f()\n", setup="import no_such_thing\n"))
    assert verdict.reason.startswith("the tests cannot run: their setup raised ModuleNotFoundError")


def test_every_test_of_a_whole_program_starts_afresh():
    program = "import os\nprint(os.path.exists('x'), len(globals()) > 0)\nglobals()['leak'] = 1\nprint('n' in globals())\nn = 1"
    tests = StdioTests((Run("", "False True\nFalse"), Run("", "False True\nFalse")))
    assert grade_code(f"```python\n{program}\n```", tests).reason == "correct"


def test_the_time_limit_holds_in_any_thread():
    settings = CodeSettings(seconds_per_test=0.5)
    found = []

    def grade():
        start = time.monotonic()
        verdict = grade_code("def double(x):\n    while True: pass", DOUBLE, settings=settings)
        found.append((verdict.reason, time.monotonic() - start))

    thread = threading.Thread(target=grade)
    thread.start()
    thread.join()
    assert found[0][0] == "timed out after 0.5 s (test 1 of 2)"
    assert 0.5 <= found[0][1] < 10


def test_the_limit_on_all_tests_together():
    tests = FunctionTests("f", tuple(Call((n,), n) for n in range(20)))
    settings = CodeSettings(seconds_per_test=0.9, seconds_total=1.0)
    verdict = grade_code("import time\ndef f(x):\n    time.sleep(0.2)\n    return x", tests, settings=settings)
    assert verdict.reason.startswith("timed out")


def test_batch_keeps_order_and_reports_progress():
    seen: list[tuple[int, int]] = []
    verdicts = grade_code_batch([RIGHT, WRONG, "nothing", RIGHT], [DOUBLE] * 4, progress=lambda *at: seen.append(at))
    assert [verdict.score for verdict in verdicts] == [1, 0, 0, 1]
    assert seen[-1] == (4, 4)
    with pytest.raises(ValueError, match="4 completions and 1 tests"):
        grade_code_batch([RIGHT] * 4, [DOUBLE])


def named(mark):
    return [process for process in psutil.process_iter(["name"]) if process.info["name"] == mark]


def wait_until(condition):
    for _ in range(300):
        if condition():
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_batch_that_is_ended_takes_all_of_its_processes_along(number):
    script = textwrap.dedent("""
        from rlvr_graders.code import *
        tests = FunctionTests("f", (Call((1,), 1),))
        program = "import time\\ndef f(x):\\n    open('/proc/self/comm', 'w').write('MARK')\\n    time.sleep(50)"
        grade_code_batch([program] * 20, [tests] * 20, settings=CodeSettings(seconds_per_test=60, workers=4))
    """)
    mark = f"end{time.time_ns() % 10**9}"
    command = [sys.executable, "-c", script.replace("MARK", mark)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as grader:
        assert wait_until(lambda: len(named(mark)) == 4)
        grader.send_signal(number)
        _, errors = grader.communicate(timeout=30)
    if number == signal.SIGINT:  # it had the time to wait for them
        assert b"KeyboardInterrupt" in errors
        assert named(mark) == []
    assert wait_until(lambda: named(mark) == [])


def test_a_task_that_is_cancelled_ends_its_program():
    """An event loop that closes waits for its threads: as long as the program may run, if nobody told them."""
    script = textwrap.dedent("""
        import asyncio, os, signal, threading
        from rlvr_graders.code import CodeSettings, grader
        from rlvr_graders.verifiers import code_reward
        grader.CodeSettings = lambda: CodeSettings(seconds_per_test=50.0)
        threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
        tests = {"fn_name": "f", "inputs": [[1]], "outputs": [1]}
        asyncio.run(code_reward("def f(x):\\n    import time\\n    time.sleep(50)", tests))
    """)
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "KeyboardInterrupt" in done.stderr
    assert time.monotonic() - start < 20


def test_a_broken_pipe_is_no_end_where_sigpipe_is():
    script = textwrap.dedent("""
        import os, signal
        from rlvr_graders import grade_math
        from rlvr_graders.code import *
        from rlvr_graders.workers import shared_pool
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        print(grade_math("\\\\boxed{\\\\sqrt{8}+x}", "x+2\\\\sqrt{2}").score)
        for pid in shared_pool().pids():
            os.kill(pid, signal.SIGKILL)
        print(grade_math("\\\\boxed{\\\\sqrt{8}+x}", "x+2\\\\sqrt{2}").score)
        tests = FunctionTests("f", (Call((1,), 1), Call(("x" * 10**6,), 2)))
        print(grade_code("import os\\ndef f(x):\\n    for d in range(20):\\n        try: not os.get_blocking(d) or os.close(d)\\n"
                         "        except OSError: pass", tests).score)
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1.0", "1.0", "0.0"], done.stderr
    assert done.returncode == 0


def test_a_fork_at_the_wrong_moment_hangs_nobody(monkeypatch):
    """A child keeps copies of pipes; and of a lock that a thread held, which does not exist in the child."""
    from rlvr_graders.code import syntax
    from rlvr_graders.code.sandbox import session

    kept, real = [], session._popen

    def popen(words, descriptors):
        process = real(words, descriptors)
        kept.extend(map(os.dup, descriptors))
        return process

    monkeypatch.setattr(session, "_popen", popen)
    start = time.monotonic()
    assert grade_code(RIGHT, DOUBLE).reason == "correct"
    assert time.monotonic() - start < 20
    for descriptor in kept:
        os.close(descriptor)
    held, free = threading.Event(), threading.Event()

    def hold():
        with syntax._ONE_AT_A_TIME:
            held.set()
            free.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(0 if grade_code(RIGHT, DOUBLE).score == 1.0 else 1)
    free.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("kills", [2, 3])
def test_a_sandbox_that_is_killed_from_outside_is_no_verdict_on_its_program(monkeypatch, kills):
    from rlvr_graders.code.sandbox.session import Session

    real, killed = Session.begin, []

    def begin(session):
        real(session)
        if len(killed) < kills:
            session._process.kill()
            killed.append(session)

    monkeypatch.setattr(Session, "begin", begin)
    program = "import time\ntime.sleep(1)\ndef double(x):\n    return 2 * x"
    if kills < 3:
        assert grade_code(program, DOUBLE).reason == "correct"
    else:
        with pytest.raises(SandboxError, match="the sandbox was killed"):
            grade_code(program, DOUBLE)


def test_trl_reward_function():
    columns = {"tests": [dump_tests(DOUBLE), DOUBLE, dump_tests(DOUBLE)], "other": [1, 2, 3]}
    chat = [{"role": "assistant", "content": RIGHT}]
    given = {"prompts": ["p"] * 3, "completions": [RIGHT, WRONG, chat], "completion_ids": [[1], [2], [3]]}
    reward = pickle.loads(pickle.dumps(code_reward))
    metrics: dict[str, float] = {}
    assert reward(**given, **columns, log_metric=metrics.__setitem__) == [1.0, 0.0, 1.0]
    assert [verdict.reason for verdict in reward.last_verdicts] == ["correct", "wrong answer on test 2 of 2", "correct"]
    assert metrics == dict.fromkeys(("code_reward/no_code", "code_reward/timed_out", "code_reward/not_graded"), 0.0)
    assert code_reward.__name__ == "code_reward"
    other = CodeReward(CodeSettings(packages=()), column="cases", name="other")
    assert other(["p"], [RIGHT], cases=[DOUBLE]) == [1.0]
    with pytest.raises(ValueError, match=r"needs the column 'tests' in the data set; it has \['cases'\]"):
        code_reward(["p"], [RIGHT], cases=[DOUBLE])


def test_exported_name():
    assert exported is grade_code


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"workers": 0}, "workers must be at least 1"),
        ({"seconds_per_test": 0}, "seconds_per_test must be above 0"),
        ({"seconds_per_test": 61.0}, "at most seconds_total"),
        ({"processes": 0}, "processes must be at least 1"),
        ({"memory_bytes": 1000}, "memory_bytes must be at least 64 MiB"),
        ({"packages": "numpy"}, "packages must be a tuple"),
    ],
)
def test_settings_are_checked(fields, words):
    with pytest.raises(ValueError, match=words):
        CodeSettings(**fields)


def test_a_package_that_is_not_installed_is_an_error():
    with pytest.raises(ValueError, match="'no_such_package', which is not installed"):
        grade_code(RIGHT, DOUBLE, settings=CodeSettings(packages=("no_such_package",)))


def test_without_packages_there_is_only_the_standard_library():
    program = "import numpy\ndef double(x):\n    return 2 * x"
    verdict = grade_code(program, DOUBLE, settings=CodeSettings(packages=()))
    assert verdict.reason == "does not load: raised ModuleNotFoundError: No module named 'numpy'"
