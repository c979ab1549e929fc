"""Write the settings of every row of the paper, one file per row: `python recipes/paper/make.py`.

The files are complete, so that each can be read and run alone; this script is where they are changed. `--check` only compares.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

HERE = Path(__file__).parent

Settings = dict[str, Any]

# Every value is for 8 training processes: batch sizes are a device's.
PROCESSES = 8
PROMPTS, RESPONSES_EACH, PROMPTS_AN_UPDATE = 128, 16, 32
UPDATES = PROMPTS // PROMPTS_AN_UPDATE
PER_DEVICE = 2
LONGEST_PROMPT, LONGEST_RESPONSE = 2048, 20480


@dataclass(frozen=True)
class Policy:
    """One of the paper's base models."""

    name: str
    hub: str
    rollout_batches: int
    """The paper's steps: rollout batches, each of which is four optimizer steps."""
    tensor_parallel: int = 1


@dataclass(frozen=True)
class Row:
    """One run of the paper."""

    policy: Policy
    data: str
    name: str
    method: str
    where: str
    """The tables or figures that have it."""
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def path(self) -> Path:
        return HERE / f"{self.policy.name}-{self.data}" / f"{self.name}.yaml"


QWEN_8B = Policy("qwen3-8b", "Qwen/Qwen3-8B-Base", 220)
QWEN_14B = Policy("qwen3-14b", "Qwen/Qwen3-14B-Base", 300, tensor_parallel=2)
# The paper does not give Olmo's steps: those of the other model of its size.
OLMO_7B = Policy("olmo3-7b", "allenai/Olmo-3-1025-7B", 220)

METHODS = ("dapo", "dapo-ft", "sapo", "fipo", "delta")
ABLATIONS = {
    "delta-topk": "Table 4",
    "delta-random": "Table 4",
    "delta-within-side": "Table 2",
    "delta-fixed-gamma": "Table 3",
    "delta-hard": "Table 3",
    "delta-no-norm": "Table 3",
    "delta-no-range": "Table 3",
    "delta-no-refinement": "Table 3",
    "delta-top50": "Figures 3-4",
    "delta-random50": "Figures 3-4",
    "delta-bottom50": "Figures 3-4",
}
SENSITIVITY: dict[str, Settings] = {
    "delta-min0.5": {"lambda_min": 0.5},
    "delta-max1.5": {"lambda_max": 1.5},
    "delta-min0.5-max1.5": {"lambda_min": 0.5, "lambda_max": 1.5},
    "delta-k2": {"refinements": 2},
    "delta-k3": {"refinements": 3},
}


def rows() -> Iterator[Row]:
    """Every row, published ones and those that complete the grid."""
    for policy, table in ((QWEN_8B, "Table 1"), (QWEN_14B, "Table 1"), (OLMO_7B, "Table 9")):
        for method in METHODS:
            published = policy is not OLMO_7B or method in ("dapo", "delta")
            yield Row(policy, "deepmath", method, method, table if published else "not in the paper")
    for method in METHODS:
        where = "Table 10" if method in ("dapo", "delta") else "not in the paper"
        yield Row(QWEN_8B, "eurus2-code", method, method, where)
    for method, where in ABLATIONS.items():
        yield Row(QWEN_8B, "deepmath", method, method, where)
    for name, settings in SENSITIVITY.items():
        yield Row(QWEN_8B, "deepmath", name, "delta", "Table 11", tuple(settings.items()))


def sections(row: Row) -> list[tuple[str, Settings]]:
    """(comment, settings) of each part of a file."""
    return [
        ("what is trained on what", _what(row)),
        ("the method", _method(row)),
        (f"{PROMPTS} prompts x {RESPONSES_EACH} responses, updates of {PROMPTS_AN_UPDATE} prompts (Table 5)", _batch()),
        ("sampling: T = 1.0, top-p 1.0, responses up to 20480 tokens (Table 5)", _sampling(row)),
        (
            "optimizer: learning rate 1e-6, no KL term (Table 5); weight decay and gradient clip of the authors' script",
            _optimizer(row),
        ),
        ("the engine", _engine(row)),
    ]


