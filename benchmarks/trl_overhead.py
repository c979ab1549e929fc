"""What DelTA adds to a training step on TRL: `DeltaTrainer(method="delta")` against TRL's own DAPO, on the same stored responses.

    python benchmarks/trl_overhead.py                                  the bundled policy on a CPU
    python benchmarks/trl_overhead.py --model smollm-shape --device cuda
    python benchmarks/trl_overhead.py --model 0.5b --device cuda --json overhead.json

Generation is replaced by stored responses in both, so that the ratio is of scoring and updating alone: with generation it is smaller.
Two comparisons: several updates a rollout batch, where TRL computes old log-probs too (the paper's setting; the claim is <= 1.03), and
one update, where TRL skips them and we do not. A round is one rollout batch with all of its updates. Rounds of the four trainers are
interleaved, in an order that turns around, and ratios are taken within a round: whatever else the machine does hits all of them. On a
CPU that others use too, the ratio of the processor time that the process itself took says more than that of the clock.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from transformers import AutoTokenizer, PretrainedConfig, Qwen2Config
from trl import GRPOConfig, GRPOTrainer

from common import circumstances, keep, model_parser, parse, smollm_config
from delta_rlvr.adapters.trl import DeltaTrainer, DeltaTrainerConfig
from delta_rlvr.tasks.models import resolve_model

BAR = 1.03
GENERATIONS = 8


@dataclass(frozen=True)
class Size:
    """A model and a batch that suits it."""

    config: Callable[[], PretrainedConfig] | None
    """Random weights of this shape; None for the bundled policy."""
    rows: int
    """Responses of a rollout batch."""
    micro_batch: int
    updates: int
    """Optimizer steps a rollout batch, in the comparison with old log-probs."""
    prompt: int
    response: int
    """Longest, in tokens."""


SIZES = {
    "builtin": Size(None, rows=128, micro_batch=32, updates=2, prompt=16, response=48),
    "smollm-shape": Size(
        smollm_config,
        rows=128,
        micro_batch=16,
        updates=4,
        prompt=128,
        response=1024,
    ),
    "0.5b": Size(
        lambda: Qwen2Config(
            vocab_size=151936,
            hidden_size=896,
            intermediate_size=4864,
            num_hidden_layers=24,
            num_attention_heads=14,
            num_key_value_heads=2,
            max_position_embeddings=8192,
            tie_word_embeddings=True,
        ),
        rows=128,
        micro_batch=16,
        updates=4,
        prompt=128,
        response=1024,
    ),
}


class StoredResponses:
    """A `rollout_func` that hands out the same responses to whoever asks for the same round."""

    def __init__(self, size: Size, rounds: int = 4):
        draw = random.Random(0)

        def ids(longest: int) -> list[int]:
            return [draw.randrange(4, 500) for _ in range(draw.randint(longest // 2, longest))]

        self.rounds: list[dict[str, Any]] = []
        for _ in range(rounds):
            prompts = [ids(size.prompt) for _ in range(size.rows // GENERATIONS)]
            self.rounds.append(
                {
                    "prompt_ids": [prompts[row // GENERATIONS] for row in range(size.rows)],
                    "completion_ids": [[*ids(size.response - 1), 1] for _ in range(size.rows)],
                    "logprobs": None,
                    "score": [float(draw.random() < 0.4) for _ in range(size.rows)],
                }
            )

    def for_trainer(self) -> Callable[[list[Any], Any], dict[str, Any]]:
        number = -1

        def generate(prompts: list[Any], trainer: Any) -> dict[str, Any]:
            nonlocal number
            number += 1
            return dict(self.rounds[number % len(self.rounds)])

        return generate


def stored_score(score: list[float], **_: Any) -> list[float]:
    """The reward that was stored with a response."""
    return score


class Arm:
    """A trainer whose rounds can be run one at a time: the body of transformers' training loop, without the loop."""

    def __init__(self, name: str, size: Size, stored: StoredResponses, device: str, *, updates: int):
        ours = name.startswith("delta")
        micro_batches = size.rows // size.micro_batch
        settings: dict[str, Any] = {
            "output_dir": tempfile.mkdtemp(prefix="trl-overhead-"),
            "per_device_train_batch_size": size.micro_batch,
            "gradient_accumulation_steps": micro_batches // updates,
            "steps_per_generation": micro_batches,
            "num_generations": GENERATIONS,
            "max_completion_length": size.response,
            "learning_rate": 1e-6,
            "max_steps": 1000,
            "epsilon_high": 0.28,
            "use_cpu": device == "cpu",
            "bf16": device != "cpu",
            "gradient_checkpointing": False,
            "report_to": "none",
            "save_strategy": "no",
            "disable_tqdm": True,
        }
        torch.manual_seed(0)
        place = resolve_model("builtin")
        if size.config is None:
            model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype="float32")
        else:
            model = transformers.AutoModelForCausalLM.from_config(size.config())
        self.name = name
        self.rows = [{"prompt": "stored"} for _ in range(size.rows)]
        kind: Any = DeltaTrainer if ours else GRPOTrainer
        self.trainer: Any = kind(
            model=model,
            reward_funcs=stored_score,
            args=DeltaTrainerConfig(method="delta", **settings)
            if ours
            else GRPOConfig(loss_type="dapo", **settings),
            train_dataset=Dataset.from_list(self.rows),
            processing_class=AutoTokenizer.from_pretrained(place),
            rollout_func=stored.for_trainer(),
        )
        self.updates, self.accumulation = updates, micro_batches // updates
        self.device = device
        trainer = self.trainer
        trainer.create_optimizer_and_scheduler(num_training_steps=1000)
        trainer.current_gradient_accumulation_steps = self.accumulation
        self.model, self.optimizer = trainer.accelerator.prepare(trainer.model, trainer.optimizer)
        trainer.model_wrapped = self.model
        self.old_passes = 0
        self._count_old_passes()

    def _count_old_passes(self) -> None:
        """The comparison would be void if TRL skipped its pass where it should not, or the other way round."""
        score = self.trainer._get_per_token_logps_and_entropies

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.old_passes += not torch.is_grad_enabled()
            return score(*args, **kwargs)

        self.trainer._get_per_token_logps_and_entropies = counted

    def round(self) -> tuple[float, float]:
        """Seconds, and seconds of processor time, of one rollout batch with all of its updates."""
        self._wait()
        start, processor_start = time.perf_counter(), time.process_time()
        self.model.train()
        for _ in range(self.updates):
            for _ in range(self.accumulation):
                self.trainer.training_step(self.model, self.rows, None)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.model.zero_grad()
            self.trainer.state.global_step += 1
        self._wait()
        return time.perf_counter() - start, time.process_time() - processor_start

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def measure(size: Size, device: str, rounds: int, warm_up: int) -> dict[str, Any]:
    """Times by arm, and the two ratios."""
    stored = StoredResponses(size)
    arms = [
        Arm("delta, several updates", size, stored, device, updates=size.updates),
        Arm("TRL dapo, several updates", size, stored, device, updates=size.updates),
        Arm("delta, one update", size, stored, device, updates=1),
        Arm("TRL dapo, one update", size, stored, device, updates=1),
    ]
    times: dict[str, list[tuple[float, float]]] = {arm.name: [] for arm in arms}
    for number in range(warm_up + rounds):
        for arm in arms if number % 2 else reversed(arms):
            taken = arm.round()
            if number >= warm_up:
                times[arm.name].append(taken)
        if number == warm_up - 1:
            for arm in arms[::2]:
                arm.trainer.seconds.clear()
    passes = {arm.name: arm.old_passes / (warm_up + rounds) for arm in arms}
    if list(passes.values()) != [1, 1, 1, 0]:
        raise RuntimeError(f"old-log-prob passes a round: {passes}; the comparison assumes 1, 1, 1, 0")
    phases = {name: value / rounds for name, value in arms[0].trainer.seconds.items()}
    tokens = sum(len(ids) for ids in stored.rounds[0]["completion_ids"])
    return {
        "seconds": {name: statistics.median(clock for clock, _ in values) for name, values in times.items()},
        "ratio": _ratio(times, "several updates"),
        "ratio_against_skipping": _ratio(times, "one update"),
        "phases": phases,
        "tokens_a_round": tokens,
        "rounds": rounds,
    }


