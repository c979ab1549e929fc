"""`delta-rlvr train`: RLVR of a causal LM on verifiable problems, from the held-out score before to the report after."""

from __future__ import annotations

import dataclasses
import json
import math
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import transformers
from datasets import Dataset
from rich.console import Console
from rich.table import Table
from transformers import PrinterCallback, ProgressCallback

from delta_rlvr.adapters.trl import DeltaTrainer, DeltaTrainerConfig
from delta_rlvr.adapters.trl.run_folder import RunFolderCallback, whole_checkpoints
from delta_rlvr.commands.options import TrainOptions, parse_train_options
from delta_rlvr.commands.progress import TrainingProgress
from delta_rlvr.evaluate import EvaluationResult, compare_results, evaluate_policy
from delta_rlvr.evaluate.display import ConsoleProgress
from delta_rlvr.rewards import OverlongReward, RewardFunction, SoftOverlong, Verdict
from delta_rlvr.runs import RunDescription, RunFolderError, RunWriter
from delta_rlvr.tasks import Problem, Task, flag_tokens, get_task, load_policy

_PACKAGES = ("torch", "transformers", "trl", "accelerate", "peft", "datasets", "numpy", "delta-rlvr")


class TaskReward(RewardFunction):
    """A task's own judgement, as TRL calls it."""

    def __init__(self, task: Task, problems: Mapping[str, Problem]):
        super().__init__("correct")
        self.task = task
        self.problems = problems

    def judge(
        self, completions: list[str], lengths: list[int] | None, columns: Mapping[str, Any]
    ) -> list[Verdict]:
        return self.task.grade_batch([self.problems[name] for name in columns["id"]], completions)


def run(arguments: list[str], console: Console | None = None) -> int:
    """The subcommand: parse, train, show."""
    options, config = parse_train_options(arguments)
    train(options, config, console or Console())
    return 0


def train(options: TrainOptions, config: DeltaTrainerConfig, console: Console) -> dict[str, Any]:
    """One run, from start to report. Returns what `run.json` keeps of its held-out scores."""
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    task = get_task(options.task)
    if config.max_steps <= 0 and options.train_problems is None:
        raise ValueError("say how long to train: --steps N, or --train_problems N with --num_train_epochs E")
    if config.max_completion_length is None:
        config.max_completion_length = task.max_tokens
    _align_saves(config, console)
    problems = task.problems("train", _problem_count(options, config), config.seed)
    if not problems:
        raise ValueError(f"task {options.task!r} has no training problem")
    model, tokenizer = load_policy(options.model)
    reward = TaskReward(task, {problem.id: problem for problem in problems})
    trainer = DeltaTrainer(
        model=model,
        reward_funcs=[reward, *_penalties(options, config)],
        args=config,
        train_dataset=Dataset.from_list([_row(problem) for problem in problems]),
        processing_class=tokenizer,
        peft_config=_lora(options),
    )
    main = trainer.accelerator.is_main_process
    for noisy in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(noisy)
    console.quiet = not main
    steps = _total_steps(trainer)
    step = _resume_step(options, config, console)
    writer = _writer(options, config, trainer, step, steps) if main else None
    folder = Path(str(config.output_dir))
    with writer or _Nothing():
        heldout = _Heldout(options, config, task, trainer, tokenizer, console)
        before = heldout.score("before") if step is None or step == 0 else heldout.load("before")
        if writer and before:
            writer.update(final={"before": before.summary()})
        callback = RunFolderCallback(
            writer,
            rollouts_every=options.rollouts_every,
            rollout_groups=options.rollout_groups,
            decisive=lambda row, tokens: _decisive(task, reward.problems[row["id"]], tokens),
            reasons=lambda: [verdict.reason for verdict in reward.last_verdicts],
        )
        callback.attach(trainer)
        console.print(
            f"{config.method} on {options.task}: {steps} steps, {len(problems)} problems, {config.num_generations} responses each"
        )
        with TrainingProgress(
            console, steps, folder / "log.txt" if main else None, done=step or 0
        ) as progress:
            callback.listeners.append(progress.show)
            trainer.train(resume_from_checkpoint=str(folder / f"checkpoint-{step}") if step else None)
        after = heldout.score("after")
        trainer.save_model(str(folder / "model"))
        final = {}
        if main and writer:
            callback.save_tokens()
            final = {
                name: result.summary() for name, result in (("before", before), ("after", after)) if result
            }
            writer.update(final=final)
            writer.finish()
    if main:
        _conclude(config, before, after, console)
        if options.report:
            _report(folder, console)
    return final


# ---------------------------------------------------------------- before the run


def _row(problem: Problem) -> dict[str, Any]:
    """A problem as a row of TRL's data set. The answer stays as text: rows must be of one type."""
    prompt = (
        problem.prompt if isinstance(problem.prompt, str) else [dict(message) for message in problem.prompt]
    )
    answer = problem.answer if isinstance(problem.answer, str) else json.dumps(problem.answer, default=str)
    return {"prompt": prompt, "id": problem.id, "answer": answer}


def _problem_count(options: TrainOptions, config: DeltaTrainerConfig) -> int:
    if options.train_problems is not None:
        return options.train_problems
    batches = math.ceil(config.max_steps / config.updates_per_batch)
    return batches * config.prompts_per_batch


def _align_saves(config: DeltaTrainerConfig, console: Console) -> None:
    """A checkpoint between rollout batches needs no buffer: resuming from it is exact."""
    updates = config.updates_per_batch
    if updates <= 1 or config.save_strategy != "steps" or config.save_steps % updates == 0:
        return
    aligned = math.ceil(math.ceil(config.save_steps / updates) * updates)
    console.print(
        f"save_steps raised from {config.save_steps:g} to {aligned}: a rollout batch is used for {updates:g} steps, and a "
        "checkpoint in the middle of one could not be resumed exactly"
    )
    config.save_steps = aligned


def _penalties(options: TrainOptions, config: DeltaTrainerConfig) -> list[RewardFunction]:
    if options.overlong_buffer is None:
        return []
    assert config.max_completion_length is not None
    settings = SoftOverlong(
        max_length=config.max_completion_length,
        buffer=options.overlong_buffer,
        factor=options.overlong_factor,
    )
    return [OverlongReward(settings)]


def _lora(options: TrainOptions) -> Any:
    if options.lora_rank is None:
        return None
    from peft import LoraConfig

    return LoraConfig(r=options.lora_rank, lora_alpha=2 * options.lora_rank, target_modules="all-linear")


