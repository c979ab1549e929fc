"""Every command line of README, docs and recipes is accepted by its program; those that are not tried stand below with the reason."""

import argparse
import re
import runpy
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from command_line import built
from delta_evidence.commands import credit_bench, leaderboard, measured_credit, study
from delta_rlvr.commands import compare, completion, doctor, evaluate, explain, methods, report
from delta_rlvr.objectives import get_method
from pages import PAGES, ROOT, blocks, commands

COMMANDS = [command for page in PAGES for command in commands(page)]

CANNOT = {
    r"python -m delta_evidence\.page": "writes the pages of this repository; evidence/tests/test_evidence_page.py makes the same texts",
    r"python -m verl\.": "needs GPUs; tests/adapters/verl starts the trainer with these settings",
    r"trl vllm-serve |vllm serve ": "needs vLLM and a GPU",
    r"python -m venv |\S+/bin/\w+ ": "installs and uses vLLM in an environment of its own, 2 GB; the page says when it was tried",
    r"source \.venv/bin/activate": "made by the command above it",
    r"delta-rlvr .*\[RUN \.\.\.\]": "shows the form of the command, not a command",
}
"""What is not tried, by how it begins, and why."""

ENVIRONMENT = re.compile(r"^(?:[A-Z][A-Z_]*=\S* )+")

PARSERS = {
    "evaluate": evaluate.add_arguments,
    "report": report.add_arguments,
    "explain": explain.add_arguments,
    "credit-bench": credit_bench.add_arguments,
    "measured-credit": measured_credit.add_arguments,
    "study": study.add_arguments,
    "leaderboard": leaderboard.add_arguments,
    "methods": methods.add_arguments,
    "completion": completion.add_arguments,
}

# What the paper's files ask for and a machine without a GPU does not have.
WITHOUT_GPU = ["--use_cpu", "true", "--bf16", "false", "--use_vllm", "false"]


def reason_of(command):
    """Why a command is not tried; None where it is."""
    bare = ENVIRONMENT.sub("", command.text)
    return next((why for pattern, why in CANNOT.items() if re.match(pattern, bare)), None)


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """Where a reader of a page stands: a clone, with the files that the page has shown."""

    def stand(page):
        for folder in ("recipes", "benchmarks", "docs", "src", "tests"):
            (tmp_path / folder).symlink_to(ROOT / folder)
        for block in blocks(ROOT / page):
            if block.file:
                (tmp_path / block.file).write_text(block.code)
            elif block.language == "yaml":
                (tmp_path / "settings.yaml").write_text(block.code)
        if page != "docs/first_hour.md":
            (tmp_path / "my_rules.py").write_text((ROOT / "tests/own_rule/my_rules.py").read_text())
        monkeypatch.chdir(tmp_path)

    return stand


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_is_accepted(command, reader, monkeypatch):
    if reason := reason_of(command):
        pytest.skip(reason)
    reader(command.page)
    words = shlex.split(ENVIRONMENT.sub("", command.text.removesuffix("&")), comments=True)
    # A sentence may name an option without its value.
    named = command.inline and words[-1].startswith("--")
    for given in (words, [*words, "builtin"]) if named else (words,):
        try:
            return accept(given, monkeypatch)
        except (SystemExit, ValueError) as error:
            refused = error
    pytest.fail(f"{command}\nis refused ({refused})")


