"""Tasks by name: the built-in ones, reasoning-gym's generators, files and data sets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from delta_rlvr.tasks.phrased_sums import PhrasedSums, SumSettings
from delta_rlvr.tasks.problem_set import ProblemSet
from delta_rlvr.tasks.sources.generators import ReasoningGym
from delta_rlvr.tasks.sources.rows import Template, load_problems
from delta_rlvr.tasks.sources.schemas import FieldNames
from delta_rlvr.tasks.task import Task

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
"""Every variant that the bundled policy was warm-started on."""


def get_task(spec: str = DEFAULT_TASK, *, template: Template | None = None) -> Task:
    """The task that a name stands for. Settings follow after "?", as in "gsm8k.jsonl?schema=gsm8k&shots=4".

    | spec | task | settings |
    |---|---|---|
    | phrased-sums, long-filler, ... | built in (`BUILT_IN`) | those of `SumSettings` |
    | reasoning-gym:chain_sum | a generator | its own, and shots, max_tokens |
    | problems.jsonl, owner/name, a folder | rows | schema, question, answer, id, subset, part, limit, heldout, shots, max_tokens |

    `template` makes the prompt from the question of a row. `heldout` is another file or data set to hold out; without
    it one row in eight is, by a hash of its question.
    """
    name, _, query = spec.partition("?")
    settings = _settings(spec, query)
    if name in BUILT_IN:
        return _built_in(name, settings)
    if name.startswith(GENERATOR_PREFIX):
        own = {key: settings.pop(key) for key in ("shots", "max_tokens") if key in settings}
        return ReasoningGym(name.removeprefix(GENERATOR_PREFIX), settings, **own)
    if "/" not in name and not name.endswith((".jsonl", ".jsonl.gz")) and not Path(name).exists():
        raise ValueError(
            f"there is no task {name!r}: use one of {', '.join(BUILT_IN)}, reasoning-gym:NAME, "
            "a .jsonl file, or a data set as OWNER/NAME"
        )
    return _rows(spec, name, settings, template)


def _built_in(name: str, settings: dict[str, Any]) -> PhrasedSums:
    task = BUILT_IN[name]
    if not settings:
        return task
    unknown = settings.keys() - SumSettings.__dataclass_fields__.keys()
    if unknown:
        known = ", ".join(SumSettings.__dataclass_fields__)
        raise ValueError(f"{name} has no setting {', '.join(sorted(unknown))}; it has {known}")
    # The settings become part of the name: problems of two variants must not share ids.
    told = "&".join(f"{key}={value}" for key, value in sorted(settings.items()))
    return PhrasedSums(f"{name}?{told}", replace(task.settings, **settings))


def _rows(spec: str, name: str, settings: dict[str, Any], template: Template | None) -> ProblemSet:
    allowed = (
        "schema",
        "question",
        "answer",
        "id",
        "subset",
        "part",
        "limit",
        "heldout",
        "shots",
        "max_tokens",
    )
    unknown = settings.keys() - set(allowed)
    if unknown:
        raise ValueError(f"{spec}: no setting {', '.join(sorted(unknown))}; rows have {', '.join(allowed)}")
    names = FieldNames(*(settings.pop(key, None) for key in ("question", "answer", "id")))
    heldout_source = settings.pop("heldout", None)
    shape = {key: settings.pop(key) for key in ("shots", "max_tokens") if key in settings}
    problems = load_problems(name, names=names, template=template, **settings)
    heldout = None
    if heldout_source is not None:
        settings.pop("limit", None)
        heldout = load_problems(str(heldout_source), names=names, template=template, **settings)
    return ProblemSet.split(name, problems, heldout, **shape)


def _settings(spec: str, query: str) -> dict[str, Any]:
    """key=value pairs joined by &, numbers and truth values as such."""
    if not query:
        return {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
    except ValueError as error:
        raise ValueError(f"{spec}: settings after '?' are key=value pairs joined by '&' ({error})") from error
    return {key: _value(text) for key, text in pairs}


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