def _ratio(times: dict[str, list[tuple[float, float]]], what: str) -> dict[str, float]:
    """Of paired rounds: the median, and the quartiles as its spread."""
    pairs = list(zip(times[f"delta, {what}"], times[f"TRL dapo, {what}"], strict=True))
    low, median, high = statistics.quantiles([ours / theirs for (ours, _), (theirs, _) in pairs], n=4)
    processor = statistics.median(ours / theirs for (_, ours), (_, theirs) in pairs)
    return {"median": median, "q25": low, "q75": high, "processor_time": processor}


def main() -> int:
    parser = model_parser(__doc__, SIZES)
    parser.add_argument("--rounds", type=int, default=30, help="measured rounds of each trainer")
    parser.add_argument("--warm-up", type=int, default=3)
    arguments = parse(parser)
    size = SIZES[arguments.model]
    result = {
        **circumstances(arguments, trl=trl.__version__),
        **measure(size, arguments.device, arguments.rounds, arguments.warm_up),
    }
    keep(result, arguments.json)
    _show(result, size)
    return int(result["ratio"]["median"] > BAR)


def _show(result: dict[str, Any], size: Size) -> None:
    print(
        f"{result['model']} on {result['device']}: {size.rows} responses, {result['tokens_a_round']:,} tokens a round, "
        f"{result['rounds']} rounds each, interleaved"
    )
    for name, seconds in result["seconds"].items():
        print(f"  {name:<28} {seconds:8.4f} s a round (median)")
    told = {
        "ratio": f"old log-probs in both ({size.updates} updates; bar {BAR})",
        "ratio_against_skipping": "TRL skips old log-probs (1 update)",
    }
    for key, words in told.items():
        ratio = result[key]
        print(
            f"  ratio, {words:<44} {ratio['median']:.3f}  (quartiles {ratio['q25']:.3f} to {ratio['q75']:.3f}; "
            f"processor time {ratio['processor_time']:.3f})"
        )
    phases = ", ".join(f"{name} {1e3 * value:.1f}" for name, value in sorted(result["phases"].items()))
    print(f"  ms a round by phase, delta with several updates: {phases}")


if __name__ == "__main__":
    sys.exit(main())
