"""Benchmarks by name: where their data is, how a question is asked, and how an answer is graded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from delta_rlvr.evaluate import readers
from delta_rlvr.evaluate.data import AbsentData, FoundRows, HubSource, find_rows, read_file
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.records import Questions
from delta_rlvr.evaluate.settings import HELDOUT
from delta_rlvr.hints import did_you_mean, near_file
from delta_rlvr.specs import split_spec, with_settings
from delta_rlvr.tasks import templates
from delta_rlvr.tasks.custom_reward import NAMED, CustomReward, custom_function, judged_by, judged_by_function
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.registry import BUILT_IN, GENERATOR_PREFIX, check_rows, check_task_name, get_task
from delta_rlvr.tasks.sources.rows import ROW_FILES, data_file, is_row_file, label_of, read_rows
from delta_rlvr.tasks.sources.schemas import FieldNames, RowError, RowIds
from delta_rlvr.tasks.task import HELDOUT_SAMPLING
from delta_rlvr.tasks.templates import Template

Reader = Callable[[readers.Row, Template], Problem]
TASK_PREFIX = "task:"
TASK_QUESTIONS = 256
"""Held-out problems of an endless task, where no number is given."""


@dataclass(frozen=True)
class Benchmark:
    """One named benchmark."""

    name: str
    title: str
    questions: int
    """How many it has; data with another number is refused."""
    files: tuple[str, ...]
    """Names below $DELTA_RLVR_DATA, the first that is there."""
    hub: HubSource
    read: Reader
    template: Template = templates.MATH
    """How it is asked, where nobody asks for another template."""
    drawn_from: int | None = None
    """Size of the whole set, where `questions` of it are drawn."""
    note: str | None = None


def _math(name: str, title: str, hub: HubSource, questions: int = 30) -> Benchmark:
    file = f"math/{name.replace('-', '_')}.jsonl"
    return Benchmark(name, title, questions, (file,), hub, readers.read_math)


BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        _math("aime24", "AIME 2024", HubSource("HuggingFaceH4/aime_2024")),
        _math("aime25", "AIME 2025", HubSource("MathArena/aime_2025")),
        _math("aime26", "AIME 2026", HubSource("MathArena/aime_2026")),
        _math("hmmt25-feb", "HMMT February 2025", HubSource("MathArena/hmmt_feb_2025")),
        _math("hmmt25-nov", "HMMT November 2025", HubSource("MathArena/hmmt_nov_2025")),
        _math("hmmt26-feb", "HMMT February 2026", HubSource("MathArena/hmmt_feb_2026"), 33),
        _math("brumo25", "BRUMO 2025", HubSource("MathArena/brumo_2025")),
        _math("math500", "MATH-500", HubSource("HuggingFaceH4/MATH-500", "test"), 500),
        Benchmark(
            "gsm8k",
            "GSM8K",
            1319,
            ("math/gsm8k_test.jsonl",),
            HubSource("openai/gsm8k", "test", "main"),
            readers.read_gsm8k,
        ),
        Benchmark(
            "humaneval",
            "HumanEval",
            164,
            ("code/HumanEval.jsonl.gz", "code/HumanEval.jsonl"),
            HubSource("openai/openai_humaneval", "test"),
            readers.read_humaneval,
            templates.CODE_FUNCTION,
        ),
        Benchmark(
            "humaneval-plus",
            "HumanEval+",
            164,
            ("code/humaneval_plus.jsonl", "code/HumanEvalPlus.jsonl.gz", "code/HumanEvalPlus.jsonl"),
            HubSource("evalplus/humanevalplus", "test"),
            readers.read_humaneval,
            templates.CODE_FUNCTION,
        ),
        Benchmark(
            "mbpp-plus",
            "MBPP+",
            378,
            ("code/mbpp_plus.jsonl", "code/MbppPlus.jsonl.gz", "code/MbppPlus.jsonl"),
            HubSource("evalplus/mbppplus", "test"),
            readers.read_mbpp_plus,
            readers.DESCRIBED_FUNCTION,
        ),
        Benchmark(
            "livecodebench",
            "LiveCodeBench v6",
            1055,
            ("code/livecodebench.jsonl", "code/livecodebench.jsonl.gz"),
            HubSource("livecodebench/code_generation_lite", "test", files="test*.jsonl"),
            readers.read_livecodebench,
            templates.CODE,
            note="release_v6: test.jsonl to test6.jsonl together",
        ),
        Benchmark(
            "gpqa-diamond",
            "GPQA-Diamond",
            198,
            ("choice/gpqa_diamond.jsonl",),
            HubSource("Idavidrein/gpqa", "train", "gpqa_diamond"),
            readers.read_gpqa,
            templates.CHOICE,
            note="gated on the hub: accept its terms there first",
        ),
        Benchmark(
            "mmlu-pro",
            "MMLU-Pro (600)",
            600,
            ("choice/mmlu_pro.jsonl",),
            HubSource("TIGER-Lab/MMLU-Pro", "test"),
            readers.read_mmlu_pro,
            templates.CHOICE,
            drawn_from=12_032,
            note="600 questions with the smallest hashes of their ids; which 600 the paper drew is not known",
        ),
    )
}


def load_benchmark(
    name: str,
    *,
    limit: int | None = None,
    style: Literal["chat", "plain", "auto"] = "auto",
    has_template: bool = False,
    template: str | None = None,
    template_text: str | None = None,
    extract: str | None = None,
    reward: str | None = None,
    seed: int = 0,
) -> Questions:
    """The questions of a named benchmark, of a file of {problem, answer} (or "FILE?question=COLUMN&answer=COLUMN"), or of "task:SPEC".

    `limit` takes the first questions only, which the result says. `seed` draws a task's held-out problems. The
    style "auto" is a chat where the model `has_template` for one; a task's own prompts and `template_text` then stay plain text.
    `template` names another prompt of `tasks.templates` than the benchmark's own; `template_text` and `extract` give a custom one.
    `reward` names a function that judges in the place of the benchmark's grader: see `tasks.custom_reward`.
    """
    if limit is not None and limit < 1:
        raise EvaluationError(f"limit = {limit} must be at least 1")
    # How to load the same questions again: scoring stored samples needs no more than this.
    load: dict[str, Any] = {"name": name, "limit": limit, "template": template}
    given = {"template_text": template_text, "extract": extract, "reward": reward}
    load |= {key: value for key, value in given.items() if value is not None}
    if name.startswith(TASK_PREFIX) or name.partition("?")[0] in BUILT_IN:
        # A task writes its own prompts, and a policy is trained on them as they are: a chat only where asked for.
        load |= {"style": "chat" if style == "chat" else "plain", "seed": seed}
        questions = _task(name.removeprefix(TASK_PREFIX), load)
    else:
        # A custom prompt and one for base models stay as they are, as in training, so that both give the same score.
        plain = template in templates.TEMPLATES and templates.template(template).plain
        if plain and style == "chat":
            raise EvaluationError(f"the template {template} is plain text: leave `style` out")
        chat = style == "chat" or (style == "auto" and has_template and template_text is None and not plain)
        load["style"] = "chat" if chat else "plain"
        if is_row_file(name.partition("?")[0]):
            questions = _own_file(name, load)
        elif name in BENCHMARKS:
            questions = _named(BENCHMARKS[name], load)
        else:
            raise _no_such_benchmark(name)
    return _judged(questions, reward)


def check_benchmark(name: str, graded: bool = True) -> None:
    """Refuse a name that no benchmark has, and a file or task whose first row cannot be read. Nothing that takes seconds is loaded."""
    if name.startswith(TASK_PREFIX):
        spec = name.removeprefix(TASK_PREFIX)
        check_task_name(spec)
        check_rows(spec, graded)
    elif is_row_file(name.partition("?")[0]):
        path, names = _file_and_columns(name)
        first = FoundRows(list(islice(read_rows(path), 1)), {"file": path.name})
        read_problems(first, partial(readers.read_math, graded=graded, names=names), templates.MATH)
    elif name not in BENCHMARKS and name.partition("?")[0] not in BUILT_IN:
        raise _no_such_benchmark(name)


def _no_such_benchmark(name: str) -> EvaluationError:
    known = [*BENCHMARKS, *BUILT_IN]
    near = did_you_mean(name, known) or near_file(Path(name.partition("?")[0]))
    return EvaluationError(
        f"there is no benchmark {name!r}{near} (there are: {', '.join(known)}, any file of "
        f"{{problem, answer}} that ends in {', '.join(ROW_FILES)}, and task:SPEC)"
    )


def _named(benchmark: Benchmark, load: dict[str, Any]) -> Questions:
    data = find_rows(benchmark.name, benchmark.files, benchmark.hub)
    asked = _template(benchmark.name, benchmark.template, load)
    problems = read_problems(data, benchmark.read, asked)
    if benchmark.drawn_from is not None and len(problems) > benchmark.questions:
        problems = _draw(problems, benchmark.questions)
    if len(problems) != benchmark.questions:
        raise EvaluationError(
            f"{benchmark.name} has {benchmark.questions} questions, and the data ({data.source}) has {len(problems)}: "
            "an average over another set would not compare. Ask for the file by its path if it is meant"
        )
    description = {"title": benchmark.title, "grader": benchmark.template.grader, **_described(asked)}
    description |= {"source": data.source, "note": benchmark.note}
    return _questions(benchmark.name, problems, description, load)


def load_benchmarks(names: Sequence[str], **options: Any) -> list[Questions]:
    """Several benchmarks; data that is absent is named for all of them at once."""
    if not names:
        raise EvaluationError("give `benchmarks`, one or more names, or a `preset`")
    loaded, absent = [], []
    for name in names:
        try:
            loaded.append(load_benchmark(name, **options))
        except AbsentData as error:
            absent.append(str(error))
    if absent:
        raise AbsentData("\n".join(absent))
    return loaded


def _template(name: str, own: Template, load: dict[str, Any]) -> Template:
    rewarded = custom_function(load.get("reward")) is not None
    try:
        chosen = templates.chosen_template(
            load["template"], load.get("template_text"), load.get("extract"), not rewarded, own
        )
    except ValueError as error:
        raise EvaluationError(str(error)) from None
    if chosen.grader != own.grader and not rewarded:
        raise EvaluationError(
            f"{name} is graded as {own.grader}, and the template {chosen.name} is for {chosen.grader}"
        )
    return chosen


def _judged(questions: Questions, spec: str | None) -> Questions:
    """The same questions, judged by what `reward` names: another grader of mathematics, or a custom reward."""
    if spec is None or (spec in NAMED and questions.seeded_as is not None):  # a task has its grader already
        return questions
    if spec in NAMED:
        if other := {problem.grader for problem in questions.problems} - {"math"}:
            raise EvaluationError(f"reward={spec!r} judges mathematics, and {questions.name} is {min(other)}")
        graded = tuple(replace(problem, grader=spec) for problem in questions.problems)
        return replace(questions, problems=graded, description={**questions.description, "grader": spec})
    reward = CustomReward(spec)
    problems = tuple(judged_by_function(questions.problems))
    reward.check(problems[0], training=False)
    note = f"scores are mean rewards of {reward.spec}"
    description = {**questions.description, "grader": f"reward {reward.spec}", "note": note}
    return replace(questions, problems=problems, description=description, grade=reward.grade)


def _described(template: Template) -> dict[str, Any]:
    return {"template": template.name, "prompt": template.text, "extract": template.extract}


def read_problems(data: FoundRows, read: Reader, template: Template) -> list[Problem]:
    """A problem for each row, all with ids of their own or all without (then named by a hash of the question)."""
    problems: list[Problem] = []
    ids, named, unnamed = RowIds(), False, None
    for where, row in data.rows:
        try:
            problem = read(row, template)
        except RowError as error:
            raise EvaluationError(error.in_full(where, data.source.get("file", "FILE"))) from None
        named, unnamed = named or bool(problem.id), unnamed or (None if problem.id else where)
        try:
            name = ids.of(problem.id, problem.meta.get("question", problem.prompt), where)
        except ValueError as error:
            raise EvaluationError(str(error)) from None
        problems.append(replace(problem, id=name))
    if unnamed and named:
        raise EvaluationError(f"{unnamed}: it has no id, while other rows have one: give every row an id, or none")
    return problems


def _draw(problems: Sequence[Problem], count: int) -> list[Problem]:
    """`count` problems, the same ones whatever the order of the rows, in the order of the rows."""
    names = sorted((problem.id for problem in problems), key=lambda i: hashlib.sha256(i.encode()).digest())
    chosen = set(names[:count])
    return [problem for problem in problems if problem.id in chosen]


def _file_and_columns(name: str) -> tuple[Path, FieldNames]:
    """A file whose rows are all asked, and what its columns are called: `FILE?question=COLUMN&answer=COLUMN`."""
    file, settings = split_spec(name)
    columns = {one.name for one in fields(FieldNames)}
    if other := settings.keys() - columns:
        raise EvaluationError(
            f"{name}: a file takes the settings {', '.join(sorted(columns))}, not {', '.join(sorted(other))}. Prompts are given with "
            f"`template` or `template_text`, a number of questions with `limit`; a task takes more settings, and asks the rows that "
            f"training held out: use benchmarks={TASK_PREFIX + name!r}"
        )
    return data_file(Path(file)), FieldNames(**settings)


def _own_file(spec: str, load: dict[str, Any]) -> Questions:
    path, names = _file_and_columns(spec)
    data = FoundRows(read_file(path), {"file": path.name})
    asked = _template(str(path), templates.MATH, load)
    read = partial(readers.read_math, graded=custom_function(load.get("reward")) is None, names=names)
    problems = read_problems(data, read, asked)
    if not problems:
        raise EvaluationError(f"{path} has no rows")
    name = label_of(path)
    description = {"title": name, "grader": "math", **_described(asked), "source": data.source}
    description["sampling"] = dict(HELDOUT_SAMPLING)
    return _questions(name, problems, description, load)


def _task(spec: str, load: dict[str, Any]) -> Questions:
    endless = spec.partition("?")[0] in BUILT_IN or spec.startswith(GENERATOR_PREFIX)
    asked = {key: load.get(key) for key in ("template", "template_text", "extract")}
    if endless and (unused := [key for key, value in asked.items() if value is not None]):
        raise EvaluationError(f"task {spec} writes its own prompts: leave {', '.join(unused)} out")
    # As `train` has it: what is said about the prompt is part of the task.
    spec = with_settings(spec, asked)
    try:
        task = get_task(spec, **judged_by(load.get("reward")))
        count = load["limit"] or (TASK_QUESTIONS if endless else None)
        problems = task.problems("heldout", count, load["seed"])
    except (ValueError, OSError, ImportError) as error:
        raise EvaluationError(f"task {spec}: {error}") from error
    description = {
        "title": spec,
        "grader": spec,
        "prompt": "the task's own",
        "source": {"task": spec, "split": "heldout", "seed": load["seed"]},
        "max_tokens": task.max_tokens,
        "sampling": dict(HELDOUT_SAMPLING),
        "load": load,
    }
    return Questions(spec, _with_style(problems, load["style"]), description, task.grade, seeded_as=HELDOUT)


def _questions(name: str, problems: Sequence[Problem], description: dict[str, Any], load: dict[str, Any]) -> Questions:
    kept = _with_style(problems[: load["limit"]], load["style"])
    partial = {"questions_of_benchmark": len(problems)} if len(kept) < len(problems) else {}
    return Questions(name, kept, description | partial | {"load": load})


def _with_style(problems: Sequence[Problem], style: str) -> tuple[Problem, ...]:
    """The problems as plain text, or as one message of a user; problems that are chats already stay."""
    if style == "plain":
        return tuple(problems)
    return tuple(
        replace(problem, prompt=[{"role": "user", "content": problem.prompt}])
        if isinstance(problem.prompt, str)
        else problem
        for problem in problems
    )
