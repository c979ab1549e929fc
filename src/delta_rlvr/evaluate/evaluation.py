"""One evaluation from its request to its result, with a model, a server or stored samples."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from delta_rlvr.bounds import check_types
from delta_rlvr.evaluate.benchmarks import load_benchmark, load_benchmarks
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.local_sampler import LocalSampler
from delta_rlvr.evaluate.records import Questions, Sampler
from delta_rlvr.evaluate.results import EvaluationResult, replaces_result
from delta_rlvr.evaluate.runner import Progress, identity, run_evaluation, score_samples
from delta_rlvr.evaluate.sample_file import SampleFile, read_samples
from delta_rlvr.evaluate.server_sampler import ServerSampler, ServerSettings
from delta_rlvr.evaluate.settings import PRESETS, REWARD_FILE, EvaluationSettings, other_reward_file
from delta_rlvr.models import DEFAULT_POLICY, hub
from delta_rlvr.models.prompts import room_needed
from delta_rlvr.runs.layout import RUN
from delta_rlvr.tasks.contents import content_digest
from delta_rlvr.tasks.templates import TEMPLATES

OF_QUESTIONS = ("limit", "style", "template", "template_text", "extract", "reward")
"""The settings of a request that its questions are loaded with."""


@dataclass(frozen=True)
class EvaluationRequest:
    """The request of an evaluation, with the options of `delta-rlvr evaluate`."""

    model: str = DEFAULT_POLICY
    """A folder, a hub id, a built-in name, or the server's name for it."""
    benchmarks: Sequence[str] = ()
    """Names of `BENCHMARKS`, files of problems, task:SPEC. Empty: those of the preset."""
    preset: Literal["paper-math", "paper-code", "paper-ood"] | None = None
    limit: int | None = None
    """The most questions of each benchmark."""
    style: Literal["auto", "chat", "plain"] = "auto"
    template: str | None = None
    template_text: str | None = None
    extract: str | None = None
    reward: str | None = None
    """Reward in place of the grader: math-verify, or a custom function as my.py:function."""
    k: int | None = None
    """Samples per question. None, here and below: the preset's, the task's, or the paper's setting."""
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: Sequence[str] = ()
    batch_size: int = 16
    device: str | None = None
    dtype: str | None = None
    server: str | None = None
    """The address of an OpenAI-compatible server; None: the model is loaded in this process."""
    api: Literal["chat", "completions"] | None = None
    """None: completions for a plain-text template, which must not get a chat template; else chat."""
    concurrency: int = 32
    timeout: float = 3600.0
    retries: int = 5
    api_key_env: str = "OPENAI_API_KEY"
    output: str | None = None
    """A folder, or a .json file (default: evaluations/MODEL)."""

    @property
    def target(self) -> Path:
        """The file of the result."""
        return _result_path(self.output or f"evaluations/{_folder_name(self.model)}")


def evaluate(request: EvaluationRequest, progress: Progress | None = None) -> EvaluationResult:
    """Sample, grade, and write the result to `request.target`, with the samples beside it. Stored samples are reused."""
    check_types(type(request), vars(request))
    progress = progress or Progress()
    names = request.benchmarks or (PRESETS[request.preset].benchmarks if request.preset else ())
    if not names:
        raise EvaluationError("give `benchmarks` or `preset`")
    request = _settled(request, names)
    target = request.target
    stored = _samples_path(target)
    if target.exists() and not stored.exists():
        raise EvaluationError(f"{target} exists without its samples, so it cannot be resumed: choose another `output`")
    replaces_result(target)
    # Load the questions first: missing data should be reported before the weights are loaded.
    templated = request.api == "chat" if request.server else has_template(request.model)
    benchmarks = load_benchmarks(names, has_template=templated, **_question_options(request))
    settings = sampling_settings(request, benchmarks)
    loaded = None if request.server else _load_model(request)
    settings, cut = _fit_context(request, benchmarks, loaded, settings)
    if cut:
        progress.say(cut)
    sampler = _sampler(request, loaded, settings, progress)
    model = {"name": request.model}
    with SampleFile(stored, identity(benchmarks, settings, model, sampler.describe())) as store:
        try:
            result = run_evaluation(
                benchmarks, sampler, settings, model=model, store=store, progress=progress, preset=request.preset
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"samples so far are kept in {stored}; the same command resumes") from None
    for name, facts in store.identity["benchmarks"].items():
        if facts.get(REWARD_FILE) is None:  # what an older file was graded with is not known
            result.document["benchmarks"][name].pop(REWARD_FILE, None)
    if cut:
        result.document["run"]["cut"] = cut
    result.write(target)
    return result


