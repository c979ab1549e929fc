"""The parser of the commands that do not take TRL's options. Dashes and underscores are the same; an error is one line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from delta_rlvr.commands.flags import option_hint


class CommandParser(argparse.ArgumentParser):
    """An argparse parser that treats dashes and underscores in options alike, as `train` does."""

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        return self.parse_args([self._as_known(word) for word in arguments])

    @property
    def flags(self) -> dict[str, str]:
        """The flag of each argument."""
        return {action.dest: action.option_strings[-1] for action in self._actions if action.option_strings}

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (`{self.prog} --help` lists the options)")

    def _as_known(self, word: str) -> str:
        """Return the option as it was declared. Unknown options are refused here: argparse would first report missing ones."""
        name, mark, value = word.partition("=")
        if not name.startswith("--") or name == "--":
            return word
        declared = {option.replace("_", "-"): option for option in self._option_string_actions}
        wanted = name.replace("_", "-")
        if wanted in declared:
            return declared[wanted] + mark + value
        begun = [option for spelled, option in declared.items() if spelled.startswith(wanted)]
        if begun:  # abbreviated; argparse reports an ambiguous one
            return begun[0] + mark + value if len(begun) == 1 else word
        known = {
            option.lstrip("-"): " or ".join(action.option_strings)
            for option, action in self._option_string_actions.items()
        }
        raise ValueError(f"there is no option {name}; {option_hint(name, known, f'{self.prog} --help')}")
