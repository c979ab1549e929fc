"""Tasks by name: the built-in ones, reasoning-gym's generators, files and data sets."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from delta_rlvr.bounds import MOST
from delta_rlvr.hints import did_you_mean, near_file
from delta_rlvr.specs import as_declared, guessed, split_spec, typed_settings
from delta_rlvr.tasks.grading import GRADERS, grade_batch
from delta_rlvr.tasks.phrased_sums import PhrasedSums, SumSettings
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.problem_set import ProblemSet
from delta_rlvr.tasks.sources.generators import ReasoningGym
from delta_rlvr.tasks.sources.rows import ROW_FILES, check_is_data_set, is_row_file, load_problems
from delta_rlvr.tasks.sources.schemas import FieldNames
from delta_rlvr.tasks.task import Task
from delta_rlvr.tasks.templates import chosen_template
from rlvr_graders.verdict import Verdict

DEFAULT_TASK = "phrased-sums"
GENERATOR_PREFIX = "reasoning-gym:"

BUILT_IN: dict[str, PhrasedSums] = {
    task.name: task
    for task in (
        PhrasedSums(DEFAULT_TASK),
        PhrasedSums("long-filler", SumSettings(addends=3, filler=2, max_tokens=96)),
        PhrasedSums("distractor-facts", SumSettings(addends=3, facts=2)),
        PhrasedSums("early-error", SumSettings(carries="first")),
        PhrasedSums("late-error", SumSettings(carries="last")),
    )
}
"""The variants that the bundled policy was warm-started on."""

ROW_SETTINGS = {
    "schema": "how rows are read: a name of `SCHEMAS`",
    "question": "field of the question, where no schema fits",
    "answer": "field of the answer",
    "id": "field of the id",
    "subset": "of a data set: its configuration",
    "part": "of a data set: its split (train)",
    "limit": "the most rows to read",
    "heldout": "another file or data set to hold out (default: one row in eight, by a hash of its question)",
    "template": "the prompt template: a name of `TEMPLATES` (math)",
    "template_text": "the prompt itself, with {question} where the question goes",
    "extract": "where the answer stands in a response to template_text",
    "chat": "true: the prompt is a chat message, for chat models",
    "shots": "question and answer pairs before each question, for base models, in place of a template",
    "working": "field with the steps to an answer, which the shots show before it",
    "max_tokens": "the longest response (512)",
}
"""The settings of a task made of rows."""
_OF_DATA_SETS = ("subset", "part")


def get_task(
    spec: str = DEFAULT_TASK, graded: bool = True, reads: Collection[str] | None = None, grader: str | None = None
) -> Task:
    """Return the task that `spec` names. Settings follow after "?", as in "gsm8k.jsonl?schema=gsm8k&shots=4". `graded=False`: a
    custom reward judges, so rows need no answer; it `reads` these columns (None: all). `grader`: another grader of mathematics.

    | spec | task | settings |
    |---|---|---|
    | phrased-sums, long-filler, ... | built in (`BUILT_IN`) | those of `SumSettings` |
    | reasoning-gym:chain_sum | a generator | its own, and shots, working=true, max_tokens |
    | problems.jsonl (.json, .csv, .parquet), owner/name, a folder | rows | those of `ROW_SETTINGS` |
    """
    name, written = split_spec(spec)
    settings = _values(written)
    if grader is not None and (name in BUILT_IN or name.startswith(GENERATOR_PREFIX)):
        raise ValueError(f"{name} has its own grader: leave `reward` out")
    if name in BUILT_IN:
        return _built_in(name, written)
    if name.startswith(GENERATOR_PREFIX):
        own = {key: settings.pop(key) for key in ("shots", "working", "max_tokens") if key in settings}
        return ReasoningGym(name.removeprefix(GENERATOR_PREFIX), settings, **own)
    check_task_name(name)
    return _rows(spec, name, settings, {"graded": graded, "reads": reads, "grader": grader})


def grade_problem(problem: Problem, completion: str) -> Verdict:
    """Judge one completion by the problem's grader: one of `GRADERS`, or the task that made it. Thread-safe."""
    if problem.grader in GRADERS:
        return grade_batch([problem], [completion])[0]
    try:
        task = get_task(problem.grader)
    except ValueError as error:
        raise ValueError(f"{problem.id}: nothing grades {problem.grader!r} ({error})") from None
    return task.grade(problem, completion)