def stored_differences(result: EvaluationResult, request: EvaluationRequest) -> list[str]:
    """Return sentences about what a request asks for and a stored result was not made with. Needs no model and no data: more samples
    than `k`, the backend, and a response length that was cut to the model's context do not matter."""
    document = result.document
    numbers = document["benchmarks"]
    request = _settled(request, request.benchmarks or list(numbers))
    described = [SimpleNamespace(description=values) for values in numbers.values()]
    asked = sampling_settings(request, described).as_dict()  # type: ignore[arg-type]
    before, now = (
        dict(document["settings"]),
        asked | {"samples": max(asked["samples"], document["settings"]["samples"])},
    )
    if request.max_tokens is None and "cut" in document["run"]:
        del now["max_tokens"]
    keys = ("limit", "template", "template_text", "extract", "reward", *(() if request.style == "auto" else ("style",)))
    for values in numbers.values():
        if load := values.get("load"):
            before |= {key: load.get(key) for key in keys}
            now |= {key: getattr(request, key) for key in keys}
    changed = [
        f"{key} was {before[key]!r:.80} and is now {now[key]!r:.80}" for key in now if before.get(key) != now[key]
    ]
    file = {REWARD_FILE: content_digest(request.reward or "")}
    if not changed and any(other_reward_file(values, file) for values in numbers.values()):
        return ["the file that `reward` names has changed since"]
    return changed


def rescore(
    samples: str | Path, request: EvaluationRequest, progress: Progress | None = None
) -> tuple[EvaluationResult, Path]:
    """Grade stored completions again, without a model. Returns the result and its path. Questions and sampling are those of the file,
    unless `request` gives others."""
    path, progress = Path(samples), progress or Progress()
    header, kept = read_samples(path)
    stored = header or {}
    writer = (stored.get("model") or {}).get("name", request.model)
    if request.model not in (DEFAULT_POLICY, writer):
        raise EvaluationError(
            f"model={request.model!r}: these samples are of {writer}, and no model is loaded: leave `model` out"
        )
    if request.benchmarks or not stored.get("benchmarks"):
        names = request.benchmarks or list(dict.fromkeys(sample.key.benchmark for sample in kept))
        benchmarks = load_benchmarks(names, **_question_options(_settled(request, names)))
    else:
        defaults = EvaluationRequest()
        given = [name for name in ("preset", *OF_QUESTIONS) if getattr(request, name) != getattr(defaults, name)]
        if given:
            raise EvaluationError(
                f"{path} has its own settings of the questions: leave {', '.join(f'`{name}`' for name in given)} out, or add "
                "`benchmarks`"
            )
        described = stored["benchmarks"].items()
        loads = {name: facts.get("load") if isinstance(facts, dict) else None for name, facts in described}
        benchmarks = [load_benchmark(**(load or {"name": name})) for name, load in loads.items()]
    if stored.get("settings"):
        settings = EvaluationSettings.from_dict(stored["settings"])
    else:
        settings = EvaluationSettings(samples=1 + max(sample.key.sample for sample in kept))
    if request.k is not None:
        settings = replace(settings, samples=request.k)
        kept = [sample for sample in kept if sample.key.sample < request.k]
    if request.limit is not None:
        asked = {(benchmark.name, problem.id) for benchmark in benchmarks for problem in benchmark.problems}
        kept = [one for one in kept if (one.key.benchmark, one.key.problem) in asked]
    target = _result_path(request.output or str(path.parent / f"{path.name.split('.')[0]}.rescored.json"))
    if target.exists():
        raise EvaluationError(f"{target} already exists: choose another `output`")
    named = path.name if request.model == DEFAULT_POLICY else request.model
    result = score_samples(
        benchmarks,
        kept,
        settings=settings,
        model=stored.get("model") or {"name": named},
        backend=stored.get("backend") or {"kind": "stored samples"},
        progress=progress,
    )
    if not stored.get("settings"):
        progress.say("the file does not record how its samples were drawn, so the result has no sampling settings")
        unknown = dict.fromkeys(result.document["settings"], None)
        result.document["settings"] = unknown | {"samples": settings.samples}
    result.write(target)
    return result, target


def _settled(request: EvaluationRequest, names: Sequence[str]) -> EvaluationRequest:
    """Return the request with the settings that follow from others: the preset's template, and the server's API."""
    template, preset = request.template, PRESETS.get(request.preset or "")
    if preset and template is request.template_text is None and set(names) <= set(preset.benchmarks):
        template = preset.template
    plain = template in TEMPLATES and TEMPLATES[template].plain
    if plain and request.server and request.api == "chat":
        raise EvaluationError(
            f"api='chat' applies the server's chat template, but the template {template} is plain text: use api='completions', or "
            "another `template`"
        )
    return replace(request, template=template, api=request.api or ("completions" if plain else "chat"))


