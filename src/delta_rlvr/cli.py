"""The command line: `delta-rlvr COMMAND ...`. Each command is a module of its own, loaded when it is asked for."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from delta_rlvr import __version__
from delta_rlvr.exit_codes import ExitCode, exit_code_of

USAGE = """usage: delta-rlvr COMMAND [OPTION ...]

  train       train a policy by reinforcement learning from verifiable rewards (DelTA, DAPO, GRPO, ...)
  doctor      can this run start, will it fit, how long will it take? then two real steps of it
  compare     the same run for several methods and seeds, with a table and a test at the end
  evaluate    sample a model on benchmarks, grade, aggregate, compare
  report      one page for a run, or for several: which tokens got the credit, and how training went
  explain     the token view for rollouts from anywhere
  credit-bench  does the credit land on the tokens that decided? every method's weights on planted tasks
  study         a protocol's runs, seeds and methods side by side in one process, with a table and tests
  leaderboard   every method by what kept outcomes of the two say of it
  methods     the methods by name, and where the paper has them
  completion    what a shell needs to complete commands and options: delta-rlvr completion bash

`delta-rlvr COMMAND --help` says more; `delta-rlvr --version` prints the version.
Without options, `delta-rlvr train` trains the bundled tiny policy in a few minutes.
Exit codes: 0 done, 1 failed at work, 2 bad input, 3 done in part (the same command goes on), 130 interrupted.
DELTA_RLVR_TRACEBACK=1 in the environment shows where in the code an error came from.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; its exit code. What a person can put right is one line on standard error."""
    # One process on a shared machine must not start a thread for each core it can see but not have.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help", "help"):
        sys.stdout.write(USAGE)
        return ExitCode.DONE
    if given[0] in ("-V", "--version"):
        print(f"delta-rlvr {__version__}")
        return ExitCode.DONE
    command, rest = given[0], given[1:]
    if command not in COMMANDS:
        print(
            f"delta-rlvr: there is no command {command!r} (there are: {', '.join(COMMANDS)})", file=sys.stderr
        )
        return ExitCode.BAD_INPUT
    try:
        return COMMANDS[command](rest)
    except KeyboardInterrupt as interrupt:
        print(
            f"\ndelta-rlvr {command}: interrupted; {str(interrupt) or 'what was written is kept'}",
            file=sys.stderr,
        )
        return ExitCode.INTERRUPTED
    except ModuleNotFoundError as error:
        extra = EXTRAS[command]
        print(
            f'delta-rlvr {command}: {error}. Install it with: pip install "delta-rlvr[{extra}]"',
            file=sys.stderr,
        )
        return ExitCode.BAD_INPUT
    except Exception as error:
        code = exit_code_of(error)
        if code is None or os.environ.get("DELTA_RLVR_TRACEBACK"):
            raise
        print(f"delta-rlvr {command}: {error}", file=sys.stderr)
        return code


def _train(arguments: list[str]) -> int:
    if "--help-all" in arguments:
        from delta_rlvr.commands.options import print_all_options

        print_all_options()
        return 0
    if {"-h", "--help"} & set(arguments):
        from delta_rlvr.commands.help import train_help

        sys.stdout.write(train_help())
        return 0
    _check_names("train", arguments)
    from delta_rlvr.commands.train import run

    return run(arguments)


def _check_names(command: str, arguments: list[str]) -> None:
    """Tell a wrong name at once; then say that something is happening, since torch and an engine take seconds to load."""
    from delta_rlvr.commands.names import check_names

    check_names(arguments)
    _loading(command)


def _loading(command: str) -> None:
    if sys.stderr.isatty():
        print(f"delta-rlvr {command}: loading ...", file=sys.stderr, flush=True)


def _doctor(arguments: list[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        from delta_rlvr.commands.help import DOCTOR

        sys.stdout.write(DOCTOR)
        return 0
    _check_names("doctor", arguments)
    from delta_rlvr.commands.doctor import run

    return run(arguments)


def _compare(arguments: list[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        from delta_rlvr.commands.help import COMPARE

        sys.stdout.write(COMPARE)
        return 0
    _check_names("compare", arguments)
    from delta_rlvr.commands.compare import run

    return run(arguments)


def _evaluate(arguments: list[str]) -> int:
    if not {"-h", "--help", "--server", "--list"} & set(arguments):  # a server has names of its own
        _check_names("evaluate", arguments)
    from delta_rlvr.evaluate import command

    parser = argparse.ArgumentParser(prog="delta-rlvr evaluate", description=command.__doc__)
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


def _report(arguments: list[str]) -> int:
    from delta_rlvr.report import command

    parser = argparse.ArgumentParser(
        prog="delta-rlvr report", description="One self-contained page for runs."
    )
    command.add_report_arguments(parser)
    print(command.run_report(parser.parse_args(arguments)))
    return 0


def _explain(arguments: list[str]) -> int:
    from delta_rlvr.commands import explain as command

    parser = argparse.ArgumentParser(
        prog="delta-rlvr explain", description="Which tokens of given rollouts would get the credit."
    )
    command.add_arguments(parser)
    print(command.run(parser.parse_args(arguments)))
    return 0


def _credit_bench(arguments: list[str]) -> int:
    from delta_rlvr.commands import credit_bench as command

    parser = argparse.ArgumentParser(prog="delta-rlvr credit-bench", description=command.__doc__)
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


def _study(arguments: list[str]) -> int:
    from delta_rlvr.commands import study as command

    parser = argparse.ArgumentParser(prog="delta-rlvr study", description=command.__doc__)
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


def _completion(arguments: list[str]) -> int:
    from delta_rlvr.commands import completion as command

    parser = argparse.ArgumentParser(prog="delta-rlvr completion", description=command.__doc__)
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments), list(COMMANDS))


def _leaderboard(arguments: list[str]) -> int:
    from delta_rlvr.commands import leaderboard as command

    parser = argparse.ArgumentParser(prog="delta-rlvr leaderboard", description=command.__doc__)
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


def _methods(arguments: list[str]) -> int:
    from delta_rlvr.commands import methods as command

    parser = argparse.ArgumentParser(prog="delta-rlvr methods", description=command.__doc__)
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": _train,
    "doctor": _doctor,
    "compare": _compare,
    "evaluate": _evaluate,
    "report": _report,
    "explain": _explain,
    "credit-bench": _credit_bench,
    "study": _study,
    "leaderboard": _leaderboard,
    "methods": _methods,
    "completion": _completion,
}

EXTRAS = {
    "train": "train",
    "doctor": "train",
    "compare": "train",
    "evaluate": "evaluate,math",
    "report": "report,evaluate",
    "explain": "report,evaluate",
    "credit-bench": "evaluate",
    "study": "evaluate",
    "leaderboard": "evaluate",
    "methods": "train",
    "completion": "train",
}

if __name__ == "__main__":
    sys.exit(main())