def _what(row: Row) -> Settings:
    tasks = {
        "deepmath": "zwhe99/DeepMath-103K?schema=deepmath",
        # The code rows of PRIME-RL/Eurus-2-RL-Data; README.md says how the file is made.
        "eurus2-code": "data/eurus2_code.jsonl?schema=eurus2",
    }
    settings: Settings = {"model": row.policy.hub, "task": tasks[row.data]}
    if row.data == "deepmath":
        settings["template"] = "paper_math"
    return {**settings, "output": f"runs/paper/{row.policy.name}-{row.data}-{row.name}", "seed": 0, "eval_problems": 0}


def _method(row: Row) -> Settings:
    changes = urlencode(row.settings)
    settings: Settings = {"method": f"{row.method}?{changes}" if changes else row.method}
    if row.method == "sapo":
        return settings | {"sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05}
    settings |= {"epsilon": 0.2, "epsilon_high": 0.28}
    return settings | ({"delta": 10.0} if row.method == "fipo" else {})


def _batch() -> Settings:
    return {
        "num_generations": RESPONSES_EACH,
        "per_device_train_batch_size": PER_DEVICE,
        "gradient_accumulation_steps": PROMPTS_AN_UPDATE * RESPONSES_EACH // (PER_DEVICE * PROCESSES),
        "steps_per_generation": PROMPTS * RESPONSES_EACH // (PER_DEVICE * PROCESSES),
        "num_iterations": 1,
    }


def _sampling(row: Row) -> Settings:
    return {
        "max_completion_length": LONGEST_RESPONSE,
        "temperature": 1.0,
        "top_p": 1.0,
        "mask_truncated_completions": False,
        "scale_rewards": "group",
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_tensor_parallel_size": row.policy.tensor_parallel,
        "vllm_max_model_length": LONGEST_PROMPT + LONGEST_RESPONSE,
        "vllm_gpu_memory_utilization": 0.4,
        "vllm_enable_sleep_mode": True,
        "vllm_importance_sampling_correction": False,
    }


def _optimizer(row: Row) -> Settings:
    length: Settings = {"max_steps": row.policy.rollout_batches * UPDATES}
    if row.data == "eurus2-code":
        # Two epochs over the training rows (one row in eight is held out), a whole number of rollout batches each.
        length = {"train_problems": 171 * PROMPTS, "num_train_epochs": 2}
    return {
        "learning_rate": 1e-6,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "weight_decay": 0.1,
        "max_grad_norm": 1.0,
        "beta": 0.0,
        **length,
    }


def _engine(row: Row) -> Settings:
    return {
        "bf16": True,
        "gradient_checkpointing": True,
        "save_strategy": "steps",
        "save_steps": 20 * UPDATES,
        "logging_steps": 1,
        "rollouts_every": 20 * UPDATES,
    }


def text(row: Row) -> str:
    """A row as YAML, with a comment over each part."""
    lines = [
        f"# {row.policy.hub}, {row.data}, {row.name}: {row.where}. Written by make.py; see README.md for how to launch it."
    ]
    for comment, settings in sections(row):
        lines += ["", f"# {comment}", yaml.safe_dump(settings, sort_keys=False).rstrip()]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say which files are out of date")
    check = parser.parse_args().check
    wanted = {row.path: text(row) for row in rows()}
    present = set(HERE.glob("*-*/*.yaml"))
    stale = [path for path, words in wanted.items() if not path.is_file() or path.read_text() != words]
    left = sorted(present - wanted.keys())
    if not check:
        for path in stale:
            path.parent.mkdir(exist_ok=True)
            path.write_text(wanted[path])
        for path in left:
            path.unlink()
    for path in [*stale, *left]:
        print(f"{'out of date' if check else 'written' if path in wanted else 'removed'}: {path.relative_to(HERE)}")
    return int(check and bool(stale or left))


if __name__ == "__main__":
    sys.exit(main())
