"""The findings of doctor, and the list of what to change."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from delta_rlvr.exit_codes import exit_code_of, in_words

_COLUMNS = 100
_HEAD = 11


class Checklist:
    """Prints findings as they come, and collects the problems among them."""

    def __init__(self, wording: Callable[[str], str] = str) -> None:
        """`wording` rewrites each sentence (the command line turns arguments into flags)."""
        self.wording = wording
        self.problems: list[str] = []
        """What to change, in the order of the findings."""

    def saw(self, what: str, text: str) -> None:
        """Report a fact, or something that is in order."""
        print(_laid_out(f"{what:{_HEAD}}", self.wording(text)))

    def wrong(self, what: str, text: str) -> None:
        """Report a problem; `text` says what to change."""
        self.problems.append(self.wording(text))
        self.saw(what, f"problem {len(self.problems)}, see below")

    def fits(self, what: str, need: int, free: int, text: str, remedy: str) -> None:
        """Report whether `need` fits into `free`; `remedy` says what to change if not."""
        if need > free:
            self.wrong(what, f"{text}: {remedy}")
        else:
            self.saw(what, text)

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Run a check; report an error that the user can fix as a problem."""
        try:
            yield
        except Exception as error:
            if exit_code_of(error) is None:
                raise
            self.wrong(what, in_words(error))

    def verdict(self) -> str:
        """Return "ready", or the numbered list of what to change."""
        if not self.problems:
            return "ready"
        lines = ["what to change:"]
        lines += [_laid_out(f"  {number}. ", text) for number, text in enumerate(self.problems, start=1)]
        return "\n".join(lines)


def _laid_out(head: str, text: str) -> str:
    return textwrap.fill(
        text,
        _COLUMNS,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )
