"""One run from its request to its report: make a trainer of task, problems, reward and policy; then score, train, score again."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from transformers import PrinterCallback, ProgressCallback

from delta_rlvr.adapters.trl import DeltaTrainer, DeltaTrainerConfig
from delta_rlvr.adapters.trl.interrupts import finishing_the_batch
from delta_rlvr.adapters.trl.recorded import Recording, recorded
from delta_rlvr.adapters.trl.run_folder import SilenceWarning
from delta_rlvr.adapters.trl.sharing import push_page
from delta_rlvr.evaluate import EvaluationResult
from delta_rlvr.exit_codes import at_work
from delta_rlvr.files import locked
from delta_rlvr.models import load_policy
from delta_rlvr.models.hub import hub_answers
from delta_rlvr.models.load import check_model_name
from delta_rlvr.rewards import OverlongReward, SoftOverlong
from delta_rlvr.runs import read_run
from delta_rlvr.runs.recorder import came_to_nothing
from delta_rlvr.runs.writer import check_is_ours
from delta_rlvr.specs import shown_spec
from delta_rlvr.tasks import Task, decisive_tokens, get_task
from delta_rlvr.tasks.custom_reward import CustomReward, judged_by
from delta_rlvr.tasks.problem_set import ProblemSet
from delta_rlvr.terminal import plain_warnings
from delta_rlvr.testing import try_rule
from delta_rlvr.training.heldout import (
    HeldoutScore,
    apart_text,
    best_score,
    heldout_problems,
    sampling_text,
    show_change,
)
from delta_rlvr.training.problems import custom_or_task_reward, data_set, default_prompt, fit_context, training_problems
from delta_rlvr.training.progress import Teller, TrainingProgress
from delta_rlvr.training.request import NOT_RESTORED, RunRequest, TrainOptions, run_settings
from delta_rlvr.training.resuming import (
    advised_comparison,
    changes,
    finished,
    saying_how_to_resume,
    step_to_resume_from,
)
from delta_rlvr.words import counted
from rlvr_graders import RewardFunction


@dataclass(frozen=True)
class TrainedRun:
    """The result of a run."""

    folder: Path
    """The run folder (docs/run_schema.md)."""
    before: EvaluationResult | None = None
    """The held-out score before training; None where none was taken."""
    after: EvaluationResult | None = None
    report: Path | None = None
    """The page, if one was written."""


def train(
    request: RunRequest, teller: Teller | None = None, *, same_start: Path | None = None, compared: str = ""
) -> TrainedRun:
    """Make one run, from start to report.

    `same_start`: the folder of a run with the same starting weights, whose score before training is reused. `compared`: which run of
    a comparison this is; the comparison draws the conclusion."""
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    options, config = request.build()
    with teller or Teller() as teller, plain_warnings(teller.say):
        teller.console.quiet = teller.console.quiet or config.process_index > 0
        folder = Path(str(config.output_dir))
        if options.resume and (nothing_left := finished(run_settings(options, config), config)):
            teller.say(nothing_left)
            return TrainedRun(folder)
        first = config.process_index == 0
        with locked(folder) if first else nullcontext():
            if not options.resume and first:
                check_is_ours(folder)  # before data and model are loaded
            if options.resume and not compared:
                request = request.with_restored()
            return _Session(request, options, config, teller, same_start, compared).run()


class _Session:
    """A run ready to start: task, problems, reward and policy, and the trainer made of them."""

    def __init__(
        self,
        request: RunRequest,
        options: TrainOptions,
        config: DeltaTrainerConfig,
        teller: Teller,
        same_start: Path | None,
        compared: str,
    ):
        self.request, self.options, self.config, self.teller = request, options, config, teller
        self.same_start, self.compared = same_start, compared
        self.folder = Path(str(config.output_dir))
        self.task = task = get_task(options.task, **judged_by(options.reward))
        limit = config.max_completion_length
        complete(config, options, task, teller.say)
        problems = training_problems(task, options, config)
        self.reward = custom_or_task_reward(options, task, problems)
        self.step: int | None = None  # of the checkpoint to resume from; 0: there is none yet; None: a new run
        self.notes: list[str] = []  # sentences about that checkpoint
        if options.resume:
            self.step, self.notes = step_to_resume_from(config)
        model, tokenizer = load_policy(options.model)
        asked = [*problems, *heldout_problems(options, task)]
        cut = fit_context(model.config, tokenizer, asked, config, limit)
        unchosen = default_prompt(options.task, problems) if isinstance(task, ProblemSet) else None
        for sentence in filter(None, (unchosen, cut)):
            # Later runs of a comparison write these to the log only.
            (teller.say if same_start is None else teller.log)(sentence)
        self.settings = run_settings(options, config)  # before the trainer, which may change its arguments
        config.run_folder = False  # `recorded` writes it, with more than the trainer knows
        self.trainer = DeltaTrainer(
            model=model,
            reward_funcs=[self.reward, *_penalties(options, config)],
            args=config,
            train_dataset=data_set(problems),
            eval_dataset=data_set(heldout_problems(options, task)) if options.eval_every else None,
            processing_class=tokenizer,
            peft_config=_lora(options),
        )
        for noisy in (PrinterCallback, ProgressCallback, SilenceWarning):
            self.trainer.remove_callback(noisy)
        if not config.push_to_hub:  # else the card is written with the model, at the end
            self.trainer.create_model_card = lambda *_, **__: None  # type: ignore[method-assign]

    def run(self) -> TrainedRun:
        """Score, train, score again, report."""
        opened = ExitStack()
        recording = opened.enter_context(
            recorded(
                self.trainer,
                settings=self.settings,
                model=self.options.model,
                task=self.options.task,
                step=self.step,
                accept_changed=self.options.accept_changed,
                # A custom reward does not say which tokens decide.
                decisive=None if isinstance(self.reward, CustomReward) else self._decisive,
            )
        )  # outside of `at_work`: a folder that cannot be used is bad input
        with at_work(), saying_how_to_resume(self.folder, self.compared), _failure_logged(self.teller), opened:
            self._begin(recording)
            grade = self.reward.grade if isinstance(self.reward, CustomReward) else self.task.grade
            heldout = HeldoutScore(self.options, self.task, self.trainer, self.teller, grade)
            before = self._score_before(heldout)
            _keep(recording, heldout, before=before)
            self._learn(recording)
            after = heldout.score("after")
            best = best_score(read_run(self.folder)) if recording.writer else None
            _keep(recording, heldout, before=before, after=after, best=best)
            recording.scored = sampling_text(before, after) if after else None
            recording.apart = apart_text(before, after)
        if recording.writer is None:
            return TrainedRun(self.folder)
        self.teller.say(f"run folder: {self.config.output_dir}")
        advice = recording.writer.info.get("compare") if self.options.report else None
        scores = [one.summary()["accuracy"] for one in (before, after) if one]
        trouble = came_to_nothing(read_run(self.folder).metrics, scores)
        show_change(heldout.own_reward, before, after, self.teller, compare=advice, conclude=trouble is None)
        if best:
            unit, at = heldout.unit, best["checkpoint"] or "not saved"
            self.teller.say(
                f"best held-out {unit.score} during training: {unit.shown(best['accuracy'])} at step {best['step']} ({at})"
            )
        page = None
        if self.options.report:
            from delta_rlvr.report import write_report

            page = write_report([self.folder], self.folder / "report.html")
            self.teller.say(f"report: {page}")
        if self.config.push_to_hub:
            push_page(self.trainer, self.folder)
        if trouble:
            self.teller.say(trouble)
        return TrainedRun(self.folder, before, after, page)

    def _begin(self, recording: Recording) -> None:
        writer = recording.writer
        if writer is None:
            return
        self.teller.log_to(self.folder / "log.txt")
        if not self.compared:
            given = self.request.settings - NOT_RESTORED
            advice = advised_comparison(self.config.method, self.request)
            writer.update(given=sorted({*writer.info.get("given", ()), *given}), compare=advice)
        for sentence in (*self.notes, *(changes(writer) if self.step is not None else ())):
            self.teller.say(sentence)

    def _decisive(self, row: Mapping[str, Any], tokens: list[str]) -> list[int] | None:
        return decisive_tokens(self.task, self.reward.problems[row["id"]], tokens)

    def _score_before(self, heldout: HeldoutScore) -> EvaluationResult | None:
        if self.step:
            return heldout.load("before")
        taken = heldout.take_over(self.same_start) if self.same_start else None
        return taken or heldout.score("before")

    def _learn(self, recording: Recording) -> None:
        """Train the remaining steps; if none remain, load the weights of the last checkpoint."""
        done, steps = self.step or 0, self.trainer.planned_steps
        self.teller.say(
            f"{self.config.method} on {shown_spec(self.options.task)}: {counted(steps, 'step')}, "
            f"{counted(len(self.reward.problems), 'problem')}, {self.config.num_generations} responses each"
        )
        checkpoint = self.folder / f"checkpoint-{done}"
        if done and done >= steps:
            self.trainer.load_weights(checkpoint)
            return
        per_batch = int(self.config.updates_per_batch)
        with TrainingProgress(
            self.teller,
            steps,
            per_batch,
            parts=per_batch // self.config.num_iterations,
            done=done,
            legend=self.same_start is None,
        ) as progress:
            if recording.callback.recorder:
                recording.callback.recorder.listeners.append(progress.show)
            with finishing_the_batch(self.trainer):
                self.trainer.train(resume_from_checkpoint=str(checkpoint) if done else None)


def complete(config: DeltaTrainerConfig, options: TrainOptions, task: Task, say: Callable[[str], None]) -> None:
    """Fill in the task's defaults, and refuse or correct settings that cannot work."""
    if config.max_steps <= 0 and options.train_problems is None and not isinstance(task, ProblemSet):
        raise ValueError("give the length of the run: `steps`, or `train_problems` and `num_train_epochs`")
    check_model_name(options.model)
    try_rule(config.resolved_method.rule)
    if config.push_to_hub and not hub_answers():
        raise ValueError("push_to_hub=True: huggingface.co does not answer, or HF_HUB_OFFLINE is set")
    if config.max_completion_length is None:
        config.max_completion_length = task.max_tokens
    if options.eval_every and options.eval_every % config.updates_per_batch:
        raise ValueError(
            f"eval_every={options.eval_every}: a rollout batch lasts {config.updates_per_batch:g} steps, and a run can only be resumed "
            f"at its end: give a multiple of {config.updates_per_batch:g}"
        )
    if config.save_total_limit == 1:
        # transformers deletes the old checkpoint before it has checked the new one.
        say("save_total_limit is raised from 1 to 2: with 1, a kill during a save would leave no complete checkpoint")
        config.save_total_limit = 2