def check_rows(spec: str, graded: bool = True) -> None:
    """Refuse a file of rows that does not exist, is empty, or whose first row cannot be read. Other tasks pass."""
    name, written = split_spec(spec)
    if is_row_file(name):
        settings = _values(written)
        _check_place(spec, name, settings)
        for key in ("heldout", "limit"):
            settings.pop(key, None)
        reading, _ = _reading(spec, settings, {"graded": graded})
        with warnings.catch_warnings(action="ignore"):  # they are told where all rows are read
            load_problems(name, limit=1, **reading)


def check_task_name(spec: str) -> None:
    """Refuse a name that no task can have, without reading data."""
    name = spec.partition("?")[0]
    if name in BUILT_IN or name.startswith(GENERATOR_PREFIX) or is_row_file(name):
        return
    if "/" not in name and "&" not in name and not Path(name).exists():
        near = did_you_mean(name, BUILT_IN) or near_file(Path(name))
        raise ValueError(
            f"there is no task {name!r}{near} (use one of {', '.join(BUILT_IN)}, reasoning-gym:NAME, "
            f"a file that ends in {', '.join(ROW_FILES)}, or a data set as OWNER/NAME)"
        )
    check_is_data_set(name)


def _values(written: dict[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {key: text if key == "template_text" else guessed(text) for key, text in written.items()}
    for key, least in (("shots", 0), ("limit", 1), ("max_tokens", 1)):
        if key in values and (type(values[key]) is not int or not least <= values[key] <= MOST):
            raise ValueError(f"{key}={values[key]}: give a whole number, {least} or more")
    if "chat" in values:
        values["chat"] = as_declared(written["chat"], bool, f"chat={written['chat']}")
    return values


def _built_in(name: str, written: dict[str, str]) -> PhrasedSums:
    task = BUILT_IN[name]
    settings = typed_settings(SumSettings, written, name)
    if not settings:
        return task
    # The settings are part of the name, so that problems of two variants do not share ids.
    query = "&".join(f"{key}={value}" for key, value in sorted(settings.items()))
    return PhrasedSums(f"{name}?{query}", replace(task.settings, **settings))


def _rows(spec: str, name: str, settings: dict[str, Any], judged: dict[str, Any]) -> ProblemSet:
    _check_place(spec, name, settings)
    heldout_source, limit = (settings.pop(key, None) for key in ("heldout", "limit"))
    reading, shape = _reading(spec, settings, judged)
    problems = load_problems(name, limit=limit, **reading)
    heldout = None if heldout_source is None else load_problems(str(heldout_source), **reading)
    return ProblemSet.split(name, problems, heldout, **shape)


def _check_place(spec: str, name: str, settings: Mapping[str, Any]) -> None:
    """Refuse settings that choose within a data set where there are only files."""
    given = [key for key in _OF_DATA_SETS if key in settings]
    if given and is_row_file(name) and is_row_file(str(settings.get("heldout", name))):
        raise ValueError(
            f"{spec}: a file is read whole; leave {', '.join(given)} out, or name the file of that part "
            "(a file to hold out: heldout=FILE)"
        )


def _reading(spec: str, settings: dict[str, Any], judged: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split settings into arguments of `load_problems` and of `ProblemSet.split`. `judged`: arguments of `load_problems` that depend
    on the reward."""
    if unknown := settings.keys() - ROW_SETTINGS.keys():
        near = did_you_mean(min(unknown), ROW_SETTINGS)
        raise ValueError(
            f"{spec}: there is no setting {', '.join(sorted(unknown))}{near} (rows have {', '.join(ROW_SETTINGS)})"
        )
    if empty := [key for key, value in settings.items() if value == ""]:
        raise ValueError(f"{spec}: {empty[0]} has no value: give one, or leave it out")
    shots = settings.pop("shots", 0)
    if shots and (other := settings.keys() & {"template", "template_text", "extract", "chat"}):
        raise ValueError(f"{spec}: shots replace the prompt template; leave {', '.join(sorted(other))} out")
    if "working" in settings and not shots:
        raise ValueError(f"{spec}: the working is shown in shots; give their number, as in shots=4")
    name_of, text, extract = (settings.pop(key, None) for key in ("template", "template_text", "extract"))
    asked = chosen_template(name_of, text, extract, judged["graded"])
    shape: dict[str, Any] = {"shots": shots, "worked": "working" in settings}
    if "max_tokens" in settings:
        shape["max_tokens"] = settings.pop("max_tokens")
    names = FieldNames(*(settings.pop(key, None) for key in ("question", "answer", "id")))
    chosen = bool(shots or name_of or text)
    return {
        "names": names,
        "template": None if shots else asked,
        "template_chosen": chosen,
        **judged,
        **settings,
    }, shape
