"""trl_case.py SETTINGS.json: one training with TRL, as `prove.py` starts it; what was measured goes into `result` of the settings.

Stock `GRPOTrainer` or ours, with the same data, reward, seed and options, in a process of its own: vLLM keeps its own to the end.
"""

import functools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

import torch
from transformers import AutoTokenizer, TrainerCallback


class Clock(TrainerCallback):
    """Seconds of each step, without what is saved between them."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.perf_counter() - self._began)


def main(given: dict[str, Any]) -> None:
    from trl import GRPOConfig, GRPOTrainer

    from delta_rlvr.adapters.trl import DeltaTrainer, DeltaTrainerConfig
    from delta_rlvr.runs import read_run
    from delta_rlvr.tasks import get_task
    from delta_rlvr.training.problems import TaskReward, data_set

    if given["options"].get("vllm_mode") == "colocate":
        import trl.generation.vllm_generation as generation

        # No minutes of compilation, and no look at the memory that other cases take meanwhile.
        given_here = {"enforce_eager": True, "kv_cache_memory_bytes": given["kv_cache"]}
        generation.LLM = functools.partial(generation.LLM, **given_here)
    task = get_task(given["task"])
    problems = task.problems("train", given["problems"])
    config: Any
    reward: Any = TaskReward(task, {problem.id: problem for problem in problems})
    stock, options = given["method"] is None, dict(given["options"])
    if stock:  # DAPO, in TRL's own words
        config = GRPOConfig(loss_type="dapo", epsilon=0.2, epsilon_high=0.28, **options)
    else:
        config = DeltaTrainerConfig(method=given["method"], run_folder=True, **given["own"], **options)
    trainer = (GRPOTrainer if stock else DeltaTrainer)(
        model=given["model"],
        reward_funcs=reward,
        args=config,
        train_dataset=data_set(problems),
        processing_class=AutoTokenizer.from_pretrained(given["model"]),
    )
    clock = Clock()
    trainer.add_callback(clock)
    trainer.train(resume_from_checkpoint=given.get("resume"))
    lines = [line for line in trainer.state.log_history if "loss" in line]
    folder = {} if stock else {line["step"]: line for line in read_run(config.output_dir).metrics}
    timed = clock.seconds[-len(lines) :] if given.get("resume") is None else [None] * len(lines)
    steps = [
        {
            "step": line["step"],
            "loss": line["loss"],
            "grad_norm": line["grad_norm"],
            "reward": line["reward"],
            "seconds": seconds,
            "weight_mean": folder.get(line["step"], {}).get("weight_mean"),
            "solve_seconds": folder.get(line["step"], {}).get("seconds_credit"),
        }
        for line, seconds in zip(lines, timed, strict=True)
    ]
    memory = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else None
    Path(given["result"]).write_text(json.dumps({"steps": steps, "memory_gib": memory}))
    sys.stdout.flush()
    os._exit(0)  # vLLM's threads need no farewell


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
