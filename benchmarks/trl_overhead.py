"""What DelTA adds to a training step on TRL: `DeltaTrainer` against TRL's own DAPO, on the same stored responses.

    python benchmarks/trl_overhead.py                                  the bundled policy on a CPU
    python benchmarks/trl_overhead.py --model smollm-shape --device cuda
    python benchmarks/trl_overhead.py --model 0.5b --device cuda --json overhead.json

Generation is replaced by stored responses in both, so that the ratio is of scoring and updating alone: with generation it is smaller.
Every way to come to a rule's weights is a case (`CASES`), each against stock TRL with the same batch. A round is one rollout batch with
all of its updates. Rounds of all trainers are interleaved, in an order that turns around, and ratios are taken within a round: whatever
else the machine does hits all of them. On a CPU that others use too, the ratio of the processor time that the process itself took says
more than that of the clock. Exit code 1: a case with a bar is above it.
"""

from __future__ import annotations

import math
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

from common import circumstances, keep, model_parser, parse, smollm_config, wait
from delta_rlvr.adapters.trl import DeltaTrainer, DeltaTrainerConfig
from delta_rlvr.models.load import resolve_model

GENERATIONS = 8
ONE_FORWARD, SEVERAL_UPDATES, ONE_UPDATE = ("one micro-batch", "several updates", "several micro-batches, one update")


@dataclass(frozen=True)
class Case:
    """A method, and how its weights come to what they need."""

    name: str
    shape: str
    """Of the rollout batch: which trainer of TRL's it is compared with."""
    method: str
    passes: int
    """Old-log-prob passes a rollout batch. TRL itself runs one where a batch is used for several updates, else none."""
    bar: float | None = None
    """The claim: the largest ratio to TRL's own step."""
    logps_from: str = "policy"


CASES = (
    Case("delta, solved in the training forward", ONE_FORWARD, "delta", 0, bar=1.05),
    Case("delta-scalar (log-probs alone), in the training forward", ONE_FORWARD, "delta-scalar", 0),
    Case("delta, from the pass that TRL runs too", SEVERAL_UPDATES, "delta", 1, bar=1.03),
    Case("delta, with a pass that TRL does not run", ONE_UPDATE, "delta", 1),
    Case("dapo: nothing is captured", ONE_UPDATE, "dapo", 0),
    Case("delta-scalar, from the sampler's log-probs", ONE_UPDATE, "delta-scalar", 0, logps_from="sampler"),
)


@dataclass(frozen=True)
class Size:
    """A model and a batch that suits it."""

    config: Callable[[], PretrainedConfig] | None
    """Random weights of this shape; None for the bundled policy."""
    rows: int
    """Responses of a rollout batch of several micro-batches."""
    micro_batch: int
    updates: int
    """Optimizer steps per rollout batch, where there are several."""
    prompt: int
    response: int
    """Longest, in tokens."""


SIZES = {
    "builtin": Size(None, rows=128, micro_batch=32, updates=2, prompt=16, response=48),
    "smollm-shape": Size(smollm_config, rows=128, micro_batch=16, updates=4, prompt=128, response=1024),
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
                    "score": [float(draw.random() < 0.4) for _ in range(size.rows)],
                }
            )
            self.rounds[-1]["logprobs"] = [
                [math.log(draw.uniform(0.01, 1)) for _ in tokens] for tokens in self.rounds[-1]["completion_ids"]
            ]

    def for_trainer(self) -> Callable[[list[Any], Any], dict[str, Any]]:
        number = -1

        def generate(prompts: list[Any], trainer: Any) -> dict[str, Any]:
            nonlocal number
            number += 1
            stored = self.rounds[number % len(self.rounds)]
            return {name: values[: len(prompts)] for name, values in stored.items()}

        return generate


def stored_score(score: list[float], **_: Any) -> list[float]:
    """The reward that was stored with a response."""
    return score


