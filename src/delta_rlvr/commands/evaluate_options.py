"""The options of `delta-rlvr evaluate`, and what they stand for: settings, a model, a sampler."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from delta_rlvr.commands.evaluate_display import ConsoleProgress
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.local_sampler import LocalSampler
from delta_rlvr.evaluate.records import Questions, Sampler
from delta_rlvr.evaluate.selection import PAPER_RULE
from delta_rlvr.evaluate.server_sampler import ServerSampler, ServerSettings
from delta_rlvr.evaluate.settings import PRESETS, EvaluationSettings
from delta_rlvr.models import hub
from delta_rlvr.models.prompts import encode_prompt
from delta_rlvr.tasks.templates import TEMPLATES
from rlvr_graders.extract import EXTRACTORS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `delta-rlvr evaluate`."""
    parser.description = (
        "Sample a model on benchmarks, grade, average, compare. Stopped half-way, the same command goes on where it "
        "was. Exit codes: 0 complete, 1 failed, 2 bad input, 3 some samples failed and are named, 130 interrupted."
    )
    what = parser.add_argument_group("what to do (without any of these: sample and score)").add_argument
    what(
        "--list",
        action="store_true",
        help="show the benchmarks and where their data is looked for; with --select: each checkpoint, and where its result belongs",
    )
    what(
        "--samples",
        metavar="FILE",
        help="score stored completions (.jsonl, or a result .json); needs no model",
    )
    what(
        "--compare",
        nargs="+",
        metavar="RESULT",
        help="compare results with the first one, as a table of methods and benchmarks; NAME=RESULT names a row, several results of "
        "one method (seeds) are joined by commas; --output FILE.md,FILE.tex,FILE.csv,FILE.json writes it",
    )
    what("--select", metavar="RUN", help="evaluate a run's checkpoints and choose by --rule")
    what("--rule", default=PAPER_RULE, help="what --select goes by (default: %(default)s, the paper's)")

    asked = parser.add_argument_group("model and questions").add_argument
    asked("--model", help="folder, hub id, builtin (default), or the server's name for it")
    asked(
        "--benchmarks",
        default="",
        metavar="A,B",
        help="names of --list, files (.jsonl, .jsonl.gz, .json, .csv, .parquet; FILE?question=COLUMN&answer=COLUMN names the columns), "
        "task:SPEC",
    )
    asked("--preset", choices=list(PRESETS), help="the paper's benchmarks and sampling settings")
    asked("--limit", type=int, metavar="N", help="only the first N questions of each benchmark")
    asked("--style", choices=["auto", "chat", "plain"], default="auto", help="chat template or plain text")
    asked(
        "--template",
        metavar="NAME",
        help=f"another prompt template than the benchmark's own: {', '.join(TEMPLATES)}",
    )
    asked(
        "--template_text",
        metavar="TEXT",
        help="a prompt of your own, with {question} where the question goes; it asks for \\boxed{}, 'Answer: X' or '#### X', "
        "or --extract says where the answer stands",
    )
    asked("--extract", choices=list(EXTRACTORS), help="where the answer to --template_text stands")
    asked(
        "--reward",
        metavar="PLACE",
        help="another judge: math-verify, or a function of your own as my.py:function or package.module:function (TRL's signature)",
    )

    drawn = parser.add_argument_group(
        "sampling (default: the preset's, a built-in task's own, else the paper's for mathematics)"
    ).add_argument
    drawn("-k", "--samples-per-question", type=int, metavar="K", dest="k")
    drawn("--max-tokens", type=int, metavar="N")
    drawn("--temperature", type=float, metavar="T")
    drawn("--top-p", type=float, metavar="P")
    drawn("--seed", type=int, metavar="S")
    drawn("--stop", action="append", metavar="TEXT", help="ends a completion; may be given repeatedly")

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
    server("--timeout", type=float, default=3600.0, metavar="S", help="seconds a request may take")
    server("--retries", type=int, default=5, metavar="N", help="further tries of a failed request")
    server(
        "--api-key-env",
        default="OPENAI_API_KEY",
        metavar="NAME",
        help="variable that holds the key, if one is needed",
    )
    parser.add_argument(
        "--output",
        metavar="PATH",
        help="a folder, or a .json file (default: evaluations/MODEL, evaluations/RUN-MODEL for a model of a run; --compare: none)",
    )


