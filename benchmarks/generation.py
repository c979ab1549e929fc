"""Tokens a second of `StackedSampler` against transformers' `generate`, on the same prompts and to the same lengths.

    python benchmarks/generation.py                                        the bundled policy on a CPU
    python benchmarks/generation.py --device cuda --runs 100
    python benchmarks/generation.py --model smollm-shape --device cuda --runs 6 --json generation.json

Arms: one run, `--runs` runs side by side, and `generate` for one model with its growing cache and with its static one. End tokens
are disabled, so that every arm makes the same number of tokens for each of its models; all sample from the whole vocabulary at
temperature 1. There are several responses to each prompt: we read a prompt once for all of them, `generate` once for each. Rounds are
interleaved, in an order that turns around, and ratios are taken within a round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

from common import circumstances, keep, model_parser, parse, smollm_shape, wait
from delta_evidence.stack.policy import StackedPolicy
from delta_evidence.stack.sampling import StackedSampler
from delta_rlvr.models import load_policy

COPIES = 8
PAD = 0


@dataclass(frozen=True)
class Size:
    """A model and a batch that suits it."""

    load: Callable[[], PreTrainedModel]
    rows: int
    """Responses of a run."""
    prompt: int
    """The longest prompt, in tokens; the shortest has half as many."""
    response: int
    """New tokens of every response."""
    cuda_dtype: torch.dtype
    """Of the products, on a GPU; float32 on a CPU."""


SIZES = {
    "builtin": Size(lambda: load_policy("builtin")[0], rows=256, prompt=32, response=96, cuda_dtype=torch.float32),
    "smollm2-135m": Size(
        lambda: load_policy("smollm2-135m")[0], rows=256, prompt=250, response=96, cuda_dtype=torch.bfloat16
    ),
    "smollm-shape": Size(smollm_shape, rows=256, prompt=250, response=96, cuda_dtype=torch.bfloat16),
}


def left_padded_prompts(size: Size, runs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random tokens, the same prompts in every run."""
    generator = torch.Generator().manual_seed(0)
    count = size.rows // COPIES
    prompts = torch.randint(4, 500, (count, size.prompt), generator=generator)
    lengths = torch.randint(size.prompt // 2, size.prompt + 1, (count, 1), generator=generator)
    lengths[0] = size.prompt
    mask = torch.arange(size.prompt) >= size.prompt - lengths
    return prompts.where(mask, PAD).expand(runs, -1, -1), mask.expand(runs, -1, -1)


def stacked_arm(model: PreTrainedModel, size: Size, runs: int, device: str) -> Callable[[], int]:
    """A function that samples once and says how many tokens it made."""
    dtype = size.cuda_dtype if device == "cuda" else torch.float32
    policy = StackedPolicy.from_model(model, runs, compute_dtype=dtype, device=device)
    sampler = StackedSampler(policy, ends=(), pad=PAD)
    prompts, mask = (part.to(device) for part in left_padded_prompts(size, runs))

    def sample() -> int:
        uniforms = torch.rand(runs, size.rows, size.response, dtype=torch.float64, device=device)
        _, valid = sampler.sample(prompts, mask, uniforms, copies=COPIES)
        return int(valid.sum())

    return sample


def transformers_arm(model: Any, size: Size, device: str, cache: str | None) -> Callable[[], int]:
    """The same of `generate`."""
    model = model.to(device, size.cuda_dtype if device == "cuda" else torch.float32).eval()
    model.generation_config = transformers.GenerationConfig(
        do_sample=True,
        top_k=0,
        max_new_tokens=size.response,
        num_return_sequences=COPIES,
        pad_token_id=PAD,
        eos_token_id=None,
        cache_implementation=cache,
    )
    prompts, mask = (part[0].to(device) for part in left_padded_prompts(size, 1))

    def sample() -> int:
        ids = model.generate(input_ids=prompts, attention_mask=mask.long())
        return ids[:, prompts.shape[1] :].numel()

    return sample


def measure(size: Size, device: str, runs: int, rounds: int, warm_up: int) -> dict[str, Any]:
    """Tokens a second by arm, and how many times those of the faster `generate`."""
    ours = {"stacked, one run": 1, f"stacked, {runs} runs": runs}
    theirs = {"transformers, growing cache": None, "transformers, static cache": "static"}
    arms = {name: stacked_arm(size.load(), size, count, device) for name, count in ours.items()}
    arms |= {name: transformers_arm(size.load(), size, device, cache) for name, cache in theirs.items()}
    speeds: dict[str, list[float]] = {name: [] for name in arms}
    tokens: dict[str, int] = {}
    for number in range(warm_up + rounds):
        for name in arms if number % 2 else reversed(arms):
            wait(device)
            start = time.perf_counter()
            tokens[name] = arms[name]()
            wait(device)
            if number >= warm_up:
                speeds[name].append(tokens[name] / (time.perf_counter() - start))
    for name, count in tokens.items():
        expected = ours.get(name, 1) * size.rows * size.response
        if count != expected:
            raise RuntimeError(f"{name}: {count} tokens, not {expected}; the comparison would be void")
    best = [max(pair) for pair in zip(*(speeds[name] for name in theirs), strict=True)]
    return {
        "tokens_a_second": {name: statistics.median(values) for name, values in speeds.items()},
        "times_the_faster_generate": {
            name: statistics.median(speed / other for speed, other in zip(speeds[name], best, strict=True))
            for name in ours
        },
        "runs": runs,
        "rounds": rounds,
    }


def main() -> None:
    parser = model_parser(__doc__, SIZES)
    parser.add_argument("--runs", type=int, default=4, help="policies side by side")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of each arm")
    parser.add_argument("--warm-up", type=int, default=2)
    arguments = parse(parser)
    size = SIZES[arguments.model]
    result = {
        **circumstances(arguments),
        **measure(size, arguments.device, arguments.runs, arguments.rounds, arguments.warm_up),
    }
    keep(result, arguments.json)
    _show(result, size)


def _show(result: dict[str, Any], size: Size) -> None:
    print(
        f"{result['model']} on {result['device']}: {size.rows} responses of {size.response} tokens a model, "
        f"{result['rounds']} rounds each, interleaved"
    )
    for name, speed in result["tokens_a_second"].items():
        print(f"  {name:<28} {speed:12,.0f} tokens a second (median)")
    for name, ratio in result["times_the_faster_generate"].items():
        print(f"  {name:<28} {ratio:12.2f} times the faster generate")


if __name__ == "__main__":
    main()
