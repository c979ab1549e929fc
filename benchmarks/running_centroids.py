"""How far the weights of running centroids (for a loss that sees one response at a time) are from those of the whole batch.

    delta-rlvr train --method delta-scalar --max_steps 12 --rollouts_every 1 --rollout_groups 0 --output runs/scalar
    python benchmarks/running_centroids.py runs/scalar

Reads the log-probs and advantages that a run wrote down. The responses of each step come in random order, over one rank or several,
each with centroids of its own and its share of the memory. Errors are over the tokens of all steps but the first.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import torch
from torch import Tensor

from delta_rlvr.adapters.any_trainer import token_weights
from delta_rlvr.adapters.running import RunningCentroids, running_weights
from delta_rlvr.runs import read_run

Step = list[tuple[Tensor, float]]
"""Log-probs and advantage of each response."""


def steps_of(folder: Path) -> list[Step]:
    run = read_run(folder)
    return [
        [(torch.tensor(one["logps"]), one["advantage"]) for one in run.rollouts(step)] for step in run.rollout_steps
    ]


def exact(step: Step) -> list[Tensor]:
    logps = [row for row, _ in step]
    masks = [torch.ones(len(row), dtype=torch.bool) for row in logps]
    return token_weights(logps, torch.tensor([advantage for _, advantage in step]), masks)


def errors(steps: list[Step], whole: list[list[Tensor]], memory: float, ranks: int) -> tuple[Tensor, Tensor]:
    """The exact weights of every token after the first step, and how far the running ones are from them."""
    draw = random.Random(0)
    states = [RunningCentroids(max(2.0, memory / ranks))] * ranks
    truth, apart = [], []
    for number, (step, weights) in enumerate(zip(steps, whole, strict=True)):
        for place, row in enumerate(draw.sample(range(len(step)), len(step))):
            rank = place % ranks
            running, states[rank] = running_weights(states[rank], *step[row])
            if number:
                truth.append(weights[row])
                apart.append(running - weights[row])
    return torch.cat(truth), torch.cat(apart)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run folder with rollouts of several steps")
    parser.add_argument("--memories", type=float, nargs="+", default=[0.25, 1, 4], help="in batches")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 8])
    options = parser.parse_args()
    steps = steps_of(options.run)
    whole = [exact(step) for step in steps]
    size = sum(map(len, steps)) / len(steps)
    print(f"{len(steps)} steps of {size:.0f} responses; spread of the exact weights", end=" ")
    print(f"{torch.cat([row for step in whole[1:] for row in step]).std():.3f}")
    print("memory (batches)  ranks  rms error  95 %  largest  correlation  mean")
    for memory in options.memories:
        for ranks in options.ranks:
            truth, apart = errors(steps, whole, memory * size, ranks)
            together = torch.corrcoef(torch.stack([truth, truth + apart]))[0, 1]
            print(
                f"{memory:16g}  {ranks:5d}  {apart.square().mean().sqrt():9.4f}  {apart.abs().quantile(0.95):.3f}"
                f"  {apart.abs().max():7.3f}  {together:11.4f}  {(truth + apart).mean():.4f}"
            )


if __name__ == "__main__":
    main()
