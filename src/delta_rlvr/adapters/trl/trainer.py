"""DelTA and other methods on TRL's GRPOTrainer. All internals of TRL's trainer that we rely on are used in this file (those of its
data sampler in resume.py).

The steps of a rollout batch in TRL, and what we add to them:

    _generate                               we keep the tool mask and the time
    _get_per_token_logps_and_entropies      TRL's old-log-prob pass, if it runs one: a hook keeps the hidden states
    _calculate_rewards                      we refuse infinite rewards and keep the time
    advantages                              we solve for the weights and multiply the advantages, which become per token
    _compute_loss                           unchanged, except in the plan "late" and for surrogates that reweigh tokens

The pass that gives a rule what it needs of the policy (`_plan`):

    stock     TRL runs its old-log-prob pass anyway: it is captured.
    late      TRL skips the pass, and one training forward covers the rollout batch: that forward is captured, and the weights are
              solved for before the loss reads the advantages. No pass is added.
    forced    TRL skips the pass, and several forwards share the rollout batch: the pass is run only for the weights. The loss does not
              get its log-probs, and it has its own random numbers, so that training is the same as without it.
    none      The rule needs no pass, or takes the sampler's log-probs (`logps_from="sampler"`).
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import platform
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
import trl
from accelerate.utils import gather_object, is_peft_model
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import IntervalStrategy
from trl import GRPOTrainer

from delta_rlvr.adapters.metrics import MAIN_METRICS, PREFIX
from delta_rlvr.adapters.token_advantages import for_loss
from delta_rlvr.adapters.trl.capture import Capture
from delta_rlvr.adapters.trl.checks import refuse_infinite, refusing_empty
from delta_rlvr.adapters.trl.config import DeltaTrainerConfig
from delta_rlvr.adapters.trl.finite import FiniteTraining
from delta_rlvr.adapters.trl.head import check_head, logit_scale, whole_head
from delta_rlvr.adapters.trl.recorded import checkpoint_named, last_checkpoint, recorded_script, script_facts
from delta_rlvr.adapters.trl.resume import ExactResume
from delta_rlvr.adapters.trl.rollout_batch import RolloutBatch
from delta_rlvr.adapters.trl.run_folder import SilenceWarning
from delta_rlvr.adapters.trl.version import VERSION_HELP, check_trl_version
from delta_rlvr.adapters.trl.weighing import BatchFacts, Weigher
from delta_rlvr.credit import CreditStream, RowStore
from delta_rlvr.models.finite import sampled
from delta_rlvr.objectives import Method, all_methods, group_numbers, rewarded_alike
from delta_rlvr.runs.model_card import write_card

Plan: TypeAlias = Literal["stock", "late", "forced", "none"]
Unlogged: TypeAlias = tuple[tuple[Any, Any, Any], Tensor]
"""Metrics of TRL's log, those of the run folder alone, seconds by phase; the sum of the losses."""

_OF_THE_POLICY = frozenset({"hidden", "head", "logps", "entropy"})
"""The needs of a rule that take a forward pass."""


