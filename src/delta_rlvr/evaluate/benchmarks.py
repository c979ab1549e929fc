"""Benchmarks by name: the source of their data, their prompts and their graders."""

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
from delta_rlvr.evaluate.settings import HELDOUT, REWARD_FILE
from delta_rlvr.hints import did_you_mean, near_file
from delta_rlvr.specs import split_spec, with_settings
from delta_rlvr.tasks import templates
from delta_rlvr.tasks.contents import content_digest
from delta_rlvr.tasks.custom_reward import NAMED, CustomReward, custom_function, judged_by, judged_by_function
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.registry import BUILT_IN, GENERATOR_PREFIX, check_rows, check_task_name, get_task
from delta_rlvr.tasks.sources.rows import ROW_FILES, data_file, is_row_file, label_of, read_rows, tell_options
from delta_rlvr.tasks.sources.schemas import FieldNames, RowError, RowIds
from delta_rlvr.tasks.task import HELDOUT_SAMPLING
from delta_rlvr.tasks.templates import Template

Reader = Callable[[readers.Row, Template], Problem]
TASK_PREFIX = "task:"
TASK_QUESTIONS = 256
"""The default number of held-out problems of an endless task."""


@dataclass(frozen=True)
class Benchmark:
    name: str
    title: str
    questions: int
    """The number of questions; data with another number is refused."""
    files: tuple[str, ...]
    """Paths below $DELTA_RLVR_DATA, of which the first that exists is used."""
    hub: HubSource
    read: Reader
    template: Template = templates.MATH
    """The default template."""
    drawn_from: int | None = None
    """The size of the whole data set, if `questions` of it are drawn."""
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
            note="600 questions with the smallest hashes of their ids; it is not known which 600 the paper drew",
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
    """Return the questions of a benchmark, of a file of {problem, answer} ("FILE?question=COLUMN&answer=COLUMN") or of "task:SPEC".

    `limit` takes the first questions only, and the result records it. `seed` draws a task's held-out problems. The style "auto" uses
    a chat if the model `has_template`; prompts of tasks and `template_text` stay plain text. `template` names a template of
    `tasks.templates`; `template_text` and `extract` give a custom one. `reward` replaces the benchmark's grader: see
    `tasks.custom_reward`.
    """
    if limit is not None and limit < 1:
        raise EvaluationError(f"limit = {limit} must be at least 1")
    # Stored with the result, so that `rescore` can load the same questions.
    load: dict[str, Any] = {"name": name, "limit": limit, "template": template}
    given = {"template_text": template_text, "extract": extract, "reward": reward}
    load |= {key: value for key, value in given.items() if value is not None}
    if name.startswith(TASK_PREFIX) or name.partition("?")[0] in BUILT_IN:
        # Policies are trained on a task's prompts as they are, so a chat is used only on request.
        load |= {"style": "chat" if style == "chat" else "plain", "seed": seed}
        questions = _task(name.removeprefix(TASK_PREFIX), load)
    else:
        # Custom prompts and those for base models stay plain text, as in training, so that scores agree.
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
    """Refuse an unknown name, and a file or task whose first row cannot be read. Imports nothing slow."""
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
            f"{benchmark.name} has {benchmark.questions} questions, but the data ({data.source}) has {len(problems)}: "
            "the average would not be comparable. To evaluate on this file, give its path"
        )
    description = {"title": benchmark.title, "grader": benchmark.template.grader, **_described(asked)}
    description |= {"source": data.source, "note": benchmark.note}
    return _questions(benchmark.name, problems, description, load)


def load_benchmarks(names: Sequence[str], **options: Any) -> list[Questions]:
    """Load several benchmarks; one error names all missing data."""
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
        works = ""
        if chosen.grader == "choice" and is_row_file(load["name"].partition("?")[0]):
            asked = {key: load.get(key) for key in ("template", "template_text", "extract")}
            works = f": use benchmarks={TASK_PREFIX + with_settings(load['name'], asked)!r}, with the rows that training holds out"
        raise EvaluationError(
            f"{name} is graded as {own.grader}, but the template {chosen.name} is for {chosen.grader}{works}"
        )
    return chosen


