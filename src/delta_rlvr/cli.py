"""The command line: `delta-rlvr COMMAND ...`. Each command is a module, loaded when it is run."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from delta_rlvr import __version__
from delta_rlvr.commands import EXTRAS, IN_EVIDENCE, TRAIN_LIKE
from delta_rlvr.commands.flags import as_flags
from delta_rlvr.commands.parser import CommandParser
from delta_rlvr.exit_codes import ExitCode, ending_signals, exit_code_of, in_words
from delta_rlvr.hints import did_you_mean
from delta_rlvr.lasting import lasting_output

USAGE = """usage: delta-rlvr COMMAND [OPTION ...]

  train            train a policy by RL from verifiable rewards: DelTA, DAPO
  compare          run several methods with several seeds; a table and a test
  report           one page for runs: which tokens got the credit, how it went
  explain          which tokens of your own rollouts would get the credit
  methods          list the methods, or check your own rule
  doctor           before a run: will it fit, how long will it take?
  evaluate         sample a model on benchmarks, grade its answers, compare
  credit-bench     do each method's weights land on the tokens that decided?
  measured-credit  token credit measured by continuations, beside the weights
  study            train many methods and seeds side by side in one process
  leaderboard      tabulate what study and credit-bench measured
  completion       complete commands and options in a shell

`delta-rlvr COMMAND --help` describes a command; `delta-rlvr --version` prints
the version.
Options may be written with dashes or underscores: --max-tokens, --max_tokens.
Without options, `delta-rlvr train` trains a tiny bundled policy in minutes.
Exit codes: 0 done, 1 failed after the start, 2 bad input, 3 done in part (run
the command again to resume), 130 interrupted, 143 ended by SIGTERM.
Set DELTA_RLVR_TRACEBACK=1 in the environment to get the traceback of an error.
"""


_HELP = {"-h", "--help"}


def _meant(command: str) -> str:
    if command.startswith("-"):
        return did_you_mean(command, ("--version",)) or f"; options stand after one, as in: train {command}"
    return did_you_mean(command, COMMANDS)


@lasting_output()
def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code. An error that the user can fix is one line on standard error."""
    # Tokenizers start a thread for each visible core, also where the process may use only a few of them.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    given = list(sys.argv[1:] if arguments is None else arguments)
    if torn := [one for one in given if one.encode(errors="replace").decode() != one]:
        do = "set PYTHONUTF8=1 in the environment, or rename it"
        print(f"delta-rlvr: {torn[0]!a} has characters that this locale does not know: {do}", file=sys.stderr)
        return ExitCode.BAD_INPUT
    if not given or given[0] in (*_HELP, "help"):
        sys.stdout.write(USAGE)
        return ExitCode.DONE
    if given[0] in ("-V", "--version"):
        print(f"delta-rlvr {__version__}")
        return ExitCode.DONE
    command, rest = given[0], given[1:]
    if command not in COMMANDS:
        known = ", ".join(COMMANDS)
        problem = f": there is no command {command!r}{_meant(command)} (there are: {known})"
        if command in IN_EVIDENCE:
            install = "pip install delta-rlvr-evidence (in a checkout: pip install ./evidence)"
            problem = f" {command}: not installed; {install}"
        print(f"delta-rlvr{problem}", file=sys.stderr)
        return ExitCode.BAD_INPUT
    terminated: list[int] = []
    try:
        with _signals_interrupt(terminated):
            return COMMANDS[command](rest)
    except KeyboardInterrupt as interrupt:
        kept = as_flags(str(interrupt), _flags(command))
        print(f"\ndelta-rlvr {command}: interrupted{kept and f'; {kept}'}", file=sys.stderr)
        return ExitCode.TERMINATED if terminated else ExitCode.INTERRUPTED
    except ModuleNotFoundError as error:
        install = f'pip install "delta-rlvr[{EXTRAS.get(command, "evaluate")}]"'
        print(f"delta-rlvr {command}: {error}. Install it with: {install}", file=sys.stderr)
        return ExitCode.BAD_INPUT
    except Exception as error:
        code = exit_code_of(error)
        if code is None or os.environ.get("DELTA_RLVR_TRACEBACK"):
            raise
        # The last note was added nearest to the command.
        message = "; ".join([in_words(error), *getattr(error, "__notes__", [])[-1:]])
        print(f"delta-rlvr {command}: {as_flags(message, _flags(command))}", file=sys.stderr)
        return code


