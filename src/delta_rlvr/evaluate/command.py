"""`delta-rlvr evaluate`: sample and score, score again, compare, choose a checkpoint, list the benchmarks."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from delta_rlvr.evaluate import display
from delta_rlvr.evaluate.benchmarks import load_benchmark, load_benchmarks
from delta_rlvr.evaluate.compare import compare_many
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.local_sampler import LocalSampler
from delta_rlvr.evaluate.presets import PRESETS, get_preset
from delta_rlvr.evaluate.records import Sample, Sampler
from delta_rlvr.evaluate.rescoring import score_samples
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.evaluate.runner import Questions, identity, run_evaluation
from delta_rlvr.evaluate.sample_file import SampleFile, read_samples
from delta_rlvr.evaluate.selection import PAPER_RULE, SelectionRule, select_checkpoint
from delta_rlvr.evaluate.server_sampler import ServerSampler, ServerSettings
from delta_rlvr.evaluate.settings import EvaluationSettings
from delta_rlvr.runs.files import atomic, dump

COMPLETE, WRONG, INCOMPLETE, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: all well; an error that was named; samples are missing; stopped by the user."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `delta-rlvr evaluate`."""
    parser.description = (
        "Sample a model on benchmarks, grade, average, compare. Stopped half-way, the same command goes on where it "
        "was. Exit code 0: complete; 2: some samples failed and are named; 1: an error; 130: interrupted."
    )
    what = parser.add_argument_group("what to do (without any of these: sample and score)")
    what.add_argument(
        "--list", action="store_true", help="show the benchmarks and where their data is looked for"
    )
    what.add_argument(
        "--samples",
        metavar="FILE",
        help="score stored completions (.jsonl, or a result .json); needs no model",
    )
    what.add_argument(
        "--compare",
        nargs="+",
        metavar="RESULT",
        help="compare results with the first one; several evaluations of one model are joined by commas",
    )
    what.add_argument("--select", metavar="RUN", help="evaluate a run's checkpoints and choose by --rule")
    what.add_argument(
        "--rule", default=PAPER_RULE, help="what --select goes by (default: %(default)s, the paper's)"
    )

    asked = parser.add_argument_group("model and questions")
    asked.add_argument(
        "--model", default=None, help="folder, hub id, builtin (default), or the server's name for it"
    )
    asked.add_argument("--benchmarks", metavar="A,B", help="names of --list, .jsonl files, task:SPEC")
    asked.add_argument("--preset", choices=list(PRESETS), help="the paper's benchmarks and sampling settings")
    asked.add_argument("--limit", type=int, metavar="N", help="only the first N questions of each benchmark")
    asked.add_argument(
        "--style", choices=["auto", "chat", "plain"], default="auto", help="chat template or plain text"
    )
    asked.add_argument("--template", metavar="NAME", help="another prompt template than the benchmark's own")

    drawn = parser.add_argument_group("sampling (default: the preset's, else the paper's for mathematics)")
    drawn.add_argument("-k", "--samples-per-question", type=int, metavar="K", dest="k")
    drawn.add_argument("--max-tokens", type=int, metavar="N")
    drawn.add_argument("--temperature", type=float, metavar="T")
    drawn.add_argument("--top-p", type=float, metavar="P")
    drawn.add_argument("--seed", type=int, metavar="S")
    drawn.add_argument(
        "--stop", action="append", metavar="TEXT", help="ends a completion; may be given repeatedly"
    )

    local = parser.add_argument_group("model in this process")
    local.add_argument(
        "--batch-size", type=int, default=16, metavar="N", help="samples at once (default: 16)"
    )
    local.add_argument("--device", default=None, help="cpu, cuda, ... (default: cuda where there is one)")
    local.add_argument(
        "--dtype", default=None, help="float32, bfloat16, ... (default: bfloat16 on cuda, else float32)"
    )

    server = parser.add_argument_group("model behind an OpenAI-compatible server (vLLM, SGLang, ...)")
    server.add_argument("--server", metavar="URL", help="such as http://localhost:8000/v1")
    server.add_argument("--api", choices=["chat", "completions"], default="chat", help="default: %(default)s")
    server.add_argument(
        "--concurrency", type=int, default=32, metavar="N", help="requests at once (default: 32)"
    )
    server.add_argument(
        "--timeout", type=float, default=3600.0, metavar="S", help="seconds a request may take"
    )
    server.add_argument(
        "--retries", type=int, default=5, metavar="N", help="further tries of a failed request"
    )
    server.add_argument(
        "--api-key-env",
        default="OPENAI_API_KEY",
        metavar="NAME",
        help="variable that holds the key, if one is needed",
    )
    parser.add_argument(
        "--output",
        metavar="PATH",
        help="a folder, or a .json file (default: evaluations/MODEL; --compare: none)",
    )


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the exit code."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)  # a log has no width: tables should not wrap at 80
    try:
        if args.list:
            console.print(display.list_table())
            return COMPLETE
        if args.compare:
            return _compare(args, console)
        if args.samples:
            return _rescore(args, console)
        if args.select:
            return _select(args, console)
        return _evaluate(args, console)
    except EvaluationError as error:
        print(f"delta-rlvr evaluate: {error}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt as interrupt:
        print(f"delta-rlvr evaluate: interrupted; {interrupt or 'nothing was lost'}", file=sys.stderr)
        return INTERRUPTED


def _evaluate(args: argparse.Namespace, console: Console) -> int:
    names = _split(args.benchmarks) or (get_preset(args.preset).benchmarks if args.preset else ())
    if not names:
        raise EvaluationError("say what to evaluate on: --benchmarks or --preset (see --list)")
    name = args.model or "builtin"
    target = _result_path(args.output or f"evaluations/{Path(name).name}")
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
    stored = _samples_path(target)
    if target.exists() and not stored.exists():
        raise EvaluationError(
            f"{target} is there already, without the samples to go on from: choose another --output"
        )
    # Questions before the model: data that is absent should not be found after minutes of loading weights.
    has_template = args.api == "chat" if args.server else _has_template(name)
    benchmarks = load_benchmarks(
        names,
        limit=args.limit,
        style=_style(args),
        has_template=has_template,
        template=args.template,
    )
    settings = _settings(args, benchmarks, k)
    loaded = None if args.server else _load_model(name, args)
    progress = display.ConsoleProgress(console)
    sampler = _sampler(args, name, loaded, settings, progress)
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
                f"{name}: {numbers['questions_asked']} of its {whole} questions: not the benchmark's score"
            )
        for note in filter(None, (numbers.get("note"), numbers.get("interval_note"))):
            console.print(f"{name}: {note}", highlight=False)
    console.print(f"result: {target}", highlight=False, soft_wrap=True)
    if result.complete:
        return COMPLETE
    failures = result.document["failures"]
    first = failures[0]
    console.print(
        f"incomplete: {len(failures)} samples failed and are not scored; the first is {first['benchmark']} "
        f"{first['problem']} sample {first['sample']}: {first['reason']}. {again}",
        highlight=False,
        soft_wrap=True,
    )
    return INCOMPLETE


