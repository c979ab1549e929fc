"""What each token rule costs on top of the old-log-prob pass: capture and solve, as a share of the pass.

    python benchmarks/rules.py                          random weights of SmolLM2-135M's shape on a CPU
    python benchmarks/rules.py --model builtin          the bundled policy, whose pass is so short that fixed costs show
    python benchmarks/rules.py --json costs.json

A round is one old-log-prob pass (hidden states and log-probs of every micro-batch, as an engine computes them) and then, for every
rule, its capture (what the store keeps of each micro-batch) and its solve; shares are of the medians over the rounds. Every token of
the pass is a response token: with prompts, shares are smaller. On a CPU the processor time of one thread is compared, which other
programs disturb less than the clock. Entropies are no part of the pass here, and what they add to it is said apart: engines that log
them have them anyway.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from common import circumstances, keep, model_parser, parse, smollm_shape, wait
from delta_rlvr import CreditStream, TokenRule
from delta_rlvr.credit.rule import REGISTERED
from delta_rlvr.models import load_policy
from delta_rlvr.objectives import get_method

BAR = 0.05
"""No rule but those that need the LM head may cost more than this share of the pass."""
GENERATIONS = 8
MICRO_BATCH = 16

# The entropy of random weights is far above the one below which this rule begins to work.
SPELLED = {"stare": "stare?target_entropy=inf"}

MicroBatch = dict[str, Tensor]
"""What is known of some responses [batch, time], by name."""


MODELS: dict[str, Callable[[], Any]] = {"smollm-shape": smollm_shape, "builtin": lambda: load_policy("builtin")[0]}


class Bench:
    """A model and a batch of random responses: some shorter than others, one group without a signal."""

    def __init__(self, model: Any, device: str, rows: int, length: int):
        self.device, self.model = torch.device(device), model.to(device).eval()
        self.head = model.get_output_embeddings()
        draw = random.Random(0)
        ids = [[draw.randrange(4, 500) for _ in range(length + 1)] for _ in range(rows)]
        self.ids = torch.tensor(ids, device=device)
        lengths = torch.tensor([draw.randint(length // 2, length) for _ in range(rows)], device=device)
        self.mask = torch.arange(length, device=device)[None] < lengths[:, None]
        right = torch.tensor([float(draw.random() < 0.4) for _ in range(rows)], device=device)
        right[:GENERATIONS] = 0
        grouped = right.view(-1, GENERATIONS)
        spread = grouped.std(1, keepdim=True) + 1e-4
        self.advantages = ((grouped - grouped.mean(1, keepdim=True)) / spread).flatten()
        self.groups = torch.arange(rows, device=device) // GENERATIONS
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def timed(self, name: str, work: Callable[..., Any], *arguments: Any) -> Any:
        """Note the processor time of the work (on an accelerator: its time)."""
        clock = time.perf_counter if self.device.type == "cuda" else time.process_time
        wait(self.device)
        start = clock()
        result = work(*arguments)
        wait(self.device)
        self.seconds[name].append(clock() - start)
        return result

    @torch.no_grad()
    def old_logps(self) -> list[MicroBatch]:
        """The old-log-prob pass."""
        batches = []
        for ids, mask in zip(self.ids.split(MICRO_BATCH), self.mask.split(MICRO_BATCH), strict=True):
            hidden = self.model.base_model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
            logits = self.head(hidden).float()
            logps = logits.gather(-1, ids[:, 1:, None])[..., 0] - logits.logsumexp(-1)
            batches.append({"hidden": hidden, "logps": logps, "mask": mask, "tokens": ids[:, 1:]})
        return batches

    @torch.no_grad()
    def add_what_else_is_needed(self, batches: list[MicroBatch]) -> None:
        """Entropies, whose cost is noted without that of the logits; labels and measured credit, which are made up."""
        logits = [self.head(batch["hidden"]).float() for batch in batches]
        for batch, entropy in zip(batches, self.timed("entropies", map_entropy, logits), strict=True):
            batch |= {"entropy": entropy, "decisive": batch["tokens"] % 5 == 0, "measured": batch["logps"]}

    def weigh(self, rule: TokenRule, batches: list[MicroBatch]) -> None:
        """Capture and solve."""
        stream = CreditStream(rule, head=self.head.weight)
        for batch in batches:
            known: dict[str, Any] = {name: batch[name] for name in batch if name in ("hidden", "mask", *rule.needs)}
            stream.add(**known)
        stream.solve(self.advantages, groups=self.groups)


def map_entropy(logits: list[Tensor]) -> list[Tensor]:
    return [one.logsumexp(-1) - (one.softmax(-1) * one).sum(-1) for one in logits]


def run(bench: Bench, rounds: int, methods: list[str]) -> dict[str, Any]:
    rules = {name: get_method(SPELLED.get(name, name)).rule for name in methods}
    rules = {name: rule for name, rule in rules.items() if "gradients" not in rule.needs}
    bench.weigh(get_method("delta").rule, bench.old_logps())  # warm-up
    for number in range(rounds):
        batches = bench.timed("pass", bench.old_logps)
        bench.add_what_else_is_needed(batches)
        for name, rule in rules.items():
            bench.timed(name, bench.weigh, rule, batches)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    medians = {name: statistics.median(values) for name, values in bench.seconds.items()}
    return {
        "valid_tokens": int(bench.mask.sum()),
        "rounds": rounds,
        "pass_seconds": medians["pass"],
        "entropies_share": medians["entropies"] / medians["pass"],
        "rules": {
            name: {
                "method": SPELLED.get(name, name),
                "needs": list(rule.needs),
                "milliseconds": medians[name] * 1e3,
                "share": medians[name] / medians["pass"],
            }
            for name, rule in rules.items()
        },
    }


def show(result: dict[str, Any]) -> None:
    print(f"{result['model']} on {result['device']}, {result['cores']} cores, {result['threads']} threads")
    print(f"old-log-prob pass of {result['valid_tokens']:,} valid tokens: {result['pass_seconds']:.2f} s; ", end="")
    print(f"entropies add {result['entropies_share']:.1%}; medians of {result['rounds']} rounds\n")
    for name, cost in sorted(result["rules"].items(), key=lambda item: -item[1]["share"]):
        needs = ", ".join(cost["needs"]) or "nothing"
        above = "  above the bar" if cost["share"] > BAR and "head" not in cost["needs"] else ""
        print(f"  {name:20} {cost['share']:8.2%}  {cost['milliseconds']:10.1f} ms  {needs}{above}")


def main() -> None:
    parser = model_parser(__doc__, MODELS)
    parser.set_defaults(model="smollm-shape")
    parser.add_argument("--methods", nargs="+", default=list(REGISTERED), help="(default: all of them)")
    parser.add_argument("--rows", type=int, default=64, help=f"responses, {GENERATIONS} per prompt")
    parser.add_argument("--length", type=int, default=32, help="longest response, in tokens")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parse(parser)
    if arguments.rows < 2 * GENERATIONS or arguments.rows % GENERATIONS:
        parser.error(f"--rows: give a multiple of {GENERATIONS}, at least {2 * GENERATIONS}")
    if arguments.length < 2 or arguments.rounds < 1:
        parser.error("--length: give at least 2; --rounds: at least 1")
    if arguments.device == "cpu":
        torch.set_num_threads(1)  # threads that wait for each other take processor time too
    bench = Bench(MODELS[arguments.model](), arguments.device, arguments.rows, arguments.length)
    about = {"command": " ".join(["python", *sys.argv]), **circumstances(arguments), "cores": os.cpu_count()}
    result = about | run(bench, arguments.rounds, arguments.methods)
    show(result)
    keep(result, arguments.json)


if __name__ == "__main__":
    main()
