"""One evaluation from what was asked for to its result: questions, a model or a server, settings, a sampler; or stored samples."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from delta_rlvr.bounds import check_types
from delta_rlvr.evaluate.benchmarks import load_benchmark, load_benchmarks
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.local_sampler import LocalSampler
from delta_rlvr.evaluate.records import Questions, Sampler
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.evaluate.runner import Progress, identity, run_evaluation, score_samples
from delta_rlvr.evaluate.sample_file import SampleFile, read_samples
from delta_rlvr.evaluate.server_sampler import ServerSampler, ServerSettings
from delta_rlvr.evaluate.settings import PRESETS, EvaluationSettings
from delta_rlvr.models import DEFAULT_POLICY, hub
from delta_rlvr.models.prompts import room_needed
from delta_rlvr.runs.layout import RUN
from delta_rlvr.tasks.templates import TEMPLATES


@dataclass(frozen=True)
class EvaluationRequest:
    """What to evaluate, in the words of `delta-rlvr evaluate`."""

    model: str = DEFAULT_POLICY
    """A folder, a hub id, a built-in name, or the server's name for it."""
    benchmarks: Sequence[str] = ()
    """Names of `BENCHMARKS`, files of problems, task:SPEC. Empty: the preset's."""
    preset: str | None = None
    limit: int | None = None
    """Only so many questions of each benchmark."""
    style: str = "auto"
    template: str | None = None
    template_text: str | None = None
    extract: str | None = None
    reward: str | None = None
    """Another judge: math-verify, or a custom reward as my.py:function."""
    k: int | None = None
    """Samples per question; like those that follow: None for the preset's, the task's own, or the paper's."""
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: Sequence[str] = ()
    batch_size: int = 16
    device: str | None = None
    dtype: str | None = None
    server: str | None = None
    """The address of an OpenAI-compatible server; None: the model is loaded here."""
    api: Literal["chat", "completions"] | None = None
    """None: completions for a template of plain text, which no chat template may change; else chat."""
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
    """Sample, grade, and write the result to `request.target`, with every sample beside it. What is there already is kept."""
    check_types(type(request), vars(request))
    progress = progress or Progress()
    names = request.benchmarks or (PRESETS[request.preset].benchmarks if request.preset else ())
    if not names:
        raise EvaluationError("name what to evaluate on: `benchmarks` or `preset`")
    request = _settled(request, names)
    target = request.target
    stored = _samples_path(target)
    if target.exists() and not stored.exists():
        raise EvaluationError(f"{target} is there already, without the samples to go on from: choose another `output`")
    # Questions before the model: data that is absent should not be found after minutes of loading weights.
    templated = request.api == "chat" if request.server else _has_template(request.model)
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
            raise KeyboardInterrupt(
                f"what was sampled is kept in {stored}; the same command goes on from there"
            ) from None
    result.write(target)
    return result


def rescore(
    samples: str | Path, request: EvaluationRequest, progress: Progress | None = None
) -> tuple[EvaluationResult, Path]:
    """Grade stored completions again; no model is needed. The result, and its file. What the file says of its questions and sampling
    holds unless `request` gives something else."""
    path, progress = Path(samples), progress or Progress()
    header, kept = read_samples(path)
    stored = header or {}
    if request.benchmarks or not stored.get("benchmarks"):
        names = request.benchmarks or list(dict.fromkeys(sample.key.benchmark for sample in kept))
        benchmarks = load_benchmarks(names, **_question_options(_settled(request, names)))
    else:
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
        raise EvaluationError(f"{target} is there already: choose another `output`")
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
        progress.say("the file does not say how its samples were drawn, so the result has no sampling settings")
        unknown = dict.fromkeys(result.document["settings"], None)
        result.document["settings"] = unknown | {"samples": settings.samples}
    result.write(target)
    return result, target


def _settled(request: EvaluationRequest, names: Sequence[str]) -> EvaluationRequest:
    """With what follows from other settings: the preset's prompt for its benchmarks, and how a server is asked."""
    template, preset = request.template, PRESETS.get(request.preset or "")
    if preset and template is request.template_text is None and set(names) <= set(preset.benchmarks):
        template = preset.template
    plain = template in TEMPLATES and TEMPLATES[template].plain
    if plain and request.server and request.api == "chat":
        raise EvaluationError(
            f"api='chat' goes through the server's chat template, and the template {template} is plain text: use api='completions', or "
            "another `template`"
        )
    return replace(request, template=template, api=request.api or ("completions" if plain else "chat"))


def sampling_settings(request: EvaluationRequest, benchmarks: Sequence[Questions]) -> EvaluationSettings:
    """The preset's settings, a built-in task's own, or the paper's for mathematics, with what was given in their place."""
    base = PRESETS[request.preset].settings if request.preset else EvaluationSettings()
    limits = [benchmark.description.get("max_tokens") for benchmark in benchmarks]
    if not request.preset and all(limits):  # tasks know how long their responses are
        base = replace(base, max_tokens=max(limit for limit in limits if limit))
    own = [benchmark.description.get("sampling") for benchmark in benchmarks]
    if not request.preset and own[0] and all(each == own[0] for each in own):  # and how they are drawn
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
    """Of the server, where there is one, else of the model and tokenizer in `loaded`."""
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


def _has_template(name: str) -> bool:
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


def _load_model(request: EvaluationRequest) -> tuple[Any, Any]:
    """Model and tokenizer, on the device and in the dtype asked for."""
    import torch
    from transformers.utils import logging

    from delta_rlvr.models.load import check_device, check_dtype, load_policy

    logging.disable_progress_bar()  # it would stand between the lines of our own progress
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
    """How questions are put and judged, as `load_benchmark` takes it."""
    keys = ("limit", "style", "template", "template_text", "extract", "reward")
    given = {key: getattr(request, key) for key in keys}
    if request.server and request.api == "completions":
        if request.style == "chat":
            raise EvaluationError("style='chat': the completions API takes plain text; use api='chat'")
        given["style"] = "plain"
    return given


def _fit_context(
    request: EvaluationRequest, benchmarks: Sequence[Questions], loaded: Any, settings: EvaluationSettings
) -> tuple[EvaluationSettings, str | None]:
    """Where nobody asked for a length, cut the default one to what the model's context leaves, with a sentence about it."""
    if request.max_tokens is not None or request.preset or loaded is None:
        return settings, None
    model, tokenizer = loaded
    prompts = [problem.prompt for benchmark in benchmarks for problem in benchmark.problems]
    room = room_needed(model.config, tokenizer, prompts, settings.max_tokens)
    # The sampler refuses a prompt that leaves no room.
    if room is None or room.left < 1:
        return settings, None
    cut = f"responses may have {room.left} tokens, what the model's context of {room.context} leaves (`max_tokens` sets another length)"
    return replace(settings, max_tokens=room.left), cut


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
