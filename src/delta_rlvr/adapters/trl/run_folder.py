"""Writes a run folder (docs/run_schema.md) while TRL trains: metrics, sampled rollouts, token sums, checkpoints that are whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from delta_rlvr.adapters.metrics import untracked
from delta_rlvr.adapters.trl.resume import read_seal, seal
from delta_rlvr.adapters.trl.rollout_batch import RolloutBatch
from delta_rlvr.models.token_texts import token_texts, vocabulary_texts
from delta_rlvr.rewards import OVERLONG
from delta_rlvr.runs import RunWriter
from delta_rlvr.runs.layout import shown_text

if TYPE_CHECKING:
    from delta_rlvr.adapters.trl.trainer import DeltaTrainer

# What TRL calls a metric -> what the run folder calls it.
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

_ROLLOUT_PHASES = ("generate", "logps", "reward", "credit")

DecisiveTokens = Callable[[Mapping[str, Any], list[str]], list[int] | None]
"""(row of the data set, token texts of a response) -> 0/1 a token, or None where the task cannot know."""


class RunFolderCallback(TrainerCallback):
    """Keeps a run folder up to date. Attach it with `attach`."""

    def __init__(
        self,
        writer: RunWriter | None,
        *,
        rollouts_every: int = 10,
        rollout_groups: int = 4,
        decisive: DecisiveTokens | None = None,
        reasons: Callable[[], list[str] | None] | None = None,
    ):
        """`writer`: None on ranks other than the first, which take part in sums but write nothing. `rollouts_every`: steps between
        dumps (0: none). `rollout_groups`: prompts in a dump (0: all)."""
        self.writer = writer
        self.rollouts_every = rollouts_every
        self.rollout_groups = rollout_groups
        self.decisive = decisive
        self.reasons = reasons
        self.listeners: list[Callable[[dict[str, Any]], None]] = []
        """Called with every line of metrics."""
        self._trainer: DeltaTrainer | None = None
        self._time_before = 0.0
        self._step_began = 0.0
        self._step_seconds = 0.0
        self._steps_timed = 0

    def attach(self, trainer: DeltaTrainer) -> None:
        """Start to follow a trainer."""
        self._trainer = trainer
        trainer.looks_closely = self.is_sampled
        trainer.observers.append(self.observe)
        trainer.add_callback(self)

    def detach(self) -> None:
        """Stop to follow it."""
        assert self._trainer is not None
        self._trainer.looks_closely = lambda step: False
        self._trainer.observers.remove(self.observe)
        self._trainer.remove_callback(self)

    # ------------------------------------------------------------------ rollouts

    def observe(self, batch: RolloutBatch) -> None:
        """Add a batch to the token sums and, at sampled steps, write its rollouts."""
        if self.writer is None:
            return
        self.writer.tokens.add_sums(*batch.vocabulary.cpu().numpy())
        if self.is_sampled(batch.step):
            self.writer.write_rollouts(batch.step, self._responses(batch))

    def is_sampled(self, step: int) -> bool:
        """Whether the rollouts first used at `step` are written: every so many steps, and always the first and the last of a run. A
        sampled step need not be the first of those that its batch is used for."""
        updates = self._trainer.args.updates_per_batch if self._trainer else 1
        planned = self._trainer.state.max_steps if self._trainer else 0
        last = planned > 0 and step > planned - updates
        return self.rollouts_every > 0 and (step == 1 or step % self.rollouts_every < updates or last)

    def _responses(self, batch: RolloutBatch) -> list[dict[str, Any]]:
        assert self._trainer is not None
        tokenizer = self._trainer.processing_class
        groups = batch.groups.tolist()
        first = min(groups)
        reasons = self.reasons() if self.reasons else None
        starts = (batch.record.lengths.cumsum(0) - batch.record.lengths).tolist()
        responses: list[dict[str, Any]] = []
        seen: dict[int, int] = {}
        for row, (group, length) in enumerate(zip(groups, batch.record.lengths.tolist(), strict=True)):
            index = seen[group] = seen.get(group, -1) + 1
            if self.rollout_groups and group - first >= self.rollout_groups:
                continue
            mask = batch.mask[row]
            ids = batch.completion_ids[row][mask].tolist()
            tokens = token_texts(tokenizer, ids)
            line: dict[str, Any] = {
                "step": batch.step,
                "group": group,
                "index": index,
                "prompt": self._prompt(batch, row),
                "prompt_id": batch.rows[row].get("id"),
                "response": "".join(tokens),
                "reward": batch.rewards[row].item(),
                "advantage": batch.advantages[row].item(),
                "reason": reasons[row] if reasons and row < len(reasons) else None,
                "answer": shown_text(batch.rows[row].get("answer")),
                "tokens": tokens,
                "ids": ids,
            }
            prompt = batch.rows[row].get("prompt")  # an environment may write its own
            if prompt is not None and not isinstance(prompt, str):
                line["messages"] = prompt
            if batch.logps is not None:
                line["logps"] = batch.logps[row][mask].tolist()
            if batch.entropy is not None:
                line["entropy"] = batch.entropy[row][mask].tolist()
            packed = slice(starts[row], starts[row] + length)
            for name, values in (
                ("weight", batch.record.weights),
                ("alpha", batch.record.alpha),
                ("margin", batch.record.margin),
                ("margin_initial", batch.record.margin_initial),
            ):
                if values is not None:
                    line[name] = values[packed].tolist()
            if batch.others:
                line["other_weights"] = {
                    name: values[packed].tolist() for name, values in batch.others.items()
                }
            if self.decisive is not None and (decisive := self.decisive(batch.rows[row], tokens)) is not None:
                line["decisive"] = decisive
            responses.append(line)
        return responses

    def _prompt(self, batch: RolloutBatch, row: int) -> str:
        """The prompt as the data set has it; as the policy read it where an environment wrote it."""
        if "prompt" in batch.rows[row]:
            return shown_text(batch.rows[row]["prompt"])
        tokenizer: Any = self._trainer and self._trainer.processing_class
        read = batch.prompt_ids[row][batch.prompt_mask[row].bool()]
        return str(tokenizer.decode(read, skip_special_tokens=True))

    # ------------------------------------------------------------------ metrics and checkpoints

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        sealed = read_seal(_checkpoint(args, state.global_step)) or {}
        self._time_before = float(sealed.get("seconds", 0.0)) - time.perf_counter()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._step_began = time.perf_counter()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._step_seconds += time.perf_counter() - self._step_began
        self._steps_timed += 1

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        assert self._trainer is not None
        if self.writer is None or not logs or "loss" not in logs:
            return
        line: dict[str, Any] = {"step": state.global_step, "time": time.perf_counter() + self._time_before}
        line |= {ours: logs[theirs] for theirs, ours in _NAMES.items() if logs.get(theirs) is not None}
        line |= untracked(logs)
        line |= {name: value for name, value in logs.items() if name.startswith("rewards/")}
        if note := no_signal(line):
            line["note"] = note
        line |= self._take_seconds()
        self.writer.log(line)
        for listener in self.listeners:
            listener(line)

    def _take_seconds(self) -> dict[str, float]:
        """Seconds a step by phase since the last line. What is not part of the rollout is the update: forward, backward, optimizer."""
        assert self._trainer is not None
        steps = max(1, self._steps_timed)
        taken = {
            f"seconds_{phase}": self._trainer.seconds.get(phase, 0.0) / steps for phase in _ROLLOUT_PHASES
        }
        total = self._step_seconds / steps
        taken |= {"seconds_update": total - sum(taken.values()), "seconds_step": total}
        self._trainer.seconds.clear()
        self._step_seconds, self._steps_timed = 0.0, 0
        return taken

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        assert self._trainer is not None
        # Every rank writes its own files into a checkpoint: it is whole when the last one has.
        self._trainer.accelerator.wait_for_everyone()
        if self.writer is None:
            return
        self.writer.save_tokens(state.global_step, self._text_of)
        seal(
            _checkpoint(args, state.global_step),
            step=state.global_step,
            seconds=time.perf_counter() + self._time_before,
            ends_batch=self._trainer.ends_batch,
        )

    def _text_of(self, ids: list[int]) -> list[str]:
        assert self._trainer is not None
        return vocabulary_texts(self._trainer.processing_class, ids)

    def save_tokens(self) -> None:
        """Write the token sums at the end of the run."""
        assert self.writer is not None
        self.writer.save_tokens(None, self._text_of)


def no_signal(
    line: Mapping[str, Any], look: str = "look at the responses and reasons in the run's rollouts folder"
) -> str | None:
    """Why a step taught nothing, in words, where no group's rewards differ (the loss is then 0, but for rounding). `look`: what to look
    at where it cannot be told."""
    if line.get("signal_groups", 1) > 0:
        return None
    reward = line.get("reward") or 0.0
    all_cut = line.get("truncated", 0) >= 0.99
    if _constant_and_ungraded(line):
        cause = f"every response got the reward {reward:.4g}: look at your reward function, which does not tell them apart"
        if all_cut:
            cause += ", and at max_completion_length, where every response was cut"
    elif all_cut and reward <= 0:
        cause = (
            "every response was cut at the length limit before it gave an answer: raise max_completion_length"
        )
    elif reward == 0:
        cause = (
            "every response was graded 0: the problems are too hard for the model, or what judges them (the grader, or your reward "
            f"function) does not find the answers ({look})"
        )
    elif reward == 1:
        cause = "every response was right: the problems are too easy for the model; take harder ones"
    else:
        cause = "within every group all responses got the same reward: sample more responses per prompt (num_generations), or warmer"
    return f"no learning signal: {cause}"


def _constant_and_ungraded(line: Mapping[str, Any]) -> bool:
    """Whether all rewards of the batch are equal and not just a grader's 0 or 1, with an overlong penalty or without."""
    spread, reward = line.get("reward_std"), line.get("reward") or 0.0
    # Rounding: a mean of n equal float32 numbers, and so their spread, is off by a few times 1.2e-7 of their size.
    if spread is None or spread > 1e-5 * abs(reward):
        return False
    parts = {
        name: value for name, value in line.items() if name.startswith("rewards/") and name.endswith("/mean")
    }
    parts.pop(f"rewards/{OVERLONG}/mean", None)
    return any(value not in (0, 1) for value in parts.values())


def _checkpoint(args: TrainingArguments, step: int) -> Path:
    return Path(str(args.output_dir)) / f"checkpoint-{step}"
