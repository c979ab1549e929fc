"""What `test_vllm` starts: vllm_main.py stock|METHOD FILE [SETTINGS as JSON]. Four steps with vLLM in the trainer's own process.

What was logged goes to FILE, as JSON. In a process of its own, because vLLM keeps its threads and its process group until the end.
"""

import functools
import json
import os
import sys
from pathlib import Path

os.environ.update(
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_LOGGING_LEVEL="WARNING",
    TRL_EXPERIMENTAL_SILENCE="1",
    HF_HUB_OFFLINE="1",
    RANK="0",
    LOCAL_RANK="0",
    WORLD_SIZE="1",
    MASTER_ADDR="127.0.0.1",
)

import torch


def letters(completions, **_):
    """A reward that differs within every group."""
    return [float(sum(map(ord, text)) % 7) for text in completions]


def main(method, place, sampler_dtype="bfloat16", **settings):
    import trl.generation.vllm_generation as generation
    import vllm.model_executor.layers.utils as layers
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    from delta_rlvr.adapters.trl import DeltaTrainer, DeltaTrainerConfig
    from delta_rlvr.models.load import resolve_model
    from scratch import scratch_folder

    # On a CPU vLLM packs its weights away when it loads them, and then nobody can load new ones, stock TRL neither.
    layers.dispatch_cpu_unquantized_gemm = lambda layer, remove_weight: setattr(
        layer, "cpu_linear", torch.nn.functional.linear
    )
    # TRL leaves the sampler's type to vLLM, which on a CPU takes bfloat16 for a policy in float32.
    generation.LLM = functools.partial(generation.LLM, dtype=sampler_dtype)
    policy = str(resolve_model("builtin"))
    given = {
        "output_dir": scratch_folder(),
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 14,
        "max_steps": 4,
        "learning_rate": 1e-3,
        "seed": 3,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_max_model_length": 128,
        "vllm_gpu_memory_utilization": 0.2,
        **settings,
    }
    stock = method == "stock"
    trainer = (GRPOTrainer if stock else DeltaTrainer)(
        model=policy,
        reward_funcs=letters,
        args=GRPOConfig(**given) if stock else DeltaTrainerConfig(method=method, **given),
        train_dataset=Dataset.from_dict({"prompt": [f"{i} + {j} = " for i in range(2, 8) for j in range(3, 9)]}),
        processing_class=AutoTokenizer.from_pretrained(policy),
    )
    weights = []
    if not stock:
        trainer.observers.append(lambda batch: weights.append(batch.record.weights.tolist()))
    trainer.train()
    Path(place).write_text(json.dumps({"log": trainer.state.log_history, "weights": weights}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3] if len(sys.argv) > 3 else "{}"))
