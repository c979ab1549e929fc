"""`delta-rlvr train`: RLVR of a causal LM on verifiable problems, from the held-out score before to the report after."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import transformers
from rich.console import Console
from transformers import PrinterCallback, ProgressCallback

from delta_rlvr.adapters.trl import DeltaTrainer, DeltaTrainerConfig
from delta_rlvr.adapters.trl.own_run import MODEL, open_writer
from delta_rlvr.adapters.trl.run_folder import RunFolderCallback
from delta_rlvr.commands.endings import how_to_go_on, room_for_the_end
from delta_rlvr.commands.heldout import HeldoutScore, heldout_problems, sampling_text, tell_change
from delta_rlvr.commands.options import (
    NOT_RESTORED,
    OF_THE_TASK,
    TrainOptions,
    flag_of,
    given_settings,
    known_options,
    parse_train_options,
    stored_run,
)
from delta_rlvr.commands.progress import Teller, TrainingProgress
from delta_rlvr.commands.resuming import changes, finished, step_to_go_on_from
from delta_rlvr.commands.terminal import plain_warnings
from delta_rlvr.commands.training_problems import (
    TaskReward,
    data_set,
    default_prompt,
    fit_context,
    own_or_task_reward,
    training_problems,
)
from delta_rlvr.evaluate import EvaluationResult
from delta_rlvr.exit_codes import at_work
from delta_rlvr.models import load_policy
from delta_rlvr.models.load import check_model_name, gguf_digest, is_gguf
from delta_rlvr.rewards import OverlongReward, SoftOverlong
from delta_rlvr.runs import RunWriter
from delta_rlvr.runs.layout import CONTENT
from delta_rlvr.runs.model_card import write_card
from delta_rlvr.runs.writer import check_is_free
from delta_rlvr.specs import shown_spec, without_settings
from delta_rlvr.tasks import Task, decisive_tokens, get_task
from delta_rlvr.tasks.contents import content_digest
from delta_rlvr.tasks.own_reward import OwnReward, judged_by, own_function
from delta_rlvr.tasks.problem_set import ProblemSet
from delta_rlvr.words import command_line
from rlvr_graders import RewardFunction


def run(arguments: list[str]) -> int:
    """The subcommand: parse, train, show."""
    options, config = parse_train_options(arguments)
    restored = restored_options(arguments, run_settings(options, config)) if options.resume else []
    train(options, config, Console(), words=[*arguments, *restored])
    return 0


def train(
    options: TrainOptions,
    config: DeltaTrainerConfig,
    console: Console,
    same_start: Path | None = None,
    words: Sequence[str] | None = None,
) -> None:
    """One run, from start to report. `same_start`: the folder of a run that started from the same weights, whose score before
    training is taken over. `words`: the command line, for the one that is advised at the end (None for a run of a comparison)."""
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    console.quiet = config.process_index > 0
    with Teller(console) as teller, plain_warnings(teller.say):
        if options.resume and (nothing_left := finished(run_settings(options, config), config)):
            teller.say(nothing_left)
            return
        if not options.resume and config.process_index == 0:
            check_is_free(Path(str(config.output_dir)))  # before seconds or minutes go into data and model
        task = get_task(options.task, **judged_by(options.reward))
        limit = config.max_completion_length
        complete(config, options, task, teller.say)
        problems = training_problems(task, options, config)
        reward = own_or_task_reward(options, task, problems)
        step, going_on = step_to_go_on_from(config) if options.resume else (None, [])
        model, tokenizer = load_policy(options.model)
        asked = [*problems, *heldout_problems(options, task)]
        cut = fit_context(model.config, tokenizer, asked, config, limit)
        unchosen = default_prompt(options.task, problems) if isinstance(task, ProblemSet) else None
        for sentence in filter(None, (unchosen, cut)):
            # The later runs of a comparison repeat nothing.
            (teller.say if same_start is None else teller.log)(sentence)
        settings = run_settings(options, config)  # before the trainer, which may change its arguments
        config.run_folder = False  # it is written here, with what the trainer alone does not know
        trainer = DeltaTrainer(
            model=model,
            reward_funcs=[reward, *_penalties(options, config)],
            args=config,
            train_dataset=data_set(problems),
            processing_class=tokenizer,
            peft_config=_lora(options),
        )
        for noisy in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(noisy)
        # TRL's card would say nothing of what this run is; ours is written at the end.
        trainer.create_model_card = lambda *_, **__: None  # type: ignore[method-assign]
        _Run(options, settings, task, reward, trainer, step, going_on, teller, same_start, words).go()


@dataclass(frozen=True)
class _Run:
    """A run that is ready to start."""

    options: TrainOptions
    settings: Mapping[str, Any]
    """What `run.json` keeps."""
    task: Task
    reward: TaskReward | OwnReward
    trainer: DeltaTrainer
    step: int | None
    """The checkpoint to go on from (0: there is none yet); None for a new run."""
    going_on: Sequence[str]
    """What is said about that."""
    teller: Teller
    same_start: Path | None
    words: Sequence[str] | None

    @property
    def config(self) -> DeltaTrainerConfig:
        return self.trainer.args

    @property
    def folder(self) -> Path:
        return Path(str(self.config.output_dir))

    def go(self) -> None:
        """Score, train, score again, report."""
        writer = self._open_writer() if self.trainer.accelerator.is_main_process else None
        with (
            at_work(),
            how_to_go_on(self.folder),
            writer or nullcontext(),
            _failure_told(self.teller),
            room_for_the_end(self.folder),
        ):
            if writer:
                self.teller.log_to(self.folder / "log.txt")
                if self.words is not None:
                    given = given_settings(list(self.words)) - NOT_RESTORED
                    writer.update(given=sorted({*writer.info.get("given", ()), *given}))
                for sentence in (*self.going_on, *(changes(writer) if self.step is not None else ())):
                    self.teller.say(sentence)
            grade = self.reward.grade if isinstance(self.reward, OwnReward) else self.task.grade
            heldout = HeldoutScore(self.options, self.task, self.trainer, self.teller, grade)
            before = self._score_before(heldout)
            if writer and before:
                writer.update(final={"before": before.summary()})
            callback = self._callback(writer)
            self._learn(callback)
            after = heldout.score("after")
            self.trainer.save_model(str(self.folder / MODEL))
            if writer:
                callback.save_tokens()
                scores = {"before": before, "after": after}
                writer.update(final={name: result.summary() for name, result in scores.items() if result})
                write_card(self.folder / MODEL, writer.info, sampling_text(after) if after else None)
                writer.finish()
        if writer:
            self.teller.say(f"run folder: {self.config.output_dir}")
            tell_change(
                own_function(self.options.reward),
                before,
                after,
                self.teller,
                compare=advised_comparison(self.config.method, self.words or ())
                if self.options.report
                else None,
            )
            if self.options.report:
                from delta_rlvr.report import write_report

                self.teller.say(f"report: {write_report([self.folder], self.folder / 'report.html')}")

    def _open_writer(self) -> RunWriter:
        model, task, steps = self.options.model, self.options.task, self.trainer.planned_steps
        return open_writer(self.config, self.settings, model=model, task=task, step=self.step, steps=steps)

    def _score_before(self, heldout: HeldoutScore) -> EvaluationResult | None:
        if self.step:
            return heldout.load("before")
        taken = heldout.take_over(self.same_start) if self.same_start else None
        return taken or heldout.score("before")

    def _callback(self, writer: RunWriter | None) -> RunFolderCallback:
        """What writes rollouts and metrics to the run folder."""
        reward, decisive = self.reward, None
        # What decides in the eyes of a reward of one's own is not known.
        if not isinstance(reward, OwnReward):
            problems = reward.problems

            def decisive(row: Mapping[str, Any], tokens: list[str]) -> list[int] | None:
                return decisive_tokens(self.task, problems[row["id"]], tokens)

        callback = RunFolderCallback(
            writer,
            rollouts_every=self.config.rollouts_every,
            rollout_groups=self.config.rollout_groups,
            decisive=decisive,
            reasons=lambda: [verdict.reason for verdict in reward.last_verdicts],
        )
        callback.attach(self.trainer)
        return callback

    def _learn(self, callback: RunFolderCallback) -> None:
        """The steps that are left; the weights of the last checkpoint, where none is."""
        done, steps = self.step or 0, self.trainer.planned_steps
        self.teller.say(
            f"{self.config.method} on {shown_spec(self.options.task)}: {steps} steps, {len(self.reward.problems)} problems, "
            f"{self.config.num_generations} responses each"
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
            callback.listeners.append(progress.show)
            self.trainer.train(resume_from_checkpoint=str(checkpoint) if done else None)


# ---------------------------------------------------------------- before the run


def complete(
    config: DeltaTrainerConfig, options: TrainOptions, task: Task, say: Callable[[str], None]
) -> None:
    """Fill in what the task knows, and refuse or correct what could not work."""
    if config.max_steps <= 0 and options.train_problems is None and not isinstance(task, ProblemSet):
        raise ValueError(
            "give the length of the run: --steps N, or --train_problems N with --num_train_epochs E"
        )
    check_model_name(options.model)
    if config.max_completion_length is None:
        config.max_completion_length = task.max_tokens
    if config.save_total_limit == 1:
        # transformers deletes the old checkpoint before the new one is known to be whole.
        say("save_total_limit raised from 1 to 2: a kill during a save would leave no whole checkpoint")
        config.save_total_limit = 2


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


def advised_comparison(method: str, words: Sequence[str]) -> str:
    """The command that compares the method with another under the same options."""
    other = method if method != "dapo" else "delta"
    taken = {"--method", "--output", "--output_dir", "--resume", "--seed"}
    same: list[str] = []
    skips = False
    for word in words:
        if word.startswith("--"):
            skips = word.partition("=")[0].replace("-", "_").replace("__", "--", 1) in taken
        if not skips:
            same.append(word)
    return command_line("delta-rlvr", "compare", "--methods", f"dapo,{other}", "--seeds", 6, *same)


def restored_options(arguments: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """The options that a resumed run took from its folder: those without which the same command line would start another run."""
    anew = run_settings(*parse_train_options([*arguments, "--resume", "false"]))
    restored = {
        name: value
        for name, value in settings.items()
        if name in known_options() - NOT_RESTORED and value is not None and value != anew[name]
    }
    given = stored_run(Path(str(settings["output_dir"]))).get("given")
    if isinstance(given, list):  # else the run is older than this list
        restored = {name: value for name, value in restored.items() if name in given}
        if "task" in restored:  # written as it was given: options of its own, or settings of the task
            own_options = [name for name in OF_THE_TASK if name in given]
            restored["task"], taken = without_settings(restored["task"], own_options)
            restored |= taken
    return [word for name, value in restored.items() for word in (flag_of(name), str(value))]


def run_settings(options: TrainOptions, config: DeltaTrainerConfig) -> dict[str, Any]:
    """Every setting of a run, flat: what `run.json` keeps."""
    settings = {**asdict(options), **config.to_dict()}
    if is_gguf(options.model):
        settings["model_sha256"] = gguf_digest(options.model)
    for name, spec in (("method", config.method), ("reward", options.reward), ("task", options.task)):
        if spec and (digest := content_digest(spec)):
            settings[f"{name}{CONTENT}"] = digest
    return {key: value for key, value in settings.items() if key != "resume"}


# ---------------------------------------------------------------- around the run


@contextmanager
def _failure_told(teller: Teller) -> Iterator[None]:
    """The log keeps where a run failed, which the one line on the terminal does not say."""
    try:
        yield
    except Exception:
        with suppress(OSError):  # a full disk must not hide the failure itself
            teller.log(traceback.format_exc())
        raise