class DeltaTrainer(GRPOTrainer):
    """A drop-in for `GRPOTrainer` that weighs tokens by `args.method`."""

    args: DeltaTrainerConfig

    def __init__(
        self, model: Any, reward_funcs: Any = None, args: DeltaTrainerConfig | None = None, *others: Any, **kwargs: Any
    ):
        check_trl_version()
        if args is None:
            name = model if isinstance(model, str) else model.config._name_or_path
            args = DeltaTrainerConfig(f"{name.split('/')[-1]}-DelTA")
        if not isinstance(args, DeltaTrainerConfig):
            raise TypeError(
                f"args: DeltaTrainer needs a DeltaTrainerConfig, not {type(args).__name__}; "
                "it takes every option of GRPOConfig"
            )
        args.taken_up = True
        super().__init__(model, reward_funcs, args, *others, **kwargs)
        if self.rollout_func is not None:
            self.rollout_func = refusing_empty(self.rollout_func)
        elif self._reads_the_sampler and not self.use_vllm:
            raise ValueError(
                "logps_from='sampler': transformers' generation gives no log-probs; use vLLM or a rollout_func that "
                f"returns them, or logps_from='policy'{self._pass_anyway}"
            )
        self.seconds: dict[str, float] = defaultdict(float)
        """Seconds by phase since the last `clear`."""
        self.folder_metrics: dict[str, float] = {}
        """The weights' metrics of the last log line that only the run folder gets."""
        self._folder_values: dict[str, list[float]] = defaultdict(list)
        self.observers: list[Callable[[RolloutBatch], None]] = []
        """Functions that get every training rollout batch, on every rank."""
        self.looks_closely: Callable[[int], bool] = lambda step: False
        """Whether observers also want entropies and the weights of `args.shown_methods` at a step."""
        store = RowStore(
            device_bytes=_bytes(args.store_device_gb),
            host_bytes=_bytes(args.store_host_gb),
            ranks_on_node=gather_object([platform.node()]).count(platform.node()),
        )
        self._weigher = Weigher(self.method, args.shown_methods, store, self.accelerator)
        self._unwrapped: tuple[Any, Any] | None = None
        # The state of the current rollout batch:
        self._plan_now: Plan = "none"
        self._capture: Capture | None = None
        self._tool_masks: list[list[int]] | None = None
        self._rewards: Tensor | None = None
        self._alike: Tensor | None = None
        self._iterations: int | None = None
        # The state of the current loss:
        self._late: BatchFacts | None = None
        self._loss_inputs: dict[str, Any] | None = None
        self._check_head()
        self._finite = FiniteTraining(self)
        self.add_callback(self._finite)
        self.add_callback(ExactResume(self))
        self.add_callback(SilenceWarning())

    @property
    def method(self) -> Method:
        """The `Method` of the spec in `args.method`."""
        return self.args.resolved_method

    def train(
        self, resume_from_checkpoint: str | bool | None = None, *args: Any, accept_changed: bool = False, **kwargs: Any
    ) -> Any:
        """Train as TRL does. With a run folder, a run whose rule, reward or rows have changed is only resumed with `accept_changed`."""
        if not self.args.run_folder:
            with checkpoint_named(str(self.args.output_dir)):
                return super().train(resume_from_checkpoint, *args, **kwargs)
        checkpoint = None
        if resume_from_checkpoint is True:
            checkpoint = last_checkpoint(Path(str(self.args.output_dir)))
        elif resume_from_checkpoint:
            checkpoint = Path(resume_from_checkpoint)
        again = resume_from_checkpoint is True
        recording = recorded_script(self, checkpoint, again=again, accept_changed=accept_changed)
        with checkpoint_named(str(self.args.output_dir)), recording:
            return super().train(str(checkpoint) if checkpoint else None, *args, **kwargs)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        # TRL's card lacks the run's method and scores. With a run folder our card is beside the model; the hub needs one in output_dir.
        if self.is_world_process_zero() and (self.args.push_to_hub or not self.args.run_folder):
            write_card(Path(str(self.args.output_dir)), script_facts(self))

    @property
    def model_name(self) -> str:
        """The name or path from which the model was loaded, or its type."""
        config = self._causal_model().config
        return config._name_or_path or config.model_type

    # ------------------------------------------------------------------ the rollout batch

    @property
    def _plan(self) -> Plan:
        """The source of what the next rollout batch's weights need of the policy (see the top of the file)."""
        if self._stock_pass:
            return "stock"
        needed = _OF_THE_POLICY & set(self.method.rule.needs)
        if self.args.logps_from == "sampler":
            needed -= {"logps"}
        if not (needed or self._closely or self.args.equal_work):
            return "none"
        return "late" if self.passes_per_batch == 1 and not self.args.equal_work else "forced"

    @property
    def _stock_pass(self) -> bool:
        """Whether TRL runs its old-log-prob pass by itself."""
        corrected = self.use_vllm and self.vllm_importance_sampling_correction
        return bool(self.args.gradient_accumulation_steps % self.passes_per_batch) or corrected

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        assert self.model is not None
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        self._plan_now = plan = self._plan
        self._capture = self._late = None
        try:
            output = super()._generate_and_score_completions(inputs)
        finally:
            self._restore_iterations()
            self._plan_now = "none"  # later passes are not those of the old policy
        capture, self._capture = self._capture, None
        self._check_pass(plan, capture, output)
        if plan == "forced":
            del output["old_per_token_logps"]
        if int(output["num_items_in_batch"]) == 0:
            warnings.warn(
                "no completion of this batch has a token to learn from (all were cut at max_completion_length and "
                "masked, or empty), so that it has no gradient. Raise max_completion_length",
                stacklevel=2,
            )
            self._weigher.store.clear()
            return output
        rollout = self._rollout(inputs, output)
        if plan == "late":
            # TRL shuffles the rows of a batch: this keeps their original indices.
            output["delta_row"] = torch.arange(len(inputs), device=output["advantages"].device)
            self._late = rollout
            return output
        if capture is None:
            capture = Capture(self._stream(), _valid_tokens(output), output["completion_ids"])
            with capture.opened(None):
                pass
        output["advantages"] = self._weigh(capture, rollout, output["advantages"])
        return output

    def _check_pass(self, plan: Plan, capture: Capture | None, output: dict[str, Any]) -> None:
        """Refuse a TRL that did not follow the plan."""
        asked, ran = plan in ("stock", "forced"), "old_per_token_logps" in output
        if asked != ran or asked != (capture is not None):
            did = "an" if ran else "no"
            raise RuntimeError(f"TRL {trl.__version__} ran {did} old-log-prob pass: {VERSION_HELP}")
        if capture is not None and not torch.equal(capture.mask, _valid_tokens(output)):
            raise RuntimeError(
                f"TRL {trl.__version__} counts other tokens as valid than those that were captured: {VERSION_HELP}"
            )

    def _rollout(self, inputs: list[dict[str, Any]], output: dict[str, Any]) -> BatchFacts:
        assert self._rewards is not None
        assert self._alike is not None
        assert self.num_generations is not None
        first = self.accelerator.process_index * len(inputs)
        numbers = torch.arange(first, first + len(inputs), device=self.accelerator.device)
        return BatchFacts(
            step=self.state.global_step + 1,
            round_number=self._round_number,
            closely=self._closely,
            rows=inputs,
            prompt_ids=output["prompt_ids"],
            prompt_mask=output["prompt_mask"],
            numbers=numbers,
            # TRL puts the copies of a prompt next to each other, over all ranks.
            groups=numbers // self.num_generations,
            rewards=self._rewards,
            alike=self._alike,
            sampler_logps=self._sampler_logps(output) if self._reads_the_sampler else None,
        )

    def _weigh(
        self, capture: Capture, rollout: BatchFacts, advantages: Float[Tensor, " batch"]
    ) -> Float[Tensor, "batch ..."]:
        """Return the advantages times the weights [batch, time], or unchanged if every weight is one."""
        # A group of equal rewards has no side, but TRL may give it tiny advantages by rounding. The loss keeps them, so that `dapo` and
        # `grpo` are bit for bit those of TRL.
        contrast = advantages.masked_fill(rollout.alike, 0.0)
        with self._timed("credit"):
            record = self._weigher.weigh(capture, rollout, contrast)
        record = self._weigher.diagnosed(capture, rollout, contrast, record)
        values = record.summary()
        if self.method.rule.constant:
            values = {"zero_advantage": values["zero_advantage"]}
        if capture.stream.needs_hidden:
            values["store_bytes"] = float(record.store_bytes)
        for name, value in values.items():
            self._note_metric(name, value)
        if self.observers:
            vocabulary = max(len(self._tokenizer), self._causal_model().get_input_embeddings().num_embeddings)
            batch = self._weigher.show(capture, rollout, contrast, record, vocabulary)
            for observe in self.observers:
                observe(batch)
        self._weigher.store.clear()
        if self.method.rule.constant:
            return advantages
        # Every loss of TRL is proportional to A, so that weighing the advantage is weighing the loss (Eq. 8).
        return advantages[:, None] * record.padded(record.weights, capture.mask).to(advantages.dtype)

    def _note_metric(self, name: str, value: float) -> None:
        if self.args.all_credit_metrics or name in MAIN_METRICS:
            self._metrics["train"][f"{PREFIX}{name}"].append(value)
        else:
            self._folder_values[name].append(value)

    @property
    def _closely(self) -> bool:
        """Whether observers want details of this batch."""
        return self.looks_closely(self.state.global_step + 1)

    @property
    def _reads_the_sampler(self) -> bool:
        return self.args.logps_from == "sampler" and "logps" in self.method.rule.needs

    @property
    def _pass_anyway(self) -> str:
        """A clause where the sampler's log-probs spare the method no pass."""
        rest = sorted(_OF_THE_POLICY & set(self.method.rule.needs) - {"logps"})
        if not rest:
            return ""
        served = [n for n, one in all_methods().items() if _OF_THE_POLICY & set(one.rule.needs) == {"logps"}]
        return (
            f". {self.args.method} reads {' and '.join(rest)} too, so it takes the policy's pass anyway: the sampler's log-probs spare "
            f"it only for rules that read nothing else ({', '.join(served)})"
        )

    @property
    def passes_per_batch(self) -> int:
        """The number of forward and backward passes per rollout batch."""
        assert self.args.steps_per_generation is not None
        return self.args.steps_per_generation * self.num_iterations

    @property
    def ends_batch(self) -> bool:
        """Whether the pass that just ended was the last one over its rollout batch."""
        return self._step % self.passes_per_batch == 0

    def unlogged(self) -> Unlogged:
        """Return a copy of what was measured since the last line of the log."""
        parts = self._metrics["train"], self._folder_values, self.seconds
        return copy.deepcopy(parts), self._tr_loss.clone()

    def save_the_last_batch(self, unlogged: Unlogged) -> None:
        """A checkpoint of where the last rollout batch ended, with a line in the log of what was `unlogged` there. The one at work,
        from which nothing was learnt yet, is let go."""
        self._step -= self._step % self.passes_per_batch
        steps = self.state.global_step - self._globalstep_last_logged
        if steps > 0 and self.args.logging_strategy == IntervalStrategy.STEPS:
            (self._metrics["train"], self._folder_values, self.seconds), loss = unlogged
            assert self.model is not None
            self.model.train()
            self.log({"loss": loss.item() / steps})
        self._save_checkpoint(self.model, trial=None)
        self.callback_handler.on_save(self.args, self.state, self.control)

    @property
    def planned_steps(self) -> int:
        """The number of optimizer steps of the whole training, also if it is given in epochs."""
        *_, steps = self.set_initial_training_values(self.args, self.get_train_dataloader())
        return steps

    def load_weights(self, checkpoint: Path) -> None:
        """Load the weights of a checkpoint without training, for a run that was stopped after its last step."""
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise ValueError(f"this run has taken all its steps: its weights are in {checkpoint}")
        self._load_from_checkpoint(str(checkpoint))

    @property
    def _round_number(self) -> int:
        """A unique number of this rollout batch, the same in a resumed run (TRL's own counter starts again)."""
        accumulation = self.args.gradient_accumulation_steps
        return self.state.global_step * accumulation + self._step % accumulation

    # ------------------------------------------------------------------ TRL's steps, overridden

    def _generate(self, prompts: list[Any]) -> Any:
        with self._timed("generate"), sampled(self.state.global_step + 1):
            generated = super()._generate(prompts)
        self._tool_masks = generated[2]
        if self._plan_now == "forced":
            # TRL skips the pass if the optimizer step is a multiple of `passes_per_batch`: prevent that until the pass begins, so that
            # rollout functions and rewards get the real number.
            self._iterations = self.num_iterations
            self.num_iterations = self.args.gradient_accumulation_steps + 1
        return generated

    def _restore_iterations(self) -> None:
        if self._iterations is not None:
            self.num_iterations, self._iterations = self._iterations, None

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, *args: Any, **kwargs: Any
    ) -> Any:
        run = functools.partial(
            super()._get_per_token_logps_and_entropies, model, input_ids, attention_mask, logits_to_keep, *args
        )
        # The first pass of a rollout batch is the old policy's; under PEFT a reference pass on the same model may follow.
        if self._plan_now in ("stock", "forced") and self._capture is None and model is self.model:
            self._restore_iterations()
            # The stream may gather the whole head, which should not take memory during generation.
            mask = self._written_tokens(attention_mask[:, -logits_to_keep:])
            self._capture = capture = Capture(self._stream(), mask, input_ids[:, -logits_to_keep:])
            wanted = "entropy" in self.method.rule.needs or self._closely
            kwargs["compute_entropy"] = kwargs.get("compute_entropy", False) or wanted
            with self._timed("logps"), self._own_random_numbers(), capture.opened(self._backbone()):
                result = run(**kwargs)
            capture.keep(result[0], result[1])
            return result
        inputs = self._loss_inputs
        if inputs is None:
            return run(**kwargs)
        if self._late is None:
            result = run(**kwargs)
        else:
            rows = inputs["delta_row"]
            order = rows.argsort()
            mask = _valid_tokens(inputs)[order]
            capture = Capture(self._stream(), mask, inputs["completion_ids"][order], order)
            with capture.opened(self._backbone()):
                result = run(**kwargs)
            capture.keep(result[0], result[1])
            weighed = self._weigh(capture, self._late, inputs["advantages"][order])[rows]
            inputs["advantages"] = for_loss(weighed, GRPOTrainer._compute_loss)
        if self.method.surrogate.reweighs:
            self._reweigh(result[0], inputs)
        return result

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        # A copy, because the next pass over the batch needs its original advantages.
        inputs = {**inputs, "advantages": for_loss(inputs["advantages"], GRPOTrainer._compute_loss)}
        if self._late is None and not self.method.surrogate.reweighs:
            return super()._compute_loss(model, inputs)
        self._loss_inputs = inputs
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self._loss_inputs = self._late = None

    def _reweigh(self, logps: Tensor, inputs: dict[str, Any]) -> None:
        """Multiply the advantages by the surrogate's weights at the current policy, after TRL's forward and before its loss."""
        old = inputs.get("old_per_token_logps")
        advantages = inputs["advantages"][:, None].expand_as(logps)
        log_ratio = torch.zeros_like(logps) if old is None else logps.detach() - old
        weights = self.method.surrogate.reweigh(log_ratio, advantages, _valid_tokens(inputs))
        inputs["advantages"] = for_loss(advantages * weights.to(advantages.dtype), GRPOTrainer._compute_loss)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        with self._timed("reward"):
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        refuse_infinite(rewards, self.reward_func_names)
        assert self.model is not None
        if self.model.training:
            self._note_rewards(rewards, len(prompts))
        return rewards

    def _note_rewards(self, rewards: Float[Tensor, "total function"], count: int) -> None:
        """Keep this rank's `count` rewards out of those of all ranks, and whether their groups were rewarded alike."""
        assert self.num_generations is not None
        parts = rewards * self.reward_weights.to(rewards.device)
        whole = parts.nansum(dim=1)
        # A response that no function could score has no reward, not 0.
        whole[rewards.isnan().all(dim=1)] = torch.nan
        # TRL compares the sums of rewards within a group, or the rewards of each function.
        summed = self.multi_objective_aggregation == "sum_then_normalize"
        groups = group_numbers(whole, self.num_generations)
        compared = [whole] if summed else parts.unbind(1)
        alike = torch.stack([rewarded_alike(one, groups) for one in compared]).all(0)
        self._note_metric("signal_groups", 1 - alike.float().mean().item())
        first = self.accelerator.process_index * count
        self._rewards, self._alike = whole[first : first + count], alike[first : first + count]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        assert self.model is not None
        if self.model.training:
            # TRL logs means over the steps since the last line, without NaN.
            known = {
                name: [value for value in values if not math.isnan(value)]
                for name, values in self._folder_values.items()
            }
            self.folder_metrics = {name: sum(values) / len(values) for name, values in known.items() if values}
            self._folder_values.clear()
        super().log(logs, start_time)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        before = sum(self.seconds[phase] for phase in ("generate", "logps", "reward", "credit"))
        start = time.perf_counter()
        result = super().training_step(*args, **kwargs)
        self._finite.see_loss(result)
        rollout = sum(self.seconds[phase] for phase in ("generate", "logps", "reward", "credit")) - before
        self.seconds["update"] += time.perf_counter() - start - rollout
        return result

    # ------------------------------------------------------------------ the model

    def _written_tokens(self, completion_mask: Tensor) -> Bool[Tensor, "batch time"]:
        """Return the `_valid_tokens` of a batch that has no output yet."""
        mask = completion_mask.bool().clone()
        for row, tool_mask in enumerate(self._tool_masks or []):
            written = torch.tensor(tool_mask, dtype=torch.bool, device=mask.device)
            mask[row, : len(written)] &= written
        return mask

    def _stream(self) -> CreditStream:
        return self._weigher.stream(
            closely=self._closely, head=self._head, temperature=self.temperature / self._logit_scale
        )

    def _causal_model(self) -> Any:
        # Cached, because unwrapping visits every module: milliseconds in every step.
        if self._unwrapped is None or self._unwrapped[0] is not self.model:
            model = self.accelerator.unwrap_model(self.model)
            self._unwrapped = self.model, model.get_base_model() if is_peft_model(model) else model
        return self._unwrapped[1]

    def _backbone(self) -> Any:
        """The module whose output is the LM head's input."""
        return self._causal_model().base_model

    def _check_head(self) -> None:
        """Refuse a model that the head proxies do not describe, and compile kernels for it."""
        model = self._causal_model()
        self._logit_scale = logit_scale(model.config.get_text_config())
        if self._weigher.needs_head:
            check_head(model, self.method.name)
        self._weigher.warm_up(model.config.get_text_config().hidden_size, model.dtype)

    def _head(self) -> Float[Tensor, "vocab width"]:
        """Return the whole LM head's weight, gathered if it is sharded."""
        sharded = self.is_fsdp_enabled and self.accelerator.num_processes > 1
        return whole_head(self._causal_model(), fsdp_root=self.model_wrapped if sharded else None)

    def _sampler_logps(self, output: dict[str, Any]) -> Float[Tensor, "batch time"]:
        """Return the log-probs that came with the samples. A token without a log-prob counts as certain."""
        if "sampling_per_token_logps" not in output:
            raise ValueError(
                "logps_from='sampler': the rollout_func gave no logprobs; let it return them, or use logps_from='policy'"
            )
        logps = output["sampling_per_token_logps"]
        unknown = logps[_valid_tokens(output)].isnan().float().mean().item()
        self._note_metric("unknown_logps", unknown)
        return logps.nan_to_num(nan=0.0).clamp(max=0)

    @contextlib.contextmanager
    def _own_random_numbers(self) -> Iterator[None]:
        """Restore the random state after a pass that TRL would not have run, so that training draws the same numbers (dropout)."""
        if self._plan_now != "forced":
            yield
            return
        device = self.accelerator.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield

    @contextlib.contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self.model is not None and self.model.training:  # evaluations are not part of a step
            self.seconds[phase] += time.perf_counter() - start


def _valid_tokens(batch: dict[str, Any]) -> Bool[Tensor, "batch time"]:
    """Return the completion tokens that count: no padding, no masked truncation, no output of tools."""
    return (batch["completion_mask"] * batch.get("tool_mask", 1)).bool()


def _bytes(gigabytes: float | None) -> int | None:
    return None if gigabytes is None else math.floor(gigabytes * 1e9)
