"""How much of a coefficient is chance, and how that falls with the size of the rollout batch.

    python evidence/analysis/reliability.py --model builtin --task late-error
    python evidence/analysis/reliability.py --model smollm2-135m --device cuda

Reliability is the rank correlation of the assignments that two random halves of a batch give to its tokens. Rollouts come from the
untrained model at T = 1, 8 per prompt, and are cut into batches of every size, with no response in two batches of a size.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
from collections.abc import Iterator
from typing import Any

import torch
from untrained import GROUP, TASK, untrained_rollouts

from delta_evidence.planted.updates import take_rows
from delta_evidence.rollouts import Rollouts
from delta_evidence.weighing import BatchWeigher, study_method

AT_ONCE = 64
"""Prompts that are sampled together."""


def parts(whole: Rollouts, prompts: int) -> Iterator[Rollouts]:
    """Batches of so many prompts, as many as there are."""
    for first in range(0, len(whole.rewards) // GROUP - prompts + 1, prompts):
        yield take_rows(whole, torch.arange(first * GROUP, (first + prompts) * GROUP))


def joined(made: list[Rollouts]) -> Rollouts:
    """One batch of several: responses are padded to the longest."""
    time = max(batch.mask.shape[1] for batch in made)
    prompt = max(batch.prompt_ids.shape[1] for batch in made)

    def whole(name: str) -> Any:
        values = [getattr(batch, name) for batch in made]
        if isinstance(values[0], list):
            return [one for value in values for one in value]
        if not isinstance(values[0], torch.Tensor):
            return values[0]
        if name == "groups":
            return torch.cat([value + number * AT_ONCE for number, value in enumerate(values)])
        if values[0].dim() == 1:
            return torch.cat(values)
        length = prompt if name.startswith("prompt") else time
        deep = (0, 0) * (values[0].dim() - 2)
        return torch.cat([torch.nn.functional.pad(value, (*deep, 0, length - value.shape[1])) for value in values])

    return Rollouts(**{field.name: whole(field.name) for field in dataclasses.fields(Rollouts)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--task", default=TASK)
    parser.add_argument("--methods", default="delta,delta-scalar,delta-centred,delta-no-refinement")
    parser.add_argument("--prompts", type=int, default=512, help="of all batches together")
    parser.add_argument("--max-tokens", type=int, help="longest response (default: the task's)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=12345)
    options = parser.parse_args()
    made, head = untrained_rollouts(
        options.model,
        options.task,
        seed=options.seed,
        prompts=options.prompts,
        max_tokens=options.max_tokens,
        at_once=AT_ONCE,
        device=options.device,
        pass_rows=AT_ONCE * GROUP,
    )
    whole = joined(made)
    print(
        f"{options.model} on {options.task}: {float(whole.correct.mean()):.1%} right, {int(whole.mask.sum()):,} tokens"
    )
    print(f"{'method':<22} {'responses':>9} {'tokens':>9} {'batches':>8}  reliability (standard error)")
    for name in options.methods.split(","):
        rule = study_method(name).rule
        prompts = 4
        while prompts <= options.prompts:
            known = [
                BatchWeigher(part, head, number=number).record(rule, diagnose=True).diagnostics.get("reliability")
                for number, part in enumerate(parts(whole, prompts))
                if (part.advantages > 0).any()
            ]
            values = [value for value in known if value is not None]
            if values:
                error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
                tokens = int(whole.mask.sum()) * prompts // options.prompts
                print(
                    f"{name:<22} {prompts * GROUP:>9} {tokens:>9,} {len(values):>8}  {statistics.fmean(values):+.2f} ({error:.2f})",
                    flush=True,
                )
            prompts *= 2


if __name__ == "__main__":
    main()