@contextmanager
def _signals_interrupt(received: list[int]) -> Iterator[None]:
    """Let SIGTERM (sent by `timeout`, Slurm and Kubernetes) and SIGHUP end a command as Ctrl-C does, and note them in `received`."""

    def interrupt(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # it may come twice: to the process and to its group
        received.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only the main thread can set handlers
        yield
        return
    before = {number: signal.signal(number, interrupt) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _flags(command: str) -> dict[str, str]:
    """Return the flag of each argument of a command; TRL's only once TRL is loaded."""
    if command not in TRAIN_LIKE:
        return _parser(command).flags
    from delta_rlvr.training.options import TrainOptions

    names = {*TrainOptions.__dataclass_fields__, "config", "report_to", "methods", "seeds", "parallel", "only"}
    if request := sys.modules.get("delta_rlvr.training.request"):
        names |= request.known_options()
    return {name: f"--{name}" for name in names} | {"without_signal": "--without-signal"}


def _train_like(command: str, arguments: list[str]) -> int:
    """Run `train` or a command with its options. TRL parses these, so that the help is written by hand."""
    from delta_rlvr.commands import help as texts

    if command == "train" and "--help-all" in arguments:
        from delta_rlvr.commands.options import print_all_options

        print_all_options()
        return ExitCode.DONE
    if _HELP & set(arguments):
        own = {"doctor": texts.DOCTOR, "compare": texts.COMPARE}
        sys.stdout.write(own[command] if command in own else texts.train_help())
        return ExitCode.DONE
    _check_names(command, arguments)
    code: int = import_module(f"delta_rlvr.commands.{command}").run(arguments)
    return code


def _parsed(command: str, arguments: list[str]) -> int:
    """Run a command whose options argparse parses."""
    # `_check_names` takes one name per option; the other commands take several.
    named = command == "explain" or (command == "evaluate" and "--list" not in arguments)
    (_check_names if named else _loading)(command, arguments)
    parser = _parser(command)
    code: int = _module(command).run(parser.parse(arguments))
    return code


def _module(command: str) -> Any:
    return import_module(JOINED.get(command) or f"delta_rlvr.commands.{command}")


def _parser(command: str) -> CommandParser:
    module = _module(command)
    words = (module.__doc__ or "").partition("`: ")[2]  # what follows the command's name
    parser = CommandParser(prog=f"delta-rlvr {command}", description=words[:1].upper() + words[1:])
    module.add_arguments(parser)
    return parser


def _check_names(command: str, arguments: list[str]) -> None:
    """Refuse a wrong name before torch and an engine are loaded, which takes seconds."""
    from delta_rlvr.commands.names import check_names

    if not _HELP & set(arguments):
        check_names(arguments, rows=command != "doctor")  # which lists what is wrong with them
    _loading(command, arguments)


def _loading(command: str, arguments: list[str]) -> None:
    if sys.stderr.isatty() and not _HELP & set(arguments):
        print(f"delta-rlvr {command}: loading ...", file=sys.stderr, flush=True)


JOINED = {point.name: point.value for point in entry_points(group="delta_rlvr.commands")}
"""The commands that other distributions add, and their modules."""
COMMANDS: dict[str, Callable[[list[str]], int]] = {
    command: partial(_train_like if command in TRAIN_LIKE else _parsed, command) for command in (*EXTRAS, *JOINED)
}

if __name__ == "__main__":
    sys.exit(main())
