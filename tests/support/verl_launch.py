"""Runs verl's own `main_ppo` on CPU, with the built-in task and the bundled policy."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from delta_rlvr.adapters.verl.data import write_parquet
from delta_rlvr.models import resolve_model
from delta_rlvr.tasks import get_task
from verl_environment import CPU

LAUNCH = [
    "actor_rollout_ref.rollout.tensor_model_parallel_size=2",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "reward.num_workers=1",
    "data.dataloader_num_workers=0",
    "trainer.n_gpus_per_node=2",
    "trainer.logger=[file]",
    "trainer.val_before_train=False",
    "trainer.resume_mode=disable",
    "+ray_kwargs.ray_init.num_gpus=2",
    "ray_kwargs.ray_init.num_cpus=24",
    "+ray_kwargs.ray_init.include_dashboard=False",
    "+ray_kwargs.ray_init.object_store_memory=300000000",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
]


@dataclass(frozen=True)
class Run:
    """A finished run."""

    status: int
    output: str
    """What it wrote on the terminal."""
    metrics: list[dict[str, float]]
    """verl's metrics of each step."""


def prepare(folder: Path, problems: int) -> Path:
    """What a launch reads: the policy and its problems."""
    task = get_task("phrased-sums")
    write_parquet(folder / "train.parquet", task.problems("train", problems), task.name, "train")
    policy_for_verl(folder / "policy")
    return folder


def launch(
    folder: Path,
    inputs: Path,
    environment: dict[str, str],
    *overrides: str,
    steps: int,
    timeout: int = 900,
    strategy: tuple[str, ...] = CPU,
) -> Run:
    """Run it to its end."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "metrics.jsonl"
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "verl.trainer.main_ppo",
        *strategy,
        *LAUNCH,
        f"actor_rollout_ref.model.path={inputs / 'policy'}",
        f"data.train_files={inputs / 'train.parquet'}",
        f"data.val_files={inputs / 'train.parquet'}",
        "data.max_prompt_length=32",
        "data.max_response_length=64",
        "data.seed=0",
        f"trainer.total_training_steps={steps}",
        "trainer.total_epochs=1000",
        f"trainer.default_local_dir={folder / 'checkpoints'}",
        f"hydra.run.dir={folder / 'hydra'}",
        "trainer.v1.trainer_mode=delta_sync",
        "reward.custom_reward_function.path=pkg://delta_rlvr.adapters.verl.reward",
        *overrides,
    ]
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(
            command,
            env={**environment, "VERL_FILE_LOGGER_PATH": str(log)},
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(timeout)
        finally:
            # Ray's own processes share the session of the driver; none of them may outlive the test.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = [json.loads(line)["data"] for line in log.read_text().splitlines()] if log.exists() else []
    return Run(process.returncode, (folder / "output.txt").read_text(), lines)


def policy_for_verl(folder: Path) -> str:
    """The bundled policy with the end-of-turn token that verl expects of every Qwen3; nothing ever samples it."""
    from transformers import AutoTokenizer

    shutil.copytree(resolve_model("builtin"), folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>"]})
    tokenizer.save_pretrained(folder)
    return str(folder)
