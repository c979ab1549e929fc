"""`delta-rlvr evaluate`: sample and score, score again, compare, choose a checkpoint, list the benchmarks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from delta_rlvr.commands import evaluate_display as display
from delta_rlvr.commands import evaluate_options as options
from delta_rlvr.commands.evaluate_options import add_arguments
from delta_rlvr.commands.terminal import make_console
from delta_rlvr.evaluate.benchmarks import load_benchmark, load_benchmarks
from delta_rlvr.evaluate.compare import compare_many
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.evaluate.runner import identity, run_evaluation, score_samples
from delta_rlvr.evaluate.sample_file import SampleFile, read_samples
from delta_rlvr.evaluate.selection import (
    Checkpoint,
    SelectionRule,
    checkpoints,
    select_checkpoint,
    selection_result_path,
)
from delta_rlvr.evaluate.settings import PRESETS, EvaluationSettings
from delta_rlvr.evaluate.table import FORMATS, score_table
from delta_rlvr.exit_codes import ExitCode
from delta_rlvr.files import write_json
from delta_rlvr.runs.layout import RUN
from delta_rlvr.score_units import score_unit
from delta_rlvr.specs import shown_spec
from delta_rlvr.tasks.own_reward import own_function
from delta_rlvr.words import comma_list

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the exit code."""
    console = make_console(160)
    if args.list and not args.select:
        console.print(display.list_table())
        return ExitCode.DONE
    if args.compare:
        return _compare(args, console)
    if args.samples:
        return _rescore(args, console)
    if args.select:
        return _select(args, console)
    return _evaluate(args, console)


def _evaluate(args: argparse.Namespace, console: Console) -> int:
    names = comma_list(args.benchmarks) or (PRESETS[args.preset].benchmarks if args.preset else ())
    if not names:
        raise EvaluationError("say what to evaluate on: --benchmarks or --preset (see --list)")
    name = args.model or "builtin"
    target = _result_path(args.output or f"evaluations/{_folder_name(name)}")
    result = _sample(args, console, name, names, target)
    return _finish(result, target, console)


def _sample(
    args: argparse.Namespace,
    console: Console,
    name: str,
    names: Sequence[str],
    target: Path,
    k: int | None = None,
) -> EvaluationResult:
    options.settle(args, names)
    stored = _samples_path(target)
    if target.exists() and not stored.exists():
        raise EvaluationError(
            f"{target} is there already, without the samples to go on from: choose another --output"
        )
    # Questions before the model: data that is absent should not be found after minutes of loading weights.
    templated = args.api == "chat" if args.server else options.has_template(name)
    benchmarks = load_benchmarks(names, has_template=templated, **options.question_options(args))
    settings = options.sampling_settings(args, benchmarks, k)
    loaded = None if args.server else options.load_model(name, args)
    progress = display.ConsoleProgress(console, own_reward=own_function(args.reward) is not None)
    settings, cut = options.fit_context(args, benchmarks, loaded, settings)
    if cut:
        progress.say(cut)
    sampler = options.make_sampler(args, name, loaded, settings, progress)
    model = {"name": name}
    with SampleFile(stored, identity(benchmarks, settings, model, sampler.describe())) as store:
        try:
            result = run_evaluation(
                benchmarks, sampler, settings, model=model, store=store, progress=progress, preset=args.preset
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"what was sampled is kept in {stored}; the same command goes on from there"
            ) from None
    result.write(target)
    return result


def _finish(
    result: EvaluationResult,
    target: Path,
    console: Console,
    again: str = "The same command tries only these again.",
) -> int:
    console.print(display.result_table(result))
    for name, numbers in result.document["benchmarks"].items():
        if "questions_of_benchmark" in numbers:
            whole = numbers["questions_of_benchmark"]
            console.print(
                f"{shown_spec(name)}: {numbers['questions_asked']} of its {whole} questions: not the benchmark's score"
            )
        notes = (numbers.get("note"), numbers.get("interval_note"), display.unanswered(numbers))
        for note in filter(None, notes):
            console.print(f"{shown_spec(name)}: {note}", markup=False, highlight=False)
    console.print(f"result: {target}", highlight=False, soft_wrap=True)
    if result.complete:
        return ExitCode.DONE
    failures = result.document["failures"]
    first = failures[0]
    console.print(
        f"incomplete: {len(failures)} samples failed and are not scored; the first is {first['benchmark']} "
        f"{first['problem']} sample {first['sample']}: {first['reason']}. {again}",
        highlight=False,
        soft_wrap=True,
    )
    return ExitCode.INCOMPLETE


