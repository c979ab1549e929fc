"""`delta-rlvr completion SHELL`: print the code for completion in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module

from delta_rlvr.commands import EXTRAS, TRAIN_LIKE
from delta_rlvr.commands.names import method_names
from delta_rlvr.tasks.registry import BUILT_IN

INSTALL = {
    "bash": "delta-rlvr completion bash >> ~/.bash_completion",
    "zsh": "delta-rlvr completion zsh >> ~/.zshrc",
    "fish": "delta-rlvr completion fish > ~/.config/fish/completions/delta-rlvr.fish",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "to install it:\n" + "".join(f"  {line}\n" for line in INSTALL.values())
    parser.add_argument("shell", choices=list(INSTALL))


def run(options: argparse.Namespace) -> int:
    known = {command: options_of(command) for command in EXTRAS}
    print(_fish(known) if options.shell == "fish" else _bash(known, zsh=options.shell == "zsh"))
    return 0


def options_of(command: str) -> list[str]:
    """Every option of a command, with its dashes."""
    if command in TRAIN_LIKE:
        from delta_rlvr.commands import compare
        from delta_rlvr.commands.options import known_options

        own = {
            "train": ["--help-all"],
            "compare": [action.option_strings[0] for action in compare.own_options()._actions],
            "doctor": ["--no-steps", "--processes"],
        }
        return sorted({f"--{name}" for name in known_options()} | {"--config", "--help", *own[command]})
    parser = argparse.ArgumentParser()
    if command != "completion":
        import_module(f"delta_rlvr.commands.{command}").add_arguments(parser)
    names = (name for action in parser._actions for name in action.option_strings)
    return sorted({name for name in names if name.startswith("--")})


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
