"""The command line itself: help that comes at once, and mistakes that are one line and exit code 2."""

import subprocess
import sys

import pytest

from delta_rlvr import __version__
from delta_rlvr.cli import COMMANDS, EXTRAS, main
from delta_rlvr.objectives import all_methods


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


def test_help_of_train_does_not_wait_for_trl():
    told, imported = run_fresh(["train", "--help"], "trl", "transformers", "datasets", "accelerate")
    assert imported == ""
    assert max(map(len, told.splitlines())) <= 120
    for name in all_methods():
        assert name in told
    for flag in ("--model", "--task", "--steps", "--resume", "--output", "--config", "--lora_rank"):
        assert flag in told


@pytest.mark.parametrize("arguments", [[], ["-h"], ["help"], ["--help"]])
def test_usage(arguments, capsys):
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("usage: delta-rlvr COMMAND")


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version(flag, capsys):
    assert main([flag]) == 0
    assert capsys.readouterr().out == f"delta-rlvr {__version__}\n"


def test_compare_help(capsys):
    assert main(["compare", "--help"]) == 0
    assert "--methods NAMES" in capsys.readouterr().out


def test_methods(capsys):
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(all_methods())


def test_every_option_is_listed(capsys):
    assert main(["train", "--help-all"]) == 0
    told = capsys.readouterr().out
    for option in (
        "--rollouts_every",
        "--show_methods",
        "--num_generations",
        "--vllm_mode",
        "--fsdp",
        "--deepspeed",
    ):
        assert option in told


def test_an_unknown_command(capsys):
    assert main(["trian"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("delta-rlvr: there is no command 'trian'")
    assert captured.err.count("\n") == 1


def test_every_command_says_how_to_install_what_it_needs():
    assert EXTRAS.keys() == COMMANDS.keys()


def test_a_package_that_is_missing(monkeypatch, capsys):
    def absent(_):
        raise ModuleNotFoundError("No module named 'trl'")

    monkeypatch.setitem(COMMANDS, "train", absent)
    assert main(["train"]) == 2
    assert 'pip install "delta-rlvr[train]"' in capsys.readouterr().err


def test_an_interrupt(monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setitem(COMMANDS, "train", interrupted)
    assert main(["train"]) == 130
    assert "what was written is kept" in capsys.readouterr().err


def test_a_bug_is_not_taken_for_a_mistake_of_the_users(monkeypatch):
    def wrong(_):
        raise RuntimeError("a bug")

    monkeypatch.setitem(COMMANDS, "train", wrong)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["train"])