def _penalties(options: TrainOptions, config: DeltaTrainerConfig) -> list[RewardFunction]:
    if options.overlong_buffer is None:
        return []
    assert config.max_completion_length is not None
    settings = SoftOverlong(config.max_completion_length, options.overlong_buffer, options.overlong_factor)
    return [OverlongReward(settings)]


def _lora(options: TrainOptions) -> Any:
    if options.lora_rank is None:
        return None
    from peft import LoraConfig

    return LoraConfig(r=options.lora_rank, lora_alpha=2 * options.lora_rank, target_modules="all-linear")


def _keep(
    recording: Recording, heldout: HeldoutScore, best: dict[str, Any] | None = None, **scores: EvaluationResult | None
) -> None:
    """Write held-out scores to `run.json`. `best`: the best score during training."""
    final = {
        name: {**result.summary(), **heldout.further.get(name, {})} for name, result in scores.items() if result
    } | ({"best": best} if best else {})
    if recording.writer and final:
        recording.writer.update(final=final)


@contextmanager
def _failure_logged(teller: Teller) -> Iterator[None]:
    """Write the traceback of a failure to the log: the terminal shows only one line."""
    try:
        yield
    except Exception:
        with suppress(OSError):  # a full disk must not hide the failure itself
            teller.log(traceback.format_exc())
        raise
