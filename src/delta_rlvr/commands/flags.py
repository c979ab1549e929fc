"""Options as they are typed: suggestions for a mistyped one, and the library's argument names in messages written as flags."""

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
    ("learning_rate", "lr"),
    ("num_train_epochs", "epochs", "num_epochs"),
)
"""Options with the same meaning in different commands."""

# `name=value` at the start of a message or after a word of advice. Settings within a spec must not match:
# delta?scope=group, problems.csv (template=math).
_GIVEN = re.compile(
    r"(?:^|(?<=\bgive )|(?<=\bor )|(?<=\buse )|(?<=\bset ))(\w+)=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[-+]?\w[\w.+-]*\b)"
)
_NAMED = re.compile(r"`(\w+)`")


def as_flags(text: str, options: Mapping[str, str]) -> str:
    """Return the message with arguments written as flags: model='x' becomes --model x, and `steps` becomes --steps.

    `options` maps each argument to its flag."""

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
    """Suggest an option for an unknown one. `known` maps option names without leading dashes to how they are written;
    `lists_them` is the command that lists the options."""
    spelled = {one.replace("-", "_"): written for one, written in known.items()}
    wanted = name.lstrip("-").replace("-", "_")
    same = next((names for names in _SAME_THING if wanted in names), ())
    close = [one for one in same if one in spelled] or difflib.get_close_matches(wanted, spelled, 1)
    return f"did you mean {spelled[close[0]]}?" if close else f"`{lists_them}` lists them"
