"""Where the time of a learning study goes: seconds by phase of a stack's rollout batches, its held-out score and its checkpoint.

    python benchmarks/study_step.py                                                     the bundled policy on a CPU
    python benchmarks/study_step.py --model smollm2-135m --device cuda --runs 15 --batches 5

The settings are those of evidence/protocols/smollm2-chain-sum.yaml (of cpu.yaml for the bundled policy); half of the runs are dapo,
half delta. The device is waited for at both ends of a phase, so that each has its own seconds; a study that is not timed judges
while the device makes the old log-probs. The first batch is not counted: graphs are captured and libraries set up in it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from common import circumstances, keep, model_parser, parse
from delta_evidence.judging import Judge
from delta_evidence.learning.checkpoint import path_of, write_state
from delta_evidence.learning.heldout import Decoding, heldout_scores
from delta_evidence.learning.protocol import Protocol, Run, read_protocols
from delta_evidence.learning.training import StackedTraining
from delta_evidence.phases import Phases
from delta_evidence.rollouts import make_collector
from delta_rlvr.models import load_policy
from delta_rlvr.tasks import get_task

FOLDER = Path(__file__).parents[1] / "evidence" / "protocols"
PROTOCOLS = {"builtin": "cpu.yaml", "smollm2-135m": "smollm2-chain-sum.yaml"}


def measure(protocol: Protocol, arguments: Any) -> dict[str, Any]:
    """Seconds by phase, of one batch of the whole stack where a phase comes in every batch."""
    device, task = torch.device(arguments.device), get_task(protocol.tasks[0])
    runs = [Run(protocol.tasks[0], ("dapo", "delta")[place % 2], place // 2) for place in range(arguments.runs)]
    phases = Phases(device=device, timed=True, tell=print)
    model, tokenizer = load_policy(protocol.model)
    with Judge(tokenizer, arguments.workers) as judge, tempfile.TemporaryDirectory() as folder:
        collector = make_collector(
            model,
            tokenizer,
            runs=len(runs),
            one_line=task.one_line,
            judge=judge,
            device=device,
            compute_dtype=torch.bfloat16 if device.type == "cuda" else torch.float32,
            rows_at_once=arguments.rows_at_once,
            phases=phases,
        )
        training = StackedTraining(collector, runs, protocol.training, rows_at_once=arguments.rows_at_once)
        training.batch(0)
        phases.seconds.clear()
        began = time.perf_counter()
        for number in range(1, 1 + arguments.batches):
            training.batch(number)
        whole = time.perf_counter() - began
        seconds = {name: spent / arguments.batches for name, spent in phases.seconds.items()}
        seconds["between phases"] = whole / arguments.batches - sum(seconds.values())
        with phases("held-out"):
            decoding = Decoding(1.0, protocol.heldout.samples)
            heldout_scores(collector, training.tasks, protocol.heldout, decoding, limits=training.limits)
        if arguments.checkpoint:
            with phases("checkpoint"):
                write_state(path_of(Path(folder), runs), runs, training.state())
    return {
        "runs": len(runs),
        "batches": arguments.batches,
        "seconds_of_a_batch": seconds,
        "seconds_once": {name: phases.seconds[name] for name in ("held-out", "checkpoint") if name in phases.seconds},
        "peak_gib": torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None,
    }


def main() -> None:
    parser = model_parser(__doc__, PROTOCOLS)
    parser.add_argument("--runs", type=int, default=4, help="policies side by side")
    parser.add_argument("--batches", type=int, default=2, help="measured rollout batches")
    parser.add_argument("--rows-at-once", type=int, default=1024, help="responses of one training pass")
    parser.add_argument("--workers", type=int, default=1, help="processes that judge responses")
    parser.add_argument("--checkpoint", action="store_true", help="write one checkpoint, too")
    arguments = parse(parser)
    (protocol,) = read_protocols(FOLDER / PROTOCOLS[arguments.model])
    result = {**circumstances(arguments), **measure(protocol, arguments)}
    keep(result, arguments.json)
    _show(result, protocol.training.batches)


def _show(result: dict[str, Any], batches: int) -> None:
    of_batch = result["seconds_of_a_batch"]
    total = sum(of_batch.values())
    print(f"{result['model']} on {result['device']}: {result['runs']} runs side by side, {result['batches']} batches")
    for name, seconds in sorted(of_batch.items(), key=lambda item: -item[1]):
        print(f"  {name:<22} {seconds:9.3f} s a batch {seconds / total:6.1%}")
    for name, seconds in result["seconds_once"].items():
        print(f"  {name:<22} {seconds:9.3f} s once")
    once = result["seconds_once"]["held-out"]
    print(f"  a run of {batches} batches and its held-out score: {(total * batches + once) / result['runs']:.2f} s")
    if result["peak_gib"] is not None:
        print(f"  at most {result['peak_gib']:.1f} GiB of the device's memory")


if __name__ == "__main__":
    main()
