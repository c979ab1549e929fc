"""`delta-rlvr evaluate`: sample and score a model, rescore samples, compare results, select a checkpoint, list benchmarks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

from rich.console import Console

from delta_rlvr.commands import evaluate_display as display
from delta_rlvr.commands.flags import as_flags
from delta_rlvr.evaluate.benchmarks import check_benchmark
from delta_rlvr.evaluate.compare import compare_many
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.evaluation import OF_QUESTIONS, EvaluationRequest, has_template, rescore, stored_differences
from delta_rlvr.evaluate.evaluation import evaluate as evaluate_model
from delta_rlvr.evaluate.progress import ConsoleProgress
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.evaluate.selection import (
    PAPER_RULE,
    Checkpoint,
    SelectionRule,
    checkpoints,
    select_checkpoint,
    selection_result_path,
)
from delta_rlvr.evaluate.settings import PRESETS
from delta_rlvr.evaluate.table import FORMATS, WRITTEN, score_table
from delta_rlvr.exit_codes import ExitCode
from delta_rlvr.files import replaces, write_json
from delta_rlvr.score_units import score_unit
from delta_rlvr.specs import shown_spec
from delta_rlvr.tasks.custom_reward import custom_function
from delta_rlvr.tasks.templates import TEMPLATES
from delta_rlvr.terminal import make_console, plain_console, plain_warnings
from delta_rlvr.words import comma_list
from rlvr_graders.extract import EXTRACTORS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Samples a model on benchmarks, grades the answers, averages and compares scores. If it is interrupted, the same command "
        "resumes. Exit codes: 0 complete, 1 failed, 2 bad input, 3 some samples failed and are named, 130 interrupted."
    )
    what = parser.add_argument_group("what to do (without any of these: sample and score)").add_argument
    what(
        "--list",
        action="store_true",
        help="list the benchmarks and where their data is expected; with --select: list checkpoints without a result",
    )
    what("--samples", metavar="FILE", help="score stored completions (.jsonl, or a result .json); needs no model")
    what(
        "--compare",
        nargs="+",
        metavar="RESULT",
        help="compare results with the first one, in a table of methods and benchmarks; NAME=RESULT names a row; commas join several "
        "results of one method (seeds); --output FILE.md,FILE.tex,FILE.csv,FILE.json writes the table",
    )
    what("--select", metavar="RUN", help="evaluate the checkpoints of a run and select one by --rule")
    what("--rule", help=f"the rule of --select (default: {PAPER_RULE}, the paper's)")

    asked = parser.add_argument_group("model and questions").add_argument
    asked("--model", help="folder, hub id, builtin (default), or the server's name for it")
    asked(
        "--benchmarks",
        default="",
        metavar="A,B",
        help="names from --list, files (.jsonl, .jsonl.gz, .json, .csv, .parquet; FILE?question=COLUMN&answer=COLUMN names the "
        "columns), task:SPEC",
    )
    asked("--preset", choices=list(PRESETS), help="the paper's benchmarks and sampling settings")
    asked("--limit", type=int, metavar="N", help="only the first N questions of each benchmark")
    asked("--style", choices=["auto", "chat", "plain"], default="auto", help="chat template or plain text")
    asked("--template", metavar="NAME", help=f"prompt template in place of the benchmark's own: {', '.join(TEMPLATES)}")
    asked(
        "--template_text",
        metavar="TEXT",
        help="a custom prompt, with {question} where the question goes; it asks for \\boxed{}, 'Answer: X' or '#### X', "
        "otherwise --extract says where the answer stands",
    )
    asked(
        "--extract",
        choices=list(EXTRACTORS),
        metavar="WHERE",
        help=f"where the answer stands in responses to --template_text: {', '.join(EXTRACTORS)}",
    )
    asked(
        "--reward",
        metavar="PLACE",
        help="reward in place of the grader: math-verify, or a custom function as my.py:function or package.module:function (TRL's "
        "signature)",
    )

    drawn = parser.add_argument_group(
        "sampling (default: the preset's, a built-in task's, else the paper's)"
    ).add_argument
    drawn("-k", "--samples-per-question", type=int, metavar="K", dest="k")
    drawn("--max-tokens", type=int, metavar="N")
    drawn("--temperature", type=float, metavar="T")
    drawn("--top-p", type=float, metavar="P")
    drawn("--seed", type=int, metavar="S")
    drawn("--stop", action="append", metavar="TEXT", help="a text that ends a completion; can be repeated")

    local = parser.add_argument_group("model in this process").add_argument
    local("--batch-size", type=int, default=16, metavar="N", help="samples at once (default: 16)")
    local("--device", help="cpu, cuda, ... (default: cuda where there is one)")
    local("--dtype", help="float32, bfloat16, ... (default: bfloat16 on cuda, else float32)")

    behind = "model behind an OpenAI-compatible server (vLLM, SGLang, ...)"
    server = parser.add_argument_group(behind).add_argument
    server("--server", metavar="URL", help="such as http://localhost:8000/v1")
    server(
        "--api",
        choices=["chat", "completions"],
        help="chat goes through the server's chat template (default: chat; completions for a template of plain text)",
    )
    server("--concurrency", type=int, default=32, metavar="N", help="requests at once (default: 32)")
    server("--timeout", type=float, default=3600.0, metavar="S", help="longest time of a request, in seconds")
    server("--retries", type=int, default=5, metavar="N", help="retries of a failed request")
    server(
        "--api-key-env",
        default="OPENAI_API_KEY",
        metavar="NAME",
        help="environment variable with the API key, if one is needed",
    )
    parser.add_argument(
        "--output",
        metavar="PATH",
        help="a folder or a .json file (default: evaluations/MODEL, or evaluations/RUN-MODEL for a model of a run; --compare: none)",
    )


@plain_warnings(lambda text: print(text, file=sys.stderr))
def run(args: argparse.Namespace) -> int:
    console = make_console(160)
    _check_used(args)
    if args.list and not args.select:
        print("\n".join(display.listed()))
        return ExitCode.DONE
    if args.compare:
        return _compare(args, console)
    request = request_of(args)
    if args.select:
        return _select(args, request, console)
    progress = _progress(request, console)
    if args.samples:
        result, target = rescore(args.samples, request, progress)
        return _finish(result, target, console, "Sample these, then score the file again.")
    return _finish(evaluate_model(request, progress), request.target, console)


_OF_SERVER = ("api", "concurrency", "timeout", "retries", "api_key_env")
_OF_PROCESS = ("batch_size", "device", "dtype")
_OF_SAMPLING = ("max_tokens", "temperature", "top_p", "stop", "server", *_OF_SERVER, *_OF_PROCESS)
_OF_REQUEST = ("model", "preset", *OF_QUESTIONS, "k")


def _check_used(args: argparse.Namespace) -> None:
    """Refuse options that the work does not read: they would change nothing."""
    defaults = {one.name: one.default for one in fields(EvaluationRequest)}

    def refuse(names: Sequence[str], why: str) -> None:
        given = [name for name in names if getattr(args, name) not in (None, defaults[name])]
        flags = ["-k" if one == "k" else _flag(one) for one in given]
        if flags:
            raise EvaluationError(f"{why}: leave {', '.join(flags)} out")

    if args.compare:
        refuse((*_OF_REQUEST, *_OF_SAMPLING), "--compare reads stored results")
    elif args.samples:
        refuse((*_OF_SAMPLING, "seed"), "--samples reads stored completions")
    elif args.server:
        refuse(_OF_PROCESS, "a model in this process has these, and --server none")
    else:
        refuse(_OF_SERVER, "these belong to --server")
    if args.rule is not None and not args.select:
        raise EvaluationError("--rule belongs to --select: leave it out")


def request_of(args: argparse.Namespace) -> EvaluationRequest:
    """Return the options as a request to the library."""
    given = {one.name: getattr(args, one.name) for one in fields(EvaluationRequest)}
    given["benchmarks"] = comma_list(args.benchmarks)
    return EvaluationRequest(**{name: value for name, value in given.items() if value is not None})


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-') if name != 'template_text' else name}"


def _progress(request: EvaluationRequest, console: Console) -> ConsoleProgress:
    flags = {one.name: _flag(one.name) for one in fields(EvaluationRequest)}
    return ConsoleProgress(console, custom_function(request.reward) is not None, lambda text: as_flags(text, flags))


def _finish(
    result: EvaluationResult, target: Path, console: Console, again: str = "The same command retries only these."
) -> int:
    console.print(display.result_table(result))
    for name, numbers in result.document["benchmarks"].items():
        if "questions_of_benchmark" in numbers:
            whole = numbers["questions_of_benchmark"]
            console.print(
                f"{shown_spec(name)}: {numbers['questions_asked']} of its {whole} questions: not a score on the whole benchmark"
            )
        notes = (
            numbers.get("note"),
            numbers.get("interval_note"),
            display.unanswered(numbers),
            display.unjudged(numbers),
        )
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


def _compare(args: argparse.Namespace, console: Console) -> int:
    if len(args.compare) < 2:
        raise EvaluationError("--compare needs at least two results, the baseline first")
    wrong = [path for path in comma_list(args.output or "") if Path(path).suffix not in (".json", *FORMATS)]
    if wrong:
        raise EvaluationError(
            f"--output {wrong[0]}: a comparison is written as {', '.join((*FORMATS, '.json'))}; separate several files by commas"
        )
    for target in map(Path, comma_list(args.output or "")):
        replaces(target, WRITTEN[target.suffix], "a comparison of evaluate")
    named = [_named_results(text) for text in args.compare]
    sides = {name: [EvaluationResult.load(path) for path in paths] for name, paths in named}
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


def _named_results(text: str) -> tuple[str, list[str]]:
    """Split NAME=RESULT,RESULT; without a NAME the results are named by their text."""
    name, equals, paths = text.partition("=")
    if not equals or "/" in name:
        name, paths = text.strip(" ,"), text
    if not name.strip() or not comma_list(paths):
        raise EvaluationError(f"--compare {text!r}: give a result, or NAME=RESULT")
    return name, comma_list(paths)


def _select(args: argparse.Namespace, request: EvaluationRequest, console: Console) -> int:
    rule = SelectionRule.parse(args.rule or PAPER_RULE)
    given = {"--model": args.model, "--benchmarks": args.benchmarks, "-k": args.k, "--output": args.output}
    if unused := [flag for flag, value in given.items() if value]:
        raise EvaluationError(
            f"--select has model, benchmark and k from the run and --rule, and writes into the run: leave {', '.join(unused)} out"
        )
    progress = _progress(request, console)
    if args.server:
        raise EvaluationError("--select loads each checkpoint in this process: leave --server out")

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    def check(checkpoint: Checkpoint) -> None:
        check_benchmark(rule.benchmark, custom_function(request.reward) is None)
        if not args.list:
            has_template(str(checkpoint.model))

    run_folder = Path(args.select)
    if args.list:
        errors = plain_console(stderr=True, soft_wrap=True, highlight=False)
        for one in checkpoints(run_folder, errors.print).values():
            result = selection_result_path(run_folder, rule, one.name)
            if not (result.is_file() and EvaluationResult.load(result).complete):
                check(one)
                print(one.model, result, sep="\t")
        return ExitCode.DONE

    request = replace(request, benchmarks=[rule.benchmark], k=rule.k)

    def evaluate(checkpoint: Checkpoint, path: Path) -> EvaluationResult:
        say(checkpoint.name)
        return evaluate_model(replace(request, model=str(checkpoint.model), output=str(path)), progress)

    choice = select_checkpoint(
        run_folder, rule, evaluate, check=check, say=say, differences=lambda result: stored_differences(result, request)
    )
    shown = score_unit(custom_function(args.reward)).finer.plain
    for step, score in choice["scores"].items():
        say(f"{'*' if int(step) == choice['step'] else ' '} step {step}: {shown(score)}")
    return ExitCode.DONE
