"""Writing a run folder (docs/run_schema.md) during TRL's training: metrics, sampled rollouts, token sums, sealed checkpoints."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import IntervalStrategy, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from delta_rlvr.adapters.metrics import untracked
from delta_rlvr.adapters.trl.resume import read_seal, seal
from delta_rlvr.adapters.trl.rollout_batch import RolloutBatch
from delta_rlvr.adapters.trl.sharing import track_tokens
from delta_rlvr.files import is_number
from delta_rlvr.runs import RunWriter
from delta_rlvr.runs.layout import shown_text
from delta_rlvr.runs.recorder import IN_FOLDER, Recorder, is_sampled, no_signal
from delta_rlvr.tasks.sources.schemas import ANSWER_FIELDS

if TYPE_CHECKING:
    from delta_rlvr.adapters.trl.trainer import DeltaTrainer

# TRL's name of a metric -> its name in the run folder.
_NAMES = {
    "epoch": "epoch",
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "reward": "reward",
    "reward_std": "reward_std",
    "entropy": "entropy",
    "kl": "kl",
    "completions/mean_length": "length",
    "completions/clipped_ratio": "truncated",
    "clip_ratio/low_mean": "clip_low",
    "clip_ratio/high_mean": "clip_high",
}

_ANSWERS = ("answer", "solution", *ANSWER_FIELDS)
"""The columns of a script's data set that may have the reference answer."""
_ROLLOUT_PHASES = ("generate", "logps", "reward", "credit")

DecisiveTokens = Callable[[Mapping[str, Any], list[str]], list[int] | None]
"""A function from a row of the data set and a response's token texts to 0 or 1 per token, or None where the task does not know."""