def settle(args: argparse.Namespace, names: Sequence[str]) -> None:
    """Fill in what follows from other options: the preset's prompt for its benchmarks, and how a server is asked."""
    preset = PRESETS.get(args.preset)
    if (
        preset
        and args.template is None
        and args.template_text is None
        and set(names) <= set(preset.benchmarks)
    ):
        args.template = preset.template
    plain = args.template in TEMPLATES and TEMPLATES[args.template].plain
    if plain and args.server and args.api == "chat":
        raise EvaluationError(
            f"--api chat goes through the server's chat template, and the template {args.template} is plain text: use --api "
            "completions, or another --template"
        )
    args.api = args.api or ("completions" if plain else "chat")


def sampling_settings(
    args: argparse.Namespace, benchmarks: Sequence[Questions], k: int | None
) -> EvaluationSettings:
    """The preset's settings, a built-in task's own, or the paper's for mathematics, with what was given in their place; `k` goes
    before `-k`."""
    base = PRESETS[args.preset].settings if args.preset else EvaluationSettings()
    limits = [benchmark.description.get("max_tokens") for benchmark in benchmarks]
    if not args.preset and all(limits):  # tasks know how long their responses are
        base = replace(base, max_tokens=max(limit for limit in limits if limit))
    own = [benchmark.description.get("sampling") for benchmark in benchmarks]
    if not args.preset and own[0] and all(each == own[0] for each in own):  # and how they are drawn
        base = replace(base, **own[0])
    given = {
        "samples": k or args.k,
        "max_tokens": args.max_tokens,
        "temperature": args.temperature,
        "top_p": args.top_p,
        "seed": args.seed,
        "stop": tuple(args.stop) if args.stop else None,
    }
    return replace(base, **{name: value for name, value in given.items() if value is not None})


def make_sampler(
    args: argparse.Namespace, name: str, loaded: Any, settings: EvaluationSettings, progress: ConsoleProgress
) -> Sampler:
    """Of the server, where there is one, else of the model and tokenizer in `loaded`."""
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


def has_template(name: str) -> bool:
    """Whether the model's tokenizer has a chat template; the weights are not loaded."""
    from transformers import AutoTokenizer

    from delta_rlvr.models.load import check_model_name, resolve_model

    try:
        check_model_name(name)
        with hub.little_patience():
            tokenizer = AutoTokenizer.from_pretrained(resolve_model(name))
    except (OSError, ValueError, ImportError) as error:
        reason = error if isinstance(error, FileNotFoundError) else hub.reason(error)
        raise EvaluationError(f"the tokenizer of {name} cannot be loaded: {reason}") from error
    return bool(getattr(tokenizer, "chat_template", None))


def load_model(name: str, args: argparse.Namespace) -> tuple[Any, Any]:
    """Model and tokenizer, on the device and in the dtype asked for."""
    import torch
    from transformers.utils import logging

    from delta_rlvr.models.load import check_device, load_policy

    logging.disable_progress_bar()  # it would stand between the lines of our own progress
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = args.dtype or ("bfloat16" if device.startswith("cuda") else "float32")
    check_device(device)
    try:
        model, tokenizer = load_policy(name, dtype=dtype)
        return model.to(device), tokenizer  # type: ignore[arg-type]
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise EvaluationError(f"the model {name} cannot be loaded: {error}") from error


def question_options(args: argparse.Namespace) -> dict[str, Any]:
    """How questions are put and judged, as `load_benchmark` takes it."""
    keys = ("limit", "style", "template", "template_text", "extract", "reward")
    given = {key: getattr(args, key) for key in keys}
    if args.server and args.api == "completions":
        if args.style == "chat":
            raise EvaluationError("--style chat needs --api chat: the completions API takes plain text")
        given["style"] = "plain"
    return given


def fit_context(
    args: argparse.Namespace, benchmarks: Sequence[Questions], loaded: Any, settings: EvaluationSettings
) -> tuple[EvaluationSettings, str | None]:
    """Where nobody asked for a length, cut the default one to what the model's context leaves, with a sentence about it."""
    if args.max_tokens is not None or args.preset or loaded is None:
        return settings, None
    model, tokenizer = loaded
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    prompts = [problem.prompt for benchmark in benchmarks for problem in benchmark.problems]
    longest = sorted(prompts, key=lambda prompt: len(str(prompt)))[-64:]
    room = None if context is None else context - max(len(encode_prompt(tokenizer, each)) for each in longest)
    # The sampler refuses a prompt that leaves no room.
    if room is None or settings.max_tokens <= room or room < 1:
        return settings, None
    said = f"responses may have {room} tokens, what the model's context of {context} leaves (--max-tokens sets another length)"
    return replace(settings, max_tokens=room), said
