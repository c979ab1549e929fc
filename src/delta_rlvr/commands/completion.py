"""`delta-rlvr completion SHELL`: what bash, zsh or fish needs to complete commands, options and methods."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module

from delta_rlvr.commands.names import method_names
from delta_rlvr.tasks.registry import BUILT_IN

INSTALL = {
    "bash": "delta-rlvr completion bash >> ~/.bash_completion",
    "zsh": "delta-rlvr completion zsh >> ~/.zshrc",
    "fish": "delta-rlvr completion fish > ~/.config/fish/completions/delta-rlvr.fish",
}

# Commands whose options argparse knows: the module, and the function that adds them.
_PARSED = {
    "evaluate": ("delta_rlvr.evaluate.command", "add_arguments"),
    "report": ("delta_rlvr.report.command", "add_report_arguments"),
    "explain": ("delta_rlvr.commands.explain", "add_arguments"),
    "credit-bench": ("delta_rlvr.commands.credit_bench", "add_arguments"),
    "study": ("delta_rlvr.commands.study", "add_arguments"),
    "leaderboard": ("delta_rlvr.commands.leaderboard", "add_arguments"),
    "methods": ("delta_rlvr.commands.methods", "add_arguments"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "to have it always:\n" + "".join(f"  {line}\n" for line in INSTALL.values())
    parser.add_argument("shell", choices=list(INSTALL))


def run(options: argparse.Namespace, commands: Sequence[str]) -> int:
    """The subcommand."""
    known = {command: options_of(command) for command in commands}
    print(_fish(known) if options.shell == "fish" else _bash(known, zsh=options.shell == "zsh"))
    return 0


def options_of(command: str) -> list[str]:
    """Every option of a command, with its dashes."""
    if command in ("train", "compare", "doctor"):
        from delta_rlvr.commands.options import known_options

        own = {
            "train": ["--help-all"],
            "compare": ["--methods", "--seeds"],
            "doctor": ["--no-steps", "--processes"],
        }
        return sorted({f"--{name}" for name in known_options()} | {"--config", "--help", *own[command]})
    parser = argparse.ArgumentParser()
    if command in _PARSED:
        module, function = _PARSED[command]
        getattr(import_module(module), function)(parser)
    return sorted(
        {name for action in parser._actions for name in action.option_strings if name.startswith("--")}
    )


def _bash(known: Mapping[str, Sequence[str]], *, zsh: bool) -> str:
    cases = "\n".join(f'    {command}) words="{" ".join(names)}" ;;' for command, names in known.items())
    head = "autoload -U +X bashcompinit && bashcompinit\n" if zsh else ""
    return f"""{head}_delta_rlvr() {{
  local words="" current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{" ".join(known)} --help --version" -- "$current"))
    return
  fi
  case "$before" in
    --method) COMPREPLY=($(compgen -W "{" ".join(method_names())}" -- "$current")); return ;;
    --task) COMPREPLY=($(compgen -W "{" ".join(BUILT_IN)}" -- "$current") $(compgen -f -- "$current")); return ;;
  esac
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
    *) COMPREPLY=($(compgen -f -- "$current")) ;;
  esac
}}
complete -F _delta_rlvr delta-rlvr"""


def _fish(known: Mapping[str, Sequence[str]]) -> str:
    lines = [f"complete -c delta-rlvr -n __fish_use_subcommand -f -a '{' '.join(known)}'"]
    values = {"--method": " ".join(method_names()), "--task": " ".join(BUILT_IN)}
    for command, names in known.items():
        seen = f"'__fish_seen_subcommand_from {command}'"
        for name in names:
            given = f" -x -a '{values[name]}'" if name in values else ""
            lines.append(f"complete -c delta-rlvr -n {seen} -l {name.removeprefix('--')}{given}")
    return "\n".join(lines)