def _total_steps(trainer: DeltaTrainer) -> int:
    if trainer.args.max_steps > 0:
        return trainer.args.max_steps
    batches = len(trainer.get_train_dataloader()) * trainer.args.num_train_epochs
    return max(1, int(batches // trainer.args.gradient_accumulation_steps))


def _resume_step(options: TrainOptions, config: DeltaTrainerConfig, console: Console) -> int | None:
    """The step to go on from; None for a new run."""
    if not options.resume:
        return None
    folder = Path(str(config.output_dir))
    if not (folder / "run.json").exists():
        raise RunFolderError(f"--resume: {folder} holds no run; give the --output of the run to go on with")
    whole, torn = whole_checkpoints(folder)
    for step in torn:
        console.print(f"checkpoint-{step} was torn while it was written: it is skipped")
    if not whole:
        console.print("there is no whole checkpoint yet: the run starts again from its first step")
        return 0
    console.print(f"going on from checkpoint-{whole[-1]}")
    return whole[-1]


def _writer(
    options: TrainOptions, config: DeltaTrainerConfig, trainer: DeltaTrainer, step: int | None, steps: int
) -> RunWriter:
    method = config.resolved_method
    settings = {**dataclasses.asdict(options), **config.to_dict()}
    description = RunDescription(
        engine="trl",
        method=config.method,
        seed=config.seed,
        model=options.model,
        task=options.task,
        settings={key: value for key, value in settings.items() if key != "resume"},
        delta=None if method.delta is None else dataclasses.asdict(method.delta),
        steps_planned=steps,
        versions=_versions(),
    )
    if step is None:
        return RunWriter.create(str(config.output_dir), description)
    return RunWriter.resume(str(config.output_dir), description, step)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package.replace("-", "_")] = version(package)
        except PackageNotFoundError:
            continue
    return found


class _Nothing:
    """In the place of a writer on ranks that write nothing."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


# ---------------------------------------------------------------- around the run


class _Heldout:
    """The held-out score of the policy in memory, before and after."""

    def __init__(
        self,
        options: TrainOptions,
        config: DeltaTrainerConfig,
        task: Task,
        trainer: DeltaTrainer,
        tokenizer: Any,
        console: Console,
    ):
        self.options, self.config, self.task, self.trainer = options, config, task, trainer
        self.tokenizer, self.console = tokenizer, console
        self.folder = Path(str(config.output_dir)) / "evaluations"
        self.problems = task.problems("heldout", options.eval_problems, 0) if options.eval_problems else []
        if self.problems and (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):
            console.print(
                "sharded weights are not scored in memory: run `delta-rlvr evaluate` on the checkpoints"
            )
            self.problems = []

    def score(self, when: str) -> EvaluationResult | None:
        result = None
        if self.problems and self.trainer.accelerator.is_main_process:
            self.console.print(f"held-out accuracy {when} training, {len(self.problems)} problems:")
            model = self.trainer.accelerator.unwrap_model(self.trainer.model)
            model.eval()
            result = evaluate_policy(
                model,
                self.tokenizer,
                self.problems,
                samples=self.options.eval_samples,
                temperature=self.config.temperature,
                max_tokens=self.config.max_completion_length or self.task.max_tokens,
                seed=0,
                grade=self.task.grade,
                batch_size=128,
                progress=ConsoleProgress(self.console),
                label=f"{self.options.model} {when} training",
            )
            result.write(self.folder / f"heldout_{when}.json")
        self.trainer.accelerator.wait_for_everyone()
        return result

    def load(self, when: str) -> EvaluationResult | None:
        path = self.folder / f"heldout_{when}.json"
        if not self.problems or not path.exists() or not self.trainer.accelerator.is_main_process:
            return None
        return EvaluationResult.load(path)


def _decisive(task: Task, problem: Problem, tokens: list[str]) -> list[int] | None:
    """0/1 a token: whether it decided, where the task knows."""
    spans = task.decisive(problem, "".join(tokens))
    if spans is None:
        return None
    places, end = [], 0
    for token in tokens:
        places.append((end, end + len(token)))
        end += len(token)
    return flag_tokens(spans, places)


def _conclude(
    config: DeltaTrainerConfig,
    before: EvaluationResult | None,
    after: EvaluationResult | None,
    console: Console,
) -> None:
    console.print(f"run folder: {config.output_dir}")
    if before is None or after is None:
        return
    table = Table(title="held-out accuracy", title_justify="left")
    for heading in ("", "accuracy", "95 % interval"):
        table.add_column(heading)
    for name, result in (("before", before), ("after", after)):
        found = result.summary()
        table.add_row(name, f"{found['accuracy']:.1%}", f"{found['low']:.1%} to {found['high']:.1%}")
    console.print(table)
    comparison = compare_results(before, after)
    gain = comparison.difference
    console.print(
        f"The change is {gain.mean:+.1%} ({gain.low:+.1%} to {gain.high:+.1%}, paired by problem; p = {comparison.paired.p:.2g}). "
        "It is what this training as a whole does;\nwhat the token weighting adds is what `delta-rlvr compare --methods dapo,"
        f"{config.method if config.method != 'dapo' else 'delta'} --seeds 5` tells.",
        highlight=False,
    )


def _report(folder: Path, console: Console) -> None:
    from delta_rlvr.report import write_report

    page = write_report([folder], folder / "report.html")
    console.print(f"report: {page}", soft_wrap=True)
