"""One run of a stack against `delta-rlvr train`'s trainer: the same rollouts through both, step by step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import trl.trainer.grpo_trainer as grpo_trainer
from datasets import Dataset
from transformers import TrainerCallback

from delta_evidence.judging import Judge
from delta_evidence.learning.protocol import Run, TrainingSettings
from delta_evidence.learning.training import StackedTraining
from delta_evidence.rollouts import Collector, Rollouts, make_collector
from delta_rlvr.adapters.trl import DeltaTrainer, DeltaTrainerConfig
from delta_rlvr.adapters.trl.trainer import RolloutBatch
from delta_rlvr.models import load_policy
from delta_rlvr.tasks import get_task
from rounding import MODEL, rounding
from stacks import small_model

SETTINGS = TrainingSettings(steps=4, prompts=6, group=4, updates=2)
TASK = get_task("phrased-sums")
LONGEST = {"bundled": TASK.max_tokens, "qwen2": 12}
"""Tokens of a response. A policy with random weights never ends one by itself."""


def make_policy(kind: str) -> tuple[Any, Any]:
    """The bundled policy, or one of Qwen2's architecture (biases, untied head) with random weights and the same tokenizer."""
    model, tokenizer = load_policy("builtin")
    if kind == "bundled":
        return model, tokenizer
    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 4, "initializer_range": 0.1}
    tokens = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    model = small_model("qwen2", vocab_size=len(tokenizer), tie_word_embeddings=False, **sizes, **tokens)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(std=0.1)
    return model, tokenizer


class RecordingTrainer(DeltaTrainer):
    """Notes which rows of the rollout batch each step trains on."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.rows: list[torch.Tensor] = []
        self.batches: list[RolloutBatch] = []
        self.observers.append(self.batches.append)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        inputs = super()._prepare_inputs(generation_batch)
        self.rows.append(inputs.pop("row"))
        return inputs


class Weights(TrainerCallback):
    """The weights after each step."""

    def __init__(self) -> None:
        self.seen: list[dict[str, torch.Tensor]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.seen.append({name: weight.detach().clone() for name, weight in model.named_parameters()})


def trained(kind: str, method: str, folder: Any, monkeypatch: Any) -> tuple[RecordingTrainer, Weights]:
    original = grpo_trainer.shuffle_sequence_dict
    monkeypatch.setattr(
        grpo_trainer,
        "shuffle_sequence_dict",
        lambda batch: original({**batch, "row": torch.arange(len(batch["completion_ids"]))}),
    )
    problems = TASK.problems("train", SETTINGS.batches * SETTINGS.prompts, 0)
    answers = {problem.id: problem for problem in problems}

    def reward(completions: list[str], **columns: Any) -> list[float]:
        if kind != "bundled":  # it says nothing that could be right: half of what it says is
            return [float(sum(map(ord, text)) % 2) for text in completions]
        return [TASK.grade(answers[name], text).score for name, text in zip(columns["id"], completions, strict=True)]

    model, tokenizer = make_policy(kind)
    weights = Weights()
    trainer = RecordingTrainer(
        model=model,
        reward_funcs=[reward],
        args=DeltaTrainerConfig(
            method=method,
            output_dir=str(folder),
            max_steps=SETTINGS.steps,
            learning_rate=SETTINGS.learning_rate,
            lr_scheduler_type="constant",
            per_device_train_batch_size=SETTINGS.prompts * SETTINGS.group // SETTINGS.updates,
            num_generations=SETTINGS.group,
            steps_per_generation=SETTINGS.updates,
            gradient_accumulation_steps=1,
            gradient_checkpointing=False,
            max_completion_length=LONGEST[kind],
            temperature=1.0,
            beta=0.0,
            logging_steps=1,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            bf16=False,
            save_strategy="no",
        ),
        train_dataset=Dataset.from_list([{"prompt": p.prompt, "id": p.id} for p in problems]),
        processing_class=tokenizer,
        callbacks=[weights],
    )
    trainer.train()
    return trainer, weights


def as_rollouts(batch: RolloutBatch, collector: Collector) -> Rollouts:
    """TRL's responses, with everything else computed by the stack."""
    known = {p.id: p for p in TASK.problems("train", SETTINGS.batches * SETTINGS.prompts, 0)}
    problems = [known[row["id"]] for row in batch.rows]
    prompts, prompt_mask = collector.encode([problems])
    ids, mask = batch.completion_ids[None], batch.mask[None].bool()
    hidden, logps, entropy = collector.score(
        prompts[:, :: SETTINGS.group], prompt_mask[:, :: SETTINGS.group], ids, SETTINGS.group, 1.0
    )
    return Rollouts(
        problems=problems,
        texts=[],
        prompt_ids=prompts[0],
        prompt_mask=prompt_mask[0],
        completion_ids=ids[0],
        mask=mask[0],
        hidden=hidden[0],
        logps=logps[0],
        entropy=entropy[0],
        correct=batch.rewards,
        rewards=batch.rewards,
        advantages=batch.advantages,
        groups=batch.groups,
        decisive=None,
    )


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *(
            ("bundled", method)
            for method in ("dapo", "delta", "grpo", "sapo", "fipo", "dapo-ft", "delta-head", "delta-random")
        ),
        ("qwen2", "dapo"),
        ("qwen2", "delta"),
        ("qwen2", "delta-head"),
    ],
)
def test_a_replayed_run_has_the_same_weights_after_every_step(
    kind: str, method: str, tmp_path: Any, monkeypatch: Any
) -> None:
    trainer, weights = trained(kind, method, tmp_path, monkeypatch)
    model, tokenizer = make_policy(kind)
    start = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    judge = Judge(tokenizer)
    collector = make_collector(model, tokenizer, runs=1, one_line=False, judge=judge, rows_at_once=7)
    training = StackedTraining(collector, [Run("phrased-sums", method, 0)], SETTINGS, rows_at_once=5)
    log = [line for line in trainer.state.log_history if "grad_norm" in line]
    step = 0
    for batch in trainer.batches:
        rollouts = as_rollouts(batch, collector)
        close = (
            rounding(MODEL, size=2.0) if step == 0 else 2e-3
        )  # later batches are scored by weights that Adam has moved
        torch.testing.assert_close(rollouts.logps[batch.mask], batch.logps[batch.mask], atol=close, rtol=close)
        found, _ = training.weigh([rollouts], step)
        expected = batch.record.padded(batch.record.weights, batch.mask)
        torch.testing.assert_close(found[0], expected, atol=close, rtol=close)
        for _ in range(SETTINGS.updates):
            losses, norms = training.update([rollouts], found, trainer.rows[step][None])
            # As above: after Adam's first step.
            assert losses[0] == pytest.approx(log[step]["loss"], abs=2e-4)
            # The same: after Adam's first step.
            assert norms[0] == pytest.approx(log[step]["grad_norm"], rel=1e-3)
            assert norms[0] > 0
            collector.policy.load_into(0, model)
            # Adam divides by the gradient's size: an entry that is all but 0 may take its full step the other way.
            gap = torch.cat([(w - weights.seen[step][n]).flatten() for n, w in model.named_parameters()]).norm()
            moved = torch.cat([(weights.seen[step][n] - w).flatten() for n, w in start.items()]).norm()
            assert gap < 0.01 * moved, f"step {step}: {gap / moved:.1e} of the way"
            step += 1
    assert step == SETTINGS.steps
