"""Whole training runs, generation included: what a step of DelTA takes beside DAPO's, by phase, and the memory it needs.

    python benchmarks/whole_runs.py --steps 2                              the bundled policy on a CPU: a try
    python benchmarks/whole_runs.py --model smollm2-135m --device cuda     SmolLM2, 20 steps of 64 x 8 responses, with and without LoRA
    python benchmarks/whole_runs.py --model qwen3-8b --device cuda --steps 3     Qwen3-8B's shape, random weights, LoRA, 8,192 tokens
    python benchmarks/whole_runs.py --model small --length 64 --steps 2          the same in small, on a CPU

The first two are `delta-rlvr train` as anyone runs it, one run after another; seconds are the medians of its own metrics over all steps
but the first two. The others give the trainer responses that are made up, because generating 8,192 tokens with random weights shows
nothing: they are there for the memory. On a GPU training is bf16 with gradient checkpointing.
"""

from __future__ import annotations

import gc
import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import trl

from coefficients import SHAPES
from common import circumstances, keep, model_parser, parse
from delta_rlvr.cli import main as delta_rlvr

PHASES = ("generate", "logps", "reward", "credit", "update", "step")
METHODS = ("dapo", "delta")
CHAIN_SUM = (
    "reasoning-gym:chain_sum?min_terms=3&max_terms=3&min_digits=1&max_digits=1&shots=4&working=true&max_tokens=64"
)
GENERATIONS = 8


def train(method: str, folder: Path, arguments: Any, lora: bool) -> dict[str, Any]:
    """One run through the command line."""
    cuda = arguments.device == "cuda"
    given: dict[str, Any] = {
        "method": method,
        "model": arguments.model,
        "output": folder,
        "steps": arguments.steps,
        "eval_problems": 0,
        "report": "false",
        "save_strategy": "no",
        "num_generations": GENERATIONS,
        "per_device_train_batch_size": arguments.rows // arguments.passes,
        "gradient_accumulation_steps": arguments.passes,
        "seed": 0,
    }
    if cuda:
        given |= {"bf16": "true", "gradient_checkpointing": "true", "learning_rate": 1e-5}
    if arguments.model != "builtin":
        given |= {"task": CHAIN_SUM, "max_completion_length": 48}
    if lora:
        given |= {"lora_rank": 16, "learning_rate": 1e-4}
    code = delta_rlvr(["train", *(str(word) for name, value in given.items() for word in (f"--{name}", value))])
    if code:
        raise SystemExit(code)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    counted = lines[2:] or lines
    return {f"seconds_{phase}": _median(counted, f"seconds_{phase}") for phase in PHASES} | {
        "reward_first": lines[0].get("reward"),
        "reward_last": lines[-1].get("reward"),
        "store_megabytes": (_median(counted, "store_bytes") or 0) / 1e6,
    }


def _median(lines: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [line[name] for line in lines if line.get(name) is not None]
    return statistics.median(values) if values else None


def long_responses(method: str, folder: Path, arguments: Any) -> dict[str, Any]:
    """A few steps of a large model under LoRA on responses of 8,192 made-up tokens."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    from delta_rlvr.adapters.trl import DeltaTrainer, DeltaTrainerConfig
    from delta_rlvr.models.load import resolve_model

    length, responses = arguments.length, 2 * GENERATIONS
    shape: dict[str, Any] = SHAPES[arguments.model]
    torch.manual_seed(0)
    with torch.device(arguments.device):
        torch.set_default_dtype(torch.bfloat16)
        model = Qwen3ForCausalLM(Qwen3Config(**shape, max_position_embeddings=2 * length))
        torch.set_default_dtype(torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(resolve_model("builtin"))

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        draw = torch.Generator().manual_seed(trainer.state.global_step)
        drawn = torch.randint(4, 500, (len(prompts), length), generator=draw).tolist()
        return {"prompt_ids": tokenizer(text=prompts)["input_ids"], "completion_ids": drawn, "logprobs": None}

    def reward(completions: list[Any], **_: Any) -> list[float]:
        return [float(number % 2) for number in range(len(completions))]

    trainer = DeltaTrainer(
        model=model,
        reward_funcs=reward,
        args=DeltaTrainerConfig(
            output_dir=str(folder),
            method=method,
            max_steps=arguments.steps,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=responses,
            num_generations=GENERATIONS,
            max_completion_length=length,
            bf16=arguments.device == "cuda",
            use_cpu=arguments.device == "cpu",
            gradient_checkpointing=True,
            logging_steps=1,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict({"prompt": [f"Add {number} and 1." for number in range(64)]}),
        processing_class=tokenizer,
        rollout_func=rollout,
        peft_config=LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    tokens = responses * length
    return {
        "responses": responses,
        "tokens": tokens,
        "store_megabytes_expected": tokens * shape["hidden_size"] * 2 / 1e6,
        "store_megabytes": max(line.get("credit/store_bytes", 0) for line in trainer.state.log_history) / 1e6,
        **{f"seconds_{phase}": seconds for phase, seconds in trainer.seconds.items()},
    }


def with_peak(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result, with the device's peak memory during the work."""
    if not torch.cuda.is_available():
        return work()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    result = work()
    return result | {"peak_gigabytes": torch.cuda.max_memory_allocated() / 1e9}


def main() -> None:
    parser = model_parser(__doc__, ["builtin", "smollm2-135m", *SHAPES])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rows", type=int, default=64 * GENERATIONS, help="responses per step")
    parser.add_argument("--passes", type=int, default=1, help="micro-batches that the responses are split into")
    parser.add_argument("--length", type=int, default=8192, help="tokens of a made-up response")
    parser.add_argument("--lora", choices=["both", "yes", "no"], default="both")
    arguments = parse(parser)
    if arguments.model == "builtin":
        arguments.rows = min(arguments.rows, 64)
    results: dict[str, Any] = {**circumstances(arguments, trl=trl.__version__), "runs": {}}
    with tempfile.TemporaryDirectory() as place:
        for lora in {"both": (False, True), "yes": (True,), "no": (False,)}[arguments.lora]:
            for method in METHODS:
                folder = Path(place) / f"{method}-{lora}"
                if arguments.model in SHAPES:
                    if not lora:
                        continue
                    result = with_peak(partial(long_responses, method, folder, arguments))
                else:
                    result = with_peak(partial(train, method, folder, arguments, lora))
                name = f"{method}{', LoRA' if lora else ''}"
                results["runs"][name] = result
                print(name, json.dumps({key: _short(value) for key, value in result.items()}), flush=True)
            steps = [results["runs"].get(f"{one}{', LoRA' if lora else ''}", {}).get("seconds_step") for one in METHODS]
            if all(steps):
                print(
                    f"a step of delta takes {steps[1] / steps[0]:.3f} of one of dapo{' (LoRA)' if lora else ''}",
                    flush=True,
                )
    keep(results, arguments.json)


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