def _in_our_names(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of a line of TRL's log under their names in the run folder."""
    line = {ours: logs[theirs] for theirs, ours in _NAMES.items() if logs.get(theirs) is not None}
    return line | untracked(logs) | {name: value for name, value in logs.items() if name.startswith("rewards/")}


class SilenceWarning(TrainerCallback):
    """Warns a script of steps from which nothing is learnt, with the likely cause: once for each cause."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        logs: dict[str, Any] = given.get("logs") or {}
        if "loss" not in logs or not state.is_world_process_zero:
            return
        look = IN_FOLDER if args.run_folder else "look at some responses with log_completions=True"
        cause = no_signal(_in_our_names(logs), look)
        if cause and cause not in self._said:
            self._said.add(cause)
            warnings.warn(f"step {state.global_step}: {cause}", stacklevel=1)


class RunFolderCallback(TrainerCallback):
    """Writes a run folder during training, once it is attached to a trainer."""

    def __init__(
        self,
        writer: RunWriter | None,
        *,
        rollouts_every: int = 10,
        rollout_groups: int = 4,
        decisive: DecisiveTokens | None = None,
        reasons: Callable[[], list[str] | None] | None = None,
        answer: str | None = None,
    ):
        """`writer`: None on ranks other than the first, which take part in sums but write nothing. `rollouts_every`: steps between
        those whose rollouts are written (0: none). `rollout_groups`: the number of their prompts (0: all). `answer`: the column of
        the reference answer (None: the first of the usual names)."""
        self.recorder = None if writer is None else Recorder(writer, None, groups=rollout_groups)
        self.rollouts_every = rollouts_every
        self.decisive = decisive
        self.reasons = reasons
        self._answers = (answer,) if answer else _ANSWERS
        self._trainer: DeltaTrainer | None = None
        self._time_before = 0.0
        self._step_began = 0.0
        self._step_seconds = 0.0
        self._steps_timed = 0
        self._unused: list[Any] = []  # token sums of batches of which no step was taken: no checkpoint has them

    def attach(self, trainer: DeltaTrainer) -> None:
        """Start to record a trainer."""
        self._trainer = trainer
        if self.recorder is not None:
            self.recorder.tokenizer = trainer.processing_class
            trackers = trainer.args.report_to  # transformers makes it a list
            assert isinstance(trackers, list)
            self.recorder.viewers.append(partial(track_tokens, trackers))
        trainer.looks_closely = self.is_sampled
        trainer.observers.append(self.observe)
        trainer.add_callback(self)

    def detach(self) -> None:
        """Stop recording."""
        assert self._trainer is not None
        self._trainer.looks_closely = lambda step: False
        self._trainer.observers.remove(self.observe)
        self._trainer.remove_callback(self)

    # ------------------------------------------------------------------ rollouts

    def observe(self, batch: RolloutBatch) -> None:
        """Add a batch to the token sums and, at sampled steps, write its rollouts."""
        if self.recorder is None:
            return
        self._unused.append(batch.vocabulary.cpu().numpy())
        if self.is_sampled(batch.step):
            self.recorder.write_rollouts(batch.step, self._responses(batch, self.recorder))

    def is_sampled(self, step: int) -> bool:
        """Return whether the rollouts that are first used at `step` are written."""
        assert self._trainer is not None
        updates, planned = self._trainer.args.updates_per_batch, self._trainer.state.max_steps
        return is_sampled(step, every=self.rollouts_every, updates=updates, last=planned)

    def _responses(self, batch: RolloutBatch, recorder: Recorder) -> Iterator[dict[str, Any]]:
        record, groups = batch.record, batch.groups.tolist()
        reasons = (self.reasons() if self.reasons else None) or []
        ends = record.lengths.cumsum(0).tolist()
        seen: Counter[int] = Counter()
        for row, (group, end, length) in enumerate(zip(groups, ends, record.lengths.tolist(), strict=True)):
            index = seen[group]
            seen[group] += 1
            if not recorder.keeps(group):
                continue
            mask, packed, facts = batch.mask[row], slice(end - length, end), batch.rows[row]
            prompt = facts.get("prompt")  # an environment may write the prompt instead
            padded = {"logps": batch.logps, "entropy": batch.entropy}
            solved = {
                "weight": record.weights,
                "alpha": record.alpha,
                "margin": record.margin,
                "margin_initial": record.margin_initial,
            }
            others = {name: values[packed].tolist() for name, values in batch.others.items()}
            yield {
                "group": group,
                "index": index,
                "prompt": self._prompt(batch, row),
                "prompt_id": facts.get("id"),
                "reward": batch.rewards[row].item(),
                "advantage": batch.advantages[row].item(),
                "reason": reasons[row] if row < len(reasons) else None,
                "answer": shown_text(next((facts[one] for one in self._answers if facts.get(one) is not None), None)),
                "ids": batch.completion_ids[row][mask].tolist(),
                "messages": None if isinstance(prompt, str) else prompt,
                **{name: one[row][mask].tolist() for name, one in padded.items() if one is not None},
                **{name: one[packed].tolist() for name, one in solved.items() if one is not None},
                "other_weights": others or None,
                "decisive": None if self.decisive is None else partial(self.decisive, facts),
            }

    def _prompt(self, batch: RolloutBatch, row: int) -> str:
        """Return the prompt from the data set, or decode it if an environment wrote it."""
        if "prompt" in batch.rows[row]:
            return shown_text(batch.rows[row]["prompt"])
        tokenizer: Any = self._trainer and self._trainer.processing_class
        read = batch.prompt_ids[row][batch.prompt_mask[row].bool()]
        return str(tokenizer.decode(read, skip_special_tokens=True))

    # ------------------------------------------------------------------ metrics and checkpoints

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        sealed = read_seal(_checkpoint(args, state.global_step)) or {}
        self._time_before = float(sealed.get("seconds", 0.0)) - time.perf_counter()

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._step_began = time.perf_counter()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._step_seconds += time.perf_counter() - self._step_began
        self._steps_timed += 1
        if state.global_step >= state.max_steps and args.logging_strategy == IntervalStrategy.STEPS:
            control.should_log = True  # also where `logging_steps` does not divide the number of steps
        while self._unused and self.recorder is not None:
            self.recorder.writer.tokens.add_sums(*self._unused.pop(0))

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        logs: dict[str, Any] | None = given.get("logs")
        assert self._trainer is not None
        if self.recorder is None or not logs:
            return
        if "loss" not in logs:
            self._keep_evaluation(self.recorder.writer, logs, state.global_step)
            return
        line: dict[str, Any] = {"step": state.global_step, "time": time.perf_counter() + self._time_before}
        self.recorder.log(line | _in_our_names(logs) | self._trainer.folder_metrics | self._take_seconds())

    @staticmethod
    def _keep_evaluation(writer: RunWriter, logs: Mapping[str, Any], step: int) -> None:
        """Record TRL's own evaluation: the reward before the first step and the last one stand where held-out scores would."""
        scores = {name: value for name, value in logs.items() if name.startswith("eval_") and is_number(value)}
        if scores and step:
            writer.add({"step": step, **scores})
        if "eval_reward" in scores:
            score = {"accuracy": scores["eval_reward"], "own_reward": True, "metric": "eval_reward", "step": step}
            writer.update(final={**writer.info["final"], "after" if step else "before": score})

    def _take_seconds(self) -> dict[str, float]:
        """Return the seconds per step of each phase since the last line. The update is all but the rollout."""
        assert self._trainer is not None
        steps = max(1, self._steps_timed)
        taken = {f"seconds_{phase}": self._trainer.seconds.get(phase, 0.0) / steps for phase in _ROLLOUT_PHASES}
        total = self._step_seconds / steps
        taken |= {"seconds_update": total - sum(taken.values()), "seconds_step": total}
        self._trainer.seconds.clear()
        self._step_seconds, self._steps_timed = 0.0, 0
        return taken

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        assert self._trainer is not None
        # Every rank writes files into a checkpoint: it is complete when the last rank is done.
        self._trainer.accelerator.wait_for_everyone()
        if self.recorder is None:
            return
        self.recorder.save_tokens(state.global_step)
        seal(
            _checkpoint(args, state.global_step),
            step=state.global_step,
            seconds=time.perf_counter() + self._time_before,
            ends_batch=self._trainer.ends_batch,
        )


def _checkpoint(args: TrainingArguments, step: int) -> Path:
    return Path(str(args.output_dir)) / f"checkpoint-{step}"