def _rescore(args: argparse.Namespace, console: Console) -> int:
    path = Path(args.samples)
    header, samples = read_samples(path)
    stored = header or {}
    if args.benchmarks or not stored.get("benchmarks"):
        names = comma_list(args.benchmarks) or list(dict.fromkeys(sample.key.benchmark for sample in samples))
        options.settle(args, names)
        benchmarks = load_benchmarks(names, **options.question_options(args))
    else:
        described = stored["benchmarks"].items()
        loads = {name: facts.get("load") if isinstance(facts, dict) else None for name, facts in described}
        benchmarks = [load_benchmark(**(load or {"name": name})) for name, load in loads.items()]
    if stored.get("settings"):
        settings = EvaluationSettings.from_dict(stored["settings"])
    else:
        settings = EvaluationSettings(samples=1 + max(sample.key.sample for sample in samples))
    if args.k is not None:
        settings = replace(settings, samples=args.k)
        samples = [sample for sample in samples if sample.key.sample < args.k]
    if args.limit is not None:
        kept = {(benchmark.name, problem.id) for benchmark in benchmarks for problem in benchmark.problems}
        samples = [one for one in samples if (one.key.benchmark, one.key.problem) in kept]
    target = _result_path(args.output or str(path.parent / f"{path.name.split('.')[0]}.rescored.json"))
    if target.exists():
        raise EvaluationError(f"{target} is there already: choose another --output")
    result = score_samples(
        benchmarks,
        samples,
        settings=settings,
        model=stored.get("model") or {"name": args.model or path.name},
        backend=stored.get("backend") or {"kind": "stored samples"},
        progress=display.ConsoleProgress(console, own_reward=own_function(args.reward) is not None),
    )
    if not stored.get("settings"):
        console.print(
            "the file does not say how its samples were drawn, so the result has no sampling settings"
        )
        unknown = dict.fromkeys(result.document["settings"], None)
        result.document["settings"] = unknown | {"samples": settings.samples}
    result.write(target)
    return _finish(result, target, console, "Sample them, and score the file again.")


def _compare(args: argparse.Namespace, console: Console) -> int:
    if len(args.compare) < 2:
        raise EvaluationError("--compare needs at least two results: the baseline first")
    wrong = [path for path in comma_list(args.output or "") if Path(path).suffix not in (".json", *FORMATS)]
    if wrong:
        raise EvaluationError(
            f"--output {wrong[0]}: a comparison is written as {', '.join((*FORMATS, '.json'))}; several files are joined by commas"
        )
    named = [_named_results(text) for text in args.compare]
    sides = {name: [EvaluationResult.load(path) for path in comma_list(paths)] for name, paths in named}
    if len(sides) < len(args.compare):
        raise EvaluationError("--compare: a result is given twice")
    baseline, *others = sides
    comparisons = compare_many(
        sides[baseline],
        {name: sides[name] for name in others},
        baseline_name=baseline,
        benchmarks=comma_list(args.benchmarks) or None,
        seed=args.seed or 0,
    )
    table = score_table(sides, comma_list(args.benchmarks) or None)
    console.print(display.method_table(table))
    console.print(display.comparison_table(comparisons))
    for comparison in comparisons:
        for sentence in comparison.notes:
            console.print(f"- {sentence}", highlight=False)
    for target in map(Path, comma_list(args.output or "")):
        if target.suffix == ".json":
            write_json(target, [asdict(comparison) for comparison in comparisons])
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(FORMATS[target.suffix](table), encoding="utf-8")
        console.print(f"comparison: {target}", highlight=False, soft_wrap=True)
    return ExitCode.DONE


def _named_results(text: str) -> tuple[str, str]:
    """NAME=RESULT,RESULT, or results that are called as they are written."""
    name, equals, paths = text.partition("=")
    return (name, paths) if equals and "/" not in name and paths else (text, text)


def _select(args: argparse.Namespace, console: Console) -> int:
    rule = SelectionRule.parse(args.rule)
    if args.server:
        raise EvaluationError("--select loads each checkpoint itself: it cannot go through a server")

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    run_folder = Path(args.select)
    if args.list:
        errors = Console(stderr=True, soft_wrap=True, highlight=False)
        for one in checkpoints(run_folder, errors.print).values():
            print(one.model, selection_result_path(run_folder, rule, one.name), sep="\t")
        return ExitCode.DONE

    def evaluate(checkpoint: Checkpoint, path: Path) -> EvaluationResult:
        say(checkpoint.name)
        return _sample(args, console, str(checkpoint.model), [rule.benchmark], path, rule.k)

    choice = select_checkpoint(run_folder, rule, evaluate, say=say)
    shown = score_unit(own_function(args.reward)).finer.plain
    for step, score in choice["scores"].items():
        say(f"{'*' if int(step) == choice['step'] else ' '} step {step}: {shown(score)}")
    return ExitCode.DONE


def _folder_name(model: str) -> str:
    """What the evaluation of a model is called: by its folder, and by its run too, as folders are named alike in every run."""
    path = Path(model).expanduser()
    if not path.is_dir():
        return path.name
    folder = path.resolve()
    return f"{folder.parent.name}-{folder.name}" if (folder.parent / RUN).is_file() else folder.name


def _result_path(output: str) -> Path:
    path = Path(output)
    return path if path.suffix == ".json" else path / "result.json"


def _samples_path(result: Path) -> Path:
    stem = "" if result.name == "result.json" else f"{result.stem}."
    return result.with_name(f"{stem}samples.jsonl")