def _rescore(args: argparse.Namespace, console: Console) -> int:
    path = Path(args.samples)
    header, samples = read_samples(path)
    stored = header or {}
    if args.benchmarks or not stored.get("benchmarks"):
        names = _split(args.benchmarks) or tuple(dict.fromkeys(sample.key.benchmark for sample in samples))
        benchmarks = load_benchmarks(names, limit=args.limit, style=_style(args), template=args.template)
    else:
        benchmarks = [
            load_benchmark(**_load_options(name, told)) for name, told in stored["benchmarks"].items()
        ]
    if stored.get("settings"):
        settings = EvaluationSettings.from_dict(stored["settings"])
    else:
        settings = EvaluationSettings(samples=1 + max(sample.key.sample for sample in samples))
        console.print(
            "the file does not tell how its samples were drawn: the result's sampling settings are not theirs"
        )
    if args.k is not None:
        settings = replace(settings, samples=args.k)
        samples = [sample for sample in samples if sample.key.sample < args.k]
    if args.limit is not None:
        samples = _within(samples, benchmarks)
    target = _result_path(args.output or str(path.parent / f"{path.name.split('.')[0]}.rescored.json"))
    if target.exists():
        raise EvaluationError(f"{target} is there already: choose another --output")
    result = score_samples(
        benchmarks,
        samples,
        settings=settings,
        model=stored.get("model") or {"name": args.model or path.name},
        backend=stored.get("backend") or {"kind": "stored samples"},
        progress=display.ConsoleProgress(console),
    )
    if not stored.get("settings"):
        console.print(
            "the file does not tell how its samples were drawn: the result's sampling settings are null"
        )
        unknown = dict.fromkeys(result.document["settings"], None)
        result.document["settings"] = unknown | {"samples": settings.samples}
    result.write(target)
    return _finish(result, target, console, "Sample them, and score the file again.")


