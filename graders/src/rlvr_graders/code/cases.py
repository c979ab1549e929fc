"""What a program is held against: records of tests, and the JSON that they are stored as."""

from __future__ import annotations

import json
import keyword
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Comparison = Literal["equal", "set", "not_none"]


@dataclass(frozen=True)
class Call:
    """One call of a function and what it should return."""

    arguments: tuple[Any, ...]
    """Positional arguments, plain values."""
    expected: Any
    """The return value asked for."""
    alternatives: tuple[Any, ...] = ()
    """Other return values that are right too."""


def _check_entry(entry_point: str) -> None:
    if not entry_point.isidentifier() or keyword.iskeyword(entry_point):
        raise ValueError(f"entry_point must be a function's name, not {entry_point!r}")


@dataclass(frozen=True)
class FunctionTests:
    """Calls of a function (or of a method of `class Solution`), compared outside the sandbox."""

    entry_point: str
    """Name of the function."""
    calls: tuple[Call, ...]
    """All of them must give the expected value."""
    absolute_tolerance: float = 0.0
    """Numbers may differ by this much."""
    relative_tolerance: float = 0.0
    """Numbers may differ by this share of the expected one, where that is a float."""
    comparison: Comparison = "equal"
    """"equal"; "set": the same elements in any order and number; "not_none": True means anything but None."""
    tuples_as_lists: bool = False
    """A tuple may stand for a list: for expectations that come from JSON, which has no tuples."""
    preamble: str = ""
    """Source put before the program, such as the imports that a task's statement takes for granted."""

    def __post_init__(self) -> None:
        _check_entry(self.entry_point)
        if not self.calls:
            raise ValueError(f"calls of {self.entry_point} is empty: tests that check nothing pass everything")
        if self.comparison not in get_args(Comparison):
            raise ValueError(f"comparison must be one of {get_args(Comparison)}, not {self.comparison!r}")
        if not (self.absolute_tolerance >= 0 and self.relative_tolerance >= 0):
            raise ValueError("tolerances must not be negative")


@dataclass(frozen=True)
class AssertionTests:
    """Test source with assertions; it runs in a sandbox of its own and calls the program through a pipe."""

    entry_point: str
    """Name of the function, under which the test source finds the program."""
    source: str
    """The tests: passed when they run to the end without an exception."""
    setup: str = ""
    """Source run before them in the tests' own process: helpers that they use."""
    preamble: str = ""
    """Source put before the program."""
    in_place: bool = False
    """The tests look at an argument after the call. Off, the program only ever gets copies."""

    def __post_init__(self) -> None:
        _check_entry(self.entry_point)
        for name in ("source", "setup"):
            try:
                compile(getattr(self, name), name, "exec")
            except (SyntaxError, ValueError) as error:
                raise ValueError(f"{name} of the tests of {self.entry_point} is not Python: {error}") from None
        if not self.source.strip():
            raise ValueError(f"source of {self.entry_point} is empty: tests that check nothing pass everything")


@dataclass(frozen=True)
class Run:
    """One run of a whole program."""

    input: str
    """What it reads from standard input."""
    output: str
    """What it should print."""


@dataclass(frozen=True)
class StdioTests:
    """Runs of a whole program, from standard input to standard output, compared outside the sandbox."""

    runs: tuple[Run, ...]
    """All of them must print the expected text, up to blanks at line ends and the spelling of numbers."""
    absolute_tolerance: float = 0.0
    """Numbers may differ by this much."""
    relative_tolerance: float = 0.0
    """Numbers may differ by this share of the expected one."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("runs is empty: tests that check nothing pass everything")
        if not (self.absolute_tolerance >= 0 and self.relative_tolerance >= 0):
            raise ValueError("tolerances must not be negative")


CodeTests = FunctionTests | AssertionTests | StdioTests
KINDS: dict[str, type[FunctionTests] | type[AssertionTests] | type[StdioTests]] = {
    "function": FunctionTests,
    "assertions": AssertionTests,
    "stdio": StdioTests,
}


def dump_tests(tests: CodeTests) -> str:
    """The record as JSON, for a data set's column; values that JSON has no form for are refused."""
    kind = next(name for name, record in KINDS.items() if isinstance(tests, record))
    fields = asdict(tests)
    if isinstance(tests, FunctionTests):
        for number, call in enumerate(tests.calls):
            for value in (*call.arguments, call.expected, *call.alternatives):
                if not _survives_json(value):
                    raise ValueError(
                        f"call {number} of {tests.entry_point} holds {type(value).__name__}, which JSON would change; "
                        "write assertion tests instead, or keep the record as a Python object"
                    )
    return json.dumps({"kind": kind, **fields})


def _survives_json(value: Any) -> bool:
    """Whether the value comes back equal: no tuple, set, bytes or key that is not a string."""
    if isinstance(value, list):
        return all(map(_survives_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(_survives_json, value.values()))
    return value is None or isinstance(value, (bool, int, float, str))


def load_tests(fields: Mapping[str, Any]) -> CodeTests:
    """The record that `dump_tests` wrote."""
    fields = dict(fields)
    kind = fields.pop("kind")
    if kind not in KINDS:
        raise ValueError(f"kind of tests must be one of {sorted(KINDS)}, not {kind!r}")
    for name, record in (("calls", Call), ("runs", Run)):
        if name in fields:
            fields[name] = tuple(record(**row) for row in fields[name])
    if kind == "function":
        fields["calls"] = tuple(
            Call(tuple(call.arguments), call.expected, tuple(call.alternatives)) for call in fields["calls"]
        )
    try:
        return KINDS[kind](**fields)
    except TypeError as error:
        raise ValueError(f"tests of kind {kind!r} have a field too many or too few: {error}") from None
