"""Options as they are typed: what a mistyped one may mean, and the library's words for arguments (`name=value`, `name`) as flags."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Mapping

from delta_rlvr.words import command_line

_SAME_THING = (
    ("max_completion_length", "max_tokens", "max_new_tokens"),
    ("k", "samples_per_question", "eval_samples", "num_samples", "num_generations"),
    ("limit", "eval_problems"),
    ("benchmarks", "task", "tasks", "benchmark"),
    ("output", "output_dir"),
    ("method", "methods"),
    ("seed", "seeds"),
    ("per_device_train_batch_size", "batch_size", "train_batch_size"),
    ("num_train_epochs", "epochs", "num_epochs"),
)
"""Options that say the same in different commands."""

# Where a message begins or advises; a setting within a spec is neither: delta?scope=group, problems.csv (template=math).
_GIVEN = re.compile(
    r"(?:^|(?<=\bgive )|(?<=\bor )|(?<=\buse )|(?<=\bset ))(\w+)=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[-+]?\w[\w.+-]*\b)"
)
_NAMED = re.compile(r"`(\w+)`")


def as_flags(text: str, options: Mapping[str, str]) -> str:
    """model='x' becomes --model x, and `steps` becomes --steps. `options`: the flag of each argument."""

    def given(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name not in options:
            return match[0]
        return options[name] if value == "True" else f"{options[name]} {_plain(value)}"

    named = _NAMED.sub(lambda match: options.get(match[1], match[0]), text)
    return _GIVEN.sub(given, named)


def _plain(value: str) -> str:
    return command_line(ast.literal_eval(value)) if value[0] in "'\"" else value


def option_hint(name: str, known: Mapping[str, str], lists_them: str) -> str:
    """What may be meant by an option that a command does not have. `known`: how each is written, by its name without dashes in
    front; `lists_them`: the command that lists them."""
    spelled = {one.replace("-", "_"): written for one, written in known.items()}
    wanted = name.lstrip("-").replace("-", "_")
    same = next((names for names in _SAME_THING if wanted in names), ())
    close = [one for one in same if one in spelled] or difflib.get_close_matches(wanted, spelled, 1)
    return f"did you mean {spelled[close[0]]}?" if close else f"`{lists_them}` lists them"