def _compare(args: argparse.Namespace, console: Console) -> int:
    if len(args.compare) < 2:
        raise EvaluationError("--compare needs at least two results: the baseline first")
    sides: dict[str, Sequence[EvaluationResult]] = {}
    for text in args.compare:
        sides[text] = [EvaluationResult.load(path) for path in _split(text)]
    if len(sides) < len(args.compare):
        raise EvaluationError("--compare: a result is given twice")
    baseline, *others = sides
    comparisons = compare_many(
        sides[baseline],
        {name: sides[name] for name in others},
        baseline_name=baseline,
        benchmarks=_split(args.benchmarks) or None,
        seed=args.seed or 0,
    )
    console.print(display.comparison_table(comparisons))
    for comparison in comparisons:
        for sentence in comparison.notes:
            console.print(f"- {sentence}", highlight=False)
    if args.output:
        target = Path(args.output)
        with atomic(target) as file:
            file.write(dump([comparison.as_dict() for comparison in comparisons], indent=1).encode())
        console.print(f"comparison: {target}")
    return COMPLETE


def _select(args: argparse.Namespace, console: Console) -> int:
    rule = SelectionRule.parse(args.rule)
    if args.server:
        raise EvaluationError("--select loads each checkpoint itself: it cannot go through a server")

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    def evaluate(step: int, checkpoint: Path, path: Path) -> EvaluationResult:
        say(f"checkpoint-{step}")
        return _sample(args, console, str(checkpoint), [rule.benchmark], path, rule.k)

    choice = select_checkpoint(Path(args.select), rule, evaluate, say=say)
    for step, score in choice["scores"].items():
        say(f"{'*' if int(step) == choice['step'] else ' '} checkpoint-{step}: {100 * score:.2f}")
    return COMPLETE


def _settings(args: argparse.Namespace, benchmarks: Sequence[Questions], k: int | None) -> EvaluationSettings:
    base = get_preset(args.preset).settings if args.preset else EvaluationSettings()
    limits = [benchmark.description.get("max_tokens") for benchmark in benchmarks]
    if not args.preset and all(limits):  # tasks know how long their responses are
        base = replace(base, max_tokens=max(limit for limit in limits if limit))
    given = {
        "samples": k or args.k,
        "max_tokens": args.max_tokens,
        "temperature": args.temperature,
        "top_p": args.top_p,
        "seed": args.seed,
        "stop": tuple(args.stop) if args.stop else None,
    }
    return replace(base, **{name: value for name, value in given.items() if value is not None})


def _sampler(
    args: argparse.Namespace,
    name: str,
    loaded: Any,
    settings: EvaluationSettings,
    progress: display.ConsoleProgress,
) -> Sampler:
    if not args.server:
        model, tokenizer = loaded
        return LocalSampler(model, tokenizer, settings, batch_size=args.batch_size)
    server = ServerSettings(
        url=args.server,
        model=name,
        api=args.api,
        concurrency=args.concurrency,
        timeout=args.timeout,
        retries=args.retries,
        api_key=os.environ.get(args.api_key_env),
    )
    return ServerSampler(server, settings, say=progress.say)


def _has_template(name: str) -> bool:
    from transformers import AutoTokenizer

    from delta_rlvr.tasks.models import resolve_model

    try:
        tokenizer = AutoTokenizer.from_pretrained(resolve_model(name))
    except (OSError, ValueError, ImportError) as error:
        raise EvaluationError(f"the tokenizer of {name} cannot be loaded: {error}") from error
    return bool(getattr(tokenizer, "chat_template", None))


def _load_model(name: str, args: argparse.Namespace) -> tuple[Any, Any]:
    import torch

    from delta_rlvr.tasks.models import load_policy

    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = args.dtype or ("bfloat16" if device.startswith("cuda") else "float32")
    try:
        model, tokenizer = load_policy(name, dtype=dtype)
        return model.to(device), tokenizer  # type: ignore[arg-type]
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise EvaluationError(f"the model {name} cannot be loaded: {error}") from error


def _style(args: argparse.Namespace) -> str:
    if args.server and args.api == "completions":
        if args.style == "chat":
            raise EvaluationError("--style chat needs --api chat: the completions API takes plain text")
        return "plain"
    return str(args.style)


def _load_options(name: str, told: Any) -> dict[str, Any]:
    load = told.get("load") if isinstance(told, dict) else None
    return dict(load) if load else {"name": name}


def _within(samples: Sequence[Sample], benchmarks: Sequence[Questions]) -> list[Sample]:
    kept = {(benchmark.name, problem.id) for benchmark in benchmarks for problem in benchmark.problems}
    return [sample for sample in samples if (sample.key.benchmark, sample.key.problem) in kept]


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text else ()


def _result_path(output: str) -> Path:
    path = Path(output)
    return path if path.suffix == ".json" else path / "result.json"


def _samples_path(result: Path) -> Path:
    return result.with_name(
        "samples.jsonl" if result.name == "result.json" else f"{result.stem}.samples.jsonl"
    )