class Arm:
    """A trainer whose rounds can be run one at a time: the body of transformers' training loop, without the loop."""

    def __init__(self, shape: str, case: Case | None, size: Size, stored: StoredResponses, device: str):
        rows = size.micro_batch if shape == ONE_FORWARD else size.rows
        updates = size.updates if shape == SEVERAL_UPDATES else 1
        micro_batches = rows // size.micro_batch
        self.folder = tempfile.TemporaryDirectory(prefix="trl-overhead-")  # gone with the arm
        settings: dict[str, Any] = {
            "output_dir": self.folder.name,
            "per_device_train_batch_size": size.micro_batch,
            "gradient_accumulation_steps": micro_batches // updates,
            "steps_per_generation": micro_batches,
            "num_generations": GENERATIONS,
            "max_completion_length": size.response,
            "learning_rate": 1e-6,
            "max_steps": 1000,
            "epsilon": 0.2,
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
        self.name = f"TRL's dapo, {shape}" if case is None else case.name
        self.passes = int(shape == SEVERAL_UPDATES) if case is None else case.passes
        self.rows = [{"prompt": "stored"} for _ in range(rows)]
        kind: Any = GRPOTrainer if case is None else DeltaTrainer
        self.trainer: Any = kind(
            model=model,
            reward_funcs=stored_score,
            args=GRPOConfig(loss_type="dapo", **settings)
            if case is None
            else DeltaTrainerConfig(method=case.method, logps_from=case.logps_from, **settings),
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
        wait(self.device)
        start, processor_start = time.perf_counter(), time.process_time()
        self.model.train()
        for _ in range(self.updates):
            for _ in range(self.accumulation):
                self.trainer.training_step(self.model, self.rows, None)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.model.zero_grad()
            self.trainer.state.global_step += 1
        wait(self.device)
        return time.perf_counter() - start, time.process_time() - processor_start


def measure(size: Size, device: str, rounds: int, warm_up: int, only: str) -> dict[str, Any]:
    """The seconds of each trainer, and the ratio of each case with `only` in its name to stock TRL."""
    stored = StoredResponses(size)
    cases = [case for case in CASES if only in case.name]
    stock = {shape: Arm(shape, None, size, stored, device) for shape in dict.fromkeys(case.shape for case in cases)}
    ours = {case: Arm(case.shape, case, size, stored, device) for case in cases}
    arms = [*stock.values(), *ours.values()]
    times: dict[str, list[tuple[float, float]]] = {arm.name: [] for arm in arms}
    for number in range(warm_up + rounds):
        for arm in arms if number % 2 else reversed(arms):
            taken = arm.round()
            if number >= warm_up:
                times[arm.name].append(taken)
    for arm in arms:
        if arm.old_passes != arm.passes * (warm_up + rounds):
            raise RuntimeError(
                f"{arm.name}: {arm.old_passes} old-log-prob passes in {warm_up + rounds} rounds, not {arm.passes} each: "
                "the comparison is void"
            )
    return {
        "seconds": {name: statistics.median(clock for clock, _ in values) for name, values in times.items()},
        "cases": [
            {
                "name": case.name,
                "shape": case.shape,
                "bar": case.bar,
                **_ratio(times[arm.name], times[stock[case.shape].name]),
            }
            for case, arm in ours.items()
        ],
        "tokens_a_round": sum(len(ids) for ids in stored.rounds[0]["completion_ids"]),
        "rounds": rounds,
    }


def _ratio(ours: list[tuple[float, float]], theirs: list[tuple[float, float]]) -> dict[str, float]:
    """Of paired rounds: the median, and the quartiles as its spread."""
    pairs = list(zip(ours, theirs, strict=True))
    low, median, high = statistics.quantiles([mine / stock for (mine, _), (stock, _) in pairs], n=4)
    processor = statistics.median(mine / stock for (_, mine), (_, stock) in pairs)
    return {"median": median, "q25": low, "q75": high, "processor_time": processor}


def main() -> int:
    parser = model_parser(__doc__, SIZES)
    parser.add_argument("--rounds", type=int, default=30, help="measured rounds of each trainer")
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--only", default="", help="the cases that have this in their name")
    arguments = parse(parser)
    size = SIZES[arguments.model]
    result = {
        **circumstances(arguments, trl=trl.__version__),
        **measure(size, arguments.device, arguments.rounds, arguments.warm_up, arguments.only),
    }
    keep(result, arguments.json)
    _show(result, size)
    return int(any(case["bar"] is not None and case["median"] > case["bar"] for case in result["cases"]))


def _show(result: dict[str, Any], size: Size) -> None:
    print(
        f"{result['model']} on {result['device']}: {size.rows} responses, {result['tokens_a_round']:,} tokens a round "
        f"({size.micro_batch} responses where one forward covers the batch), {result['rounds']} rounds each, interleaved"
    )
    for name, seconds in result["seconds"].items():
        print(f"  {name:<56} {seconds:8.4f} s a round (median)")
    print("  ratio to TRL's own step (quartiles; of processor time)")
    for case in result["cases"]:
        bar = "" if case["bar"] is None else f", bar {case['bar']}"
        print(
            f"  {case['name']:<56} {case['median']:.3f}  ({case['q25']:.3f} to {case['q75']:.3f}; "
            f"{case['processor_time']:.3f}{bar})"
        )


if __name__ == "__main__":
    sys.exit(main())