def sampling_settings(request: EvaluationRequest, benchmarks: Sequence[Questions]) -> EvaluationSettings:
    """Return the sampling settings: those given, else those of the preset, of the tasks, or of the paper for mathematics."""
    base = PRESETS[request.preset].settings if request.preset else EvaluationSettings()
    limits = [benchmark.description.get("max_tokens") for benchmark in benchmarks]
    if not request.preset and all(limits):  # tasks have their own limit
        base = replace(base, max_tokens=max(limit for limit in limits if limit))
    own = [benchmark.description.get("sampling") for benchmark in benchmarks]
    if not request.preset and own[0] and all(each == own[0] for each in own):
        base = replace(base, **own[0])
    given: dict[str, Any] = {
        "samples": request.k,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "seed": request.seed,
        "stop": tuple(request.stop) if request.stop else None,
    }
    return replace(base, **{name: value for name, value in given.items() if value is not None})


def _sampler(request: EvaluationRequest, loaded: Any, settings: EvaluationSettings, progress: Progress) -> Sampler:
    """Return the sampler of the server, or else of the model and tokenizer in `loaded`."""
    if not request.server:
        model, tokenizer = loaded
        return LocalSampler(model, tokenizer, settings, batch_size=request.batch_size)
    server = ServerSettings(
        url=request.server,
        model=request.model,
        api=request.api or "chat",
        concurrency=request.concurrency,
        timeout=request.timeout,
        retries=request.retries,
        api_key=os.environ.get(request.api_key_env),
    )
    return ServerSampler(server, settings, say=progress.say)


def has_template(name: str) -> bool:
    """Return whether the model's tokenizer has a chat template, without loading weights."""
    from transformers import AutoTokenizer

    from delta_rlvr.models.load import check_model_name, resolve_model

    try:
        check_model_name(name)
        with hub.little_patience():
            tokenizer = AutoTokenizer.from_pretrained(resolve_model(name))
    except (OSError, ValueError, ImportError) as error:
        reason = error if isinstance(error, FileNotFoundError) else hub.reason(error)
        raise EvaluationError(f"the tokenizer of {name} cannot be loaded: {reason}") from error
    if not tokenizer("1 + 1 = ?")["input_ids"]:  # transformers makes an empty one where a folder has none
        raise EvaluationError(f"{name} has no tokenizer: copy the tokenizer's files of its base model into it")
    return bool(getattr(tokenizer, "chat_template", None))


def _load_model(request: EvaluationRequest) -> tuple[Any, Any]:
    """Return the model, on the requested device and in the requested dtype, and its tokenizer."""
    import torch
    from transformers.utils import logging

    from delta_rlvr.models.load import check_device, check_dtype, load_policy

    logging.disable_progress_bar()  # we show our own
    device = request.device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = request.dtype or ("bfloat16" if device.startswith("cuda") else "float32")
    check_device(device)
    if dtype != "auto":
        check_dtype(dtype)
    try:
        model, tokenizer = load_policy(request.model, dtype=dtype)
        return model.to(device), tokenizer  # type: ignore[arg-type]
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise EvaluationError(f"the model {request.model} cannot be loaded: {error}") from error


def _question_options(request: EvaluationRequest) -> dict[str, Any]:
    """Return the options of `load_benchmark` from a request."""
    given = {key: getattr(request, key) for key in OF_QUESTIONS}
    if request.server and request.api == "completions":
        if request.style == "chat":
            raise EvaluationError("style='chat': the completions API takes plain text; use api='chat'")
        given["style"] = "plain"
    return given


def _fit_context(
    request: EvaluationRequest, benchmarks: Sequence[Questions], loaded: Any, settings: EvaluationSettings
) -> tuple[EvaluationSettings, str | None]:
    """Cut the default response length to what fits the model's context, and return a sentence about it."""
    if request.max_tokens is not None or request.preset or loaded is None:
        return settings, None
    model, tokenizer = loaded
    prompts = [problem.prompt for benchmark in benchmarks for problem in benchmark.problems]
    room = room_needed(model.config, tokenizer, prompts, settings.max_tokens)
    # The sampler refuses a prompt that leaves no room.
    if room is None or room.left < 1:
        return settings, None
    cut = f"responses may have {room.left} tokens, to fit the model's context of {room.context} (`max_tokens` sets another length)"
    return replace(settings, max_tokens=room.left), cut


def _folder_name(model: str) -> str:
    """Return the folder name for a model's evaluation: its folder, with the run's name if it is a model of a run."""
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
