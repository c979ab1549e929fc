"""The command line itself: help that comes at once, and exit codes that mean the same for every command."""

import errno
import io
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from delta_rlvr import __version__
from delta_rlvr.cli import COMMANDS, EXTRAS, IN_EVIDENCE, main
from delta_rlvr.commands.names import method_names
from delta_rlvr.credit.rule import RuleError
from delta_rlvr.evaluate.errors import EvaluationError, EvaluationFailed
from delta_rlvr.exit_codes import ExitCode, WorkFailed, at_work, exit_code_of
from delta_rlvr.lasting import lasting_output
from delta_rlvr.objectives import get_method
from delta_rlvr.runs import RunFolderError


def run_fresh(arguments, *unwanted):
    """What a fresh interpreter prints, and which of the unwanted packages it imported for it."""
    code = (
        "import sys; from delta_rlvr.cli import main; code = main(sys.argv[2:])\n"
        "print(*(name for name in sys.argv[1].split(',') if name in sys.modules), sep=',', file=sys.stderr)\n"
        "sys.exit(code)"
    )
    command = [sys.executable, "-c", code, ",".join(unwanted), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.strip()


def test_help_imports_nothing_that_is_slow():
    told, imported = run_fresh(["--help"], "torch", "numpy", "rich", "trl")
    assert imported == ""
    for command in COMMANDS:
        assert f"\n  {command} " in told


@pytest.mark.parametrize(
    ("command", "flags"),
    [("train", "--model --task --steps --resume --output --config --lora_rank"), ("compare", "--methods --seeds")],
)
def test_help_of_a_training_waits_for_nothing(command, flags):
    told, imported = run_fresh([command, "--help"], "torch", "trl", "transformers", "datasets", "accelerate")
    assert imported == ""
    assert all(flag in told for flag in flags.split())


def test_a_name_that_the_locale_cannot_read_is_refused_at_the_start(capsys):
    """As LC_ALL=C gives "größe": the run failed after its last step, where the tokenizer was saved."""
    assert main(["train", "--output", "gr\udcc3\udcb6\udcc3\udc9fe"]) == ExitCode.BAD_INPUT
    assert "'gr\\udcc3\\udcb6\\udcc3\\udc9fe' has characters that this locale does not know" in capsys.readouterr().err


def test_output_outlasts_its_encoding_and_who_closes_it(monkeypatch):
    """A reward that closed sys.stdout, and a folder's name under PYTHONIOENCODING=ascii, ended a run."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    with lasting_output():
        sys.stdout.close()
        print("gr\u00f6\u00dfe")
    assert written.getvalue() == b"gr\\xf6\\xdfe\n"


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_fits_80_columns(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with suppress(SystemExit):  # argparse's way
        main([command, "--help"] if command else ["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5
    assert [line for line in lines if len(line) > 80] == []
    assert f"`delta-rlvr {command}`: " not in " ".join(lines)  # a docstring's first words, after a usage that has them


@pytest.mark.parametrize("arguments", [[], ["-h"], ["help"], ["--help"]])
def test_usage(arguments, capsys):
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("usage: delta-rlvr COMMAND")


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version(flag, capsys):
    assert main([flag]) == 0
    assert capsys.readouterr().out == f"delta-rlvr {__version__}\n"


def test_methods_lead_with_those_to_begin_with():
    # In another process: other tests register methods in this one.
    lines = run_fresh(["methods"])[0].splitlines()
    assert [line for line in lines if len(line) > 80] == []
    names = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    assert names[:2] == ["delta", "dapo"]
    assert sorted(names) == sorted(set(method_names()))
    words = " ".join(" ".join(lines).split())
    assert "methods of other papers: entropy-advantage adds a bounded" in words
    assert "of its group (arXiv 2505.16826)" in words


def test_a_method_says_on_which_engines_it_runs(capsys):
    for method, runs, does_not in (
        ("delta", "verl (fsdp2): trainer_mode=delta_sync", "slime"),
        ("delta-scalar", "slime: recipes/engines/slime.py", "no engine"),
        ("oracle", "runs on: no engine", "TRL"),
    ):
        assert main(["methods", method]) == 0
        told = capsys.readouterr().out
        assert runs in told
        assert does_not not in told


@pytest.mark.parametrize(
    ("method", "source"), [("delta", "the DelTA paper, Table 1"), ("fading", "ours"), ("gtpo", "arXiv 2508.04349")]
)
def test_a_method_says_where_it_is_from_and_all_that_can_be_set(method, source, capsys):
    """Six of DelTA's twelve settings stood only in the error about a misspelled one, and "from: beyond" said nothing."""
    assert main(["methods", method]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"from: {source}"
    shown = [line.strip().partition("=")[0] for line in lines if line.startswith("  ") and "=" in line.split()[0]]
    with pytest.raises(RuleError) as refused:
        get_method(f"{method}?nothing=1")
    assert shown == str(refused.value).partition("it has: ")[2].rstrip(")").split(", ")


def test_every_option_is_listed_with_the_default_of_a_run(capsys):
    """TRL's own default of the schedule, linear, was shown."""
    assert main(["train", "--help-all"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    for option in ("--rollouts_every", "--show_methods", "--num_generations", "--vllm_mode", "--fsdp", "--deepspeed"):
        assert option in told
    schedule = told.partition("--lr_scheduler_type ")[2].partition("--lr_scheduler_kwargs")[0]
    assert "(TRL: linear) (default: constant)" in schedule
    assert "(TRL: 10) (default: 1)" in told.partition("--logging_steps ")[2].partition("--save_steps")[0]
    assert "(TRL: 0.0)" not in told  # beta is TRL's


BAD_INPUT = {
    "train": ["--steps", "0"],
    "compare": ["--methods", "dapo"],
    "doctor": ["no-such-file.yaml"],
    "evaluate": ["--benchmarks", "no-such-benchmark"],
    "report": ["no-such-run"],
    "explain": ["--model", "builtin", "--rollouts", "no-such-file.jsonl"],
    "credit-bench": ["--batches", "0"],
    "measured-credit": ["--batches", "0"],
    "study": ["no-such-file.yaml"],
    "leaderboard": ["no-such-folder"],
    "completion": ["no-such-shell"],
    "methods": ["--no-such-option"],
}

OUTCOMES = [
    (lambda: 0, 0),
    (lambda: 3, 3),  # done in part: only a command itself can know
    (lambda: WorkFailed("the server is gone"), 1),
    (lambda: EvaluationFailed("the server is gone"), 1),
    (lambda: FloatingPointError("the loss is not finite"), 1),
    (lambda: OSError(errno.ENOSPC, "No space left on device"), 1),
    (lambda: ConnectionResetError("gone"), 1),
    (lambda: ValueError("--steps 0"), 2),
    (lambda: FileNotFoundError(errno.ENOENT, "No such file or directory", "x"), 2),
    (lambda: PermissionError(errno.EACCES, "Permission denied", "x"), 2),
    (lambda: ModuleNotFoundError("No module named 'trl'"), 2),
    (lambda: RunFolderError("holds another run"), 2),
    (lambda: EvaluationError("say what to evaluate on"), 2),
    (lambda: KeyboardInterrupt(), 130),
]


def test_every_command_has_a_mistake_here():
    assert BAD_INPUT.keys() == COMMANDS.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_bad_input_ends_every_command_with_2(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = main([command, *BAD_INPUT[command]])
    except SystemExit as stop:  # argparse's way
        code = stop.code
    assert code == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith(f"delta-rlvr {command}: ")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("command", COMMANDS)
def test_an_exit_code_means_the_same_for_every_command(command, capsys, monkeypatch):
    for outcome, code in OUTCOMES:

        def run(_, outcome=outcome):
            what = outcome()
            if isinstance(what, BaseException):
                raise what
            return what

        monkeypatch.setitem(COMMANDS, command, run)
        assert main([command]) == code, repr(outcome())
        assert "Traceback" not in capsys.readouterr().err


def test_an_error_at_work_is_no_bad_input():
    with pytest.raises(WorkFailed, match="the grader broke") as caught, at_work():
        raise ValueError("the grader broke")
    assert exit_code_of(caught.value) is ExitCode.FAILED
    with pytest.raises(RuntimeError), at_work():  # a bug keeps its traceback
        raise RuntimeError("a bug")
    assert exit_code_of(RuntimeError("a bug")) is None


def test_help_and_docs_have_the_table_of_exit_codes(capsys):
    main(["--help"])
    said = capsys.readouterr().out
    docs = (Path(__file__).parents[1] / "docs" / "training.md").read_text(encoding="utf-8")
    for code in ExitCode:
        assert re.search(rf"\b{code.value} [a-z]", said)
        assert f"| {code.value} |" in docs


def test_an_unknown_command(capsys):
    assert main(["trian"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("delta-rlvr: there is no command 'trian'")
    assert captured.err.count("\n") == 1


def test_every_command_says_how_to_install_what_it_needs():
    assert {*EXTRAS, *IN_EVIDENCE} == COMMANDS.keys()


def test_a_package_that_is_missing(monkeypatch, capsys):
    def absent(_):
        raise ModuleNotFoundError("No module named 'trl'")

    monkeypatch.setitem(COMMANDS, "train", absent)
    assert main(["train"]) == 2
    assert 'pip install "delta-rlvr[train]"' in capsys.readouterr().err


def test_a_bug_is_not_taken_for_a_mistake_of_the_users(monkeypatch):
    def wrong(_):
        raise RuntimeError("a bug")

    monkeypatch.setitem(COMMANDS, "train", wrong)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["train"])


def test_a_check_says_what_the_weights_come_to(capsys, tmp_path):
    """A rule of zeros passed all 11 checks, and so did one of weights that hardly differ."""
    file = tmp_path / "nothing.py"
    file.write_text(
        "from dataclasses import dataclass\nfrom delta_rlvr import TokenRule\n\n\n"
        "@dataclass(frozen=True)\nclass Same(TokenRule):\n    size: float = 0.0\n    slope: float = 0.0\n\n"
        "    def weigh(self, batch):\n        return self.size + self.slope * batch.position.float()\n"
    )
    for settings, said in (
        ("size=0", "mean 0, standard deviation 0.\nwarning: every weight is 0: nothing is learnt"),
        ("size=1&slope=0.001", "warning: the weights hardly differ from each other: in effect, this is DAPO\n"),
        ("size=33.55", "their mean is about 33.55, which scales the loss"),
        ("size=1000", "their mean is about 1000, which scales the loss"),
    ):
        assert main(["methods", f"{file}:Same?{settings}", "--check"]) == 0
        assert said in capsys.readouterr().out
    assert main(["methods", "delta", "--check"]) == 0
    told = capsys.readouterr().out
    assert "warning" not in told
    assert "ok  mean one\n" in told
    assert re.search(r"on tokens with an advantage, .*: mean 1\.\d+ \(over all tokens it is one\), standard", told)


def test_a_broken_rule_is_named_in_brief(capsys, tmp_path):
    """All 500 numbers that a rule had kept stood before what was wrong with it."""
    file = tmp_path / "keeps.py"
    file.write_text(
        "from dataclasses import dataclass, field\nfrom delta_rlvr import TokenRule\n\n\n"
        "@dataclass(frozen=True)\nclass Keeps(TokenRule):\n    seen: list = field(default_factory=list)\n\n"
        "    def weigh(self, batch):\n        self.seen.extend([0.25] * 500)\n"
        "        return 0 * batch.position.float() + len(self.seen)\n"
    )
    assert main(["methods", f"{file}:Keeps", "--check"]) == 1
    rule, wrong, *_ = capsys.readouterr().err.splitlines()
    assert rule.startswith("Keeps(seen=[0.25")
    assert len(rule) <= 200
    assert wrong.startswith("depends on the number of calls")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full", "2>/dev/full"])
@pytest.mark.parametrize("given", ["--version", "train --help", "report nowhere"])
def test_closed_and_full_standard_streams(given, closed, tmp_path):
    """A stream that is closed is no error; where standard output is full, one line says so."""
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m delta_rlvr {given} {closed}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    wrong = given == "report nowhere"
    if closed == ">/dev/full" and not wrong:
        assert done.returncode == 1
        assert re.fullmatch(r"delta-rlvr.*: standard output cannot be written \(No space .*\): .*\n", done.stderr)
    else:
        assert done.returncode == (2 if wrong else 0)