def _judged(questions: Questions, spec: str | None) -> Questions:
    """Return the questions with the grader that `reward` names: another grader of mathematics, or a custom reward."""
    if spec is None or (spec in NAMED and questions.seeded_as is not None):  # `get_task` has set a task's grader
        return questions
    if spec in NAMED:
        if other := {problem.grader for problem in questions.problems} - {"math"}:
            raise EvaluationError(f"reward={spec!r} judges mathematics, but {questions.name} is graded as {min(other)}")
        graded = tuple(replace(problem, grader=spec) for problem in questions.problems)
        return replace(questions, problems=graded, description={**questions.description, "grader": spec})
    reward = CustomReward(spec)
    problems = tuple(judged_by_function(questions.problems))
    reward.check(problems[0], training=False)
    note = f"scores are mean rewards of {reward.spec}"
    described = {"grader": f"reward {reward.spec}", "note": note, REWARD_FILE: content_digest(reward.spec)}
    description = {**questions.description, **described}
    return replace(questions, problems=problems, description=description, grade=reward.grade)


def _described(template: Template) -> dict[str, Any]:
    return {"template": template.name, "prompt": template.text, "extract": template.extract}


def read_problems(data: FoundRows, read: Reader, template: Template) -> list[Problem]:
    """Return a problem for each row. Either all rows have ids, or all get a hash of their question."""
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
        raise EvaluationError(f"{unnamed}: it has no id, but other rows have one: give every row an id, or none")
    return problems


def _draw(problems: Sequence[Problem], count: int) -> list[Problem]:
    """Draw `count` problems by the hashes of their ids, and return them in the order of the rows."""
    names = sorted((problem.id for problem in problems), key=lambda i: hashlib.sha256(i.encode()).digest())
    chosen = set(names[:count])
    return [problem for problem in problems if problem.id in chosen]


def _file_and_columns(name: str) -> tuple[Path, FieldNames]:
    """Split `FILE?question=COLUMN&answer=COLUMN` into the file and its column names."""
    file, settings = split_spec(name)
    columns = {one.name for one in fields(FieldNames)}
    if other := settings.keys() - columns:
        raise EvaluationError(
            f"{name}: a file takes the settings {', '.join(sorted(columns))}, not {', '.join(sorted(other))}. For a prompt use "
            f"`template` or `template_text`, for a number of questions `limit`. For all settings of a task, with the rows that "
            f"training holds out, use benchmarks={TASK_PREFIX + name!r}"
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
    if load["template"] is load.get("template_text") is None:
        whole = TASK_PREFIX + with_settings(spec, {"template": templates.CHOICE.name})
        tell_options(str(path), problems[0].meta["row"], f"--template choice shows them, as --benchmarks {whole!r}")
    name = label_of(path)
    description = {"title": name, "grader": "math", **_described(asked), "source": data.source}
    description["sampling"] = dict(HELDOUT_SAMPLING)
    return _questions(name, problems, description, load)


def _task(spec: str, load: dict[str, Any]) -> Questions:
    endless = spec.partition("?")[0] in BUILT_IN or spec.startswith(GENERATOR_PREFIX)
    asked = {key: load.get(key) for key in ("template", "template_text", "extract")}
    if endless and (unused := [key for key, value in asked.items() if value is not None]):
        raise EvaluationError(f"task {spec} has its own prompts: leave {', '.join(unused)} out")
    # As in `train`, options of the prompt are settings of the task.
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
    """Return the problems as they are for the style "plain"; else with each plain text as one user message."""
    if style == "plain":
        return tuple(problems)
    return tuple(
        replace(problem, prompt=[{"role": "user", "content": problem.prompt}])
        if isinstance(problem.prompt, str)
        else problem
        for problem in problems
    )
