"""Numbers, durations, lists and commands as text for people."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def command_line(*words: object) -> str:
    """Return a command as one line for a shell, quoted where needed."""
    return " ".join(_quoted(str(word)) for word in words)


def _quoted(word: str) -> str:
    """Quote a word for a shell; one with line breaks and the like as $'...', which bash, zsh and ksh understand."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    shown = (one if one.isprintable() else "".join(f"\\x{byte:02x}" for byte in one.encode()) for one in escaped)
    return f"$'{''.join(shown)}'"


def comma_list(text: str) -> list[str]:
    """Return the names of a list with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def counted(number: int, what: str, many: str | None = None) -> str:
    """Return "1 seed" or "2 seeds"; `many` is the plural where an s is not enough."""
    return f"{number} {what}" if number == 1 else f"{number} {many or what + 's'}"


def listed(words: Sequence[str]) -> str:
    """One, two and three."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def duration(seconds: float) -> str:
    """Return "4:05" or "1:04:05"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def rate_text(rate: float) -> str:
    """A learning rate as people write it: 5e-6."""
    digits, _, power = f"{rate:e}".partition("e")
    return f"{float(digits):g}e{int(power)}"