def accept(words, monkeypatch):
    """Raise unless the program takes these words."""
    match words:
        case ["delta-rlvr", "train", *rest]:
            accept_train(rest)
        case ["delta-rlvr", "compare", *rest]:
            monkeypatch.setattr("delta_rlvr.training.plan.Making.all", lambda *_: None)
            monkeypatch.setattr("delta_rlvr.training.plan.Making.only", lambda *_: None)
            monkeypatch.setattr("delta_rlvr.training.plan.score", lambda _: 0.5)
            monkeypatch.setattr("delta_rlvr.training.compare.conclude", lambda *_: None)
            compare.run(rest)
        case ["delta-rlvr", "doctor", *rest]:
            accept_doctor(rest)
        case ["delta-rlvr", name, *rest]:
            accept_other(name, rest)
        case ["torchrun" | "accelerate", *rest]:
            place = rest.index("-m")
            assert rest[place + 1] == "delta_rlvr"
            check_files(rest[:place])
            accept(["delta-rlvr", *rest[place + 2 :]], monkeypatch)
        case ["python", "-c", code]:
            compile(code, "a command", "exec")
        case ["python", script, *rest]:
            accept_script(script, rest, monkeypatch)
        case ["pytest", *rest]:
            check_files(rest)
            assert any((ROOT / word.split("::")[0]).exists() for word in rest)
        case ["bash", script, *_]:
            assert (ROOT / script).is_file()
        case ["make", target]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        case ["pip", "install", *packages]:
            accept_install(packages)
        case _:
            pytest.fail(f"nothing here knows how to try {shlex.join(words)!r}: teach it, or say in CANNOT why not")


def accept_train(rest):
    if rest and rest[0] in ("--help", "--help-all"):
        return
    elsewhere = "recipes/paper/" in " ".join(rest)
    built([*rest, *(WITHOUT_GPU if elsewhere else [])])


def accept_doctor(rest):
    """Its own options are taken, and the rest by `train`. A file that the page does not show is the reader's."""
    if rest and not rest[0].startswith("-"):
        Path(rest[0]).touch()
    own, words = doctor.own_options(rest)
    shown = own.config and Path(own.config).stat().st_size
    accept_train([*(["--config", own.config] if shown else []), *words])


def accept_other(name, rest):
    parser = argparse.ArgumentParser(prog=f"delta-rlvr {name}")
    PARSERS[name](parser)
    if rest == ["--help"]:
        return
    check_files(rest)
    options = vars(parser.parse_args(rest))
    names = (name != "leaderboard" and options.get("methods")) or options.get("method") or ""
    for method in names.split(",") if isinstance(names, str) else names:
        # Where a form is shown (NAME, MyRule), there is nothing to look up.
        if method and method not in ("NAME", "my_rules.py:MyRule"):
            get_method(method)


class Accepted(Exception):
    """A script's options were parsed."""


def accept_script(script, rest, monkeypatch):
    """The script's own parser takes the words; nothing is run."""

    def only_parse(parser, given=None, namespace=None):
        parse(parser, given, namespace)
        raise Accepted

    parse = argparse.ArgumentParser.parse_args
    if not (path := ROOT / script).is_file():
        compile(Path(script).read_text(), script, "exec")  # a file that the page has shown
        return
    check_files(rest)
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", only_parse)
    monkeypatch.setattr(sys, "argv", [str(path), *rest])
    monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
    with pytest.raises(Accepted):
        runpy.run_path(str(path), run_name="__main__")


def accept_install(packages):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for package in packages:
        ours = re.fullmatch(r"(?:delta-rlvr|\.)\[([\w,]+)\]", package)
        for extra in ours.group(1).split(",") if ours else ():
            assert extra in extras, f"there is no extra {extra!r}"


def check_files(words):
    """Files of this repository that a command reads must be there."""
    for word in words:
        if re.match(r"(recipes|benchmarks|tests|evidence)/", word) and not re.search(r"NAME|MINE|mine", word):
            assert any(ROOT.glob(word.split("::")[0])), f"{word} does not exist"


def test_the_reasons_are_needed():
    """A reason for commands that no page has is a mistake."""
    for pattern in CANNOT:
        assert any(re.match(pattern, ENVIRONMENT.sub("", command.text)) for command in COMMANDS), pattern


def test_commands_are_seen():
    """The reader of the pages sees blocks, continued lines, tables and sentences."""
    texts = {command.text for command in COMMANDS}
    assert "delta-rlvr train" in texts
    assert "make demo" in {text.split("  ")[0] for text in texts}
    assert any(text.startswith("python benchmarks/trl_overhead.py") for text in texts)
    assert len(COMMANDS) > 80
