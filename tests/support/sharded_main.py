"""What one rank does when `test_sharded` starts two of them with sharded weights: jobs, of which each writes what the rank saw to
FOLDER/JOB.RANK.pt."""

import contextlib
import os

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
from accelerate import state as accelerate_state
from accelerate.utils import DistributedType

from real_generation import build_real
from replayed_training import build

FSDP2 = {
    "fsdp": "full_shard auto_wrap",
    "fsdp_config": {
        "fsdp_version": 2,
        "transformer_layer_cls_to_wrap": ["Qwen3DecoderLayer"],
        "reshard_after_forward": True,
        "cpu_ram_efficient_loading": False,
        "state_dict_type": "FULL_STATE_DICT",
    },
}
ZERO3 = {
    "use_cpu": False,  # transformers refuses DeepSpeed with it; the device is the CPU all the same
    # No `gradient_clipping`, as in many a config: it must come from `max_grad_norm`.
    "deepspeed": {
        "zero_optimization": {
            "stage": 3,
            "stage3_param_persistence_threshold": 0,  # or small parameters would not be sharded
            "stage3_gather_16bit_weights_on_model_save": True,
        },
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "zero_allow_untested_optimizer": True,
        "fp16": {"enabled": False},
        "bf16": {"enabled": False},
    },
}
CLIPPED = 0.05
"""A norm that every gradient of these trainings is above: without clipping the weights would be others."""


def shard_on_a_cpu(mode):
    """accelerate shards on accelerators only and runs DDP on a CPU, without a word: it is made to believe that these are GPUs."""
    state = accelerate_state.PartialState
    if mode == "fsdp2":
        begin = state.__init__

        def believing(self, cpu=False, **kwargs):
            begin(self, cpu, **kwargs)
            if self.distributed_type == DistributedType.MULTI_CPU:
                self.distributed_type = DistributedType.MULTI_GPU

        state.__init__ = believing
        return FSDP2
    state._prepare_backend = lambda self, *args, **kwargs: ("gloo", DistributedType.MULTI_GPU)
    state.set_device = lambda self: setattr(self, "device", torch.device("cpu"))
    return ZERO3


def whole_parameters(trainer):
    """The trained model's parameters, gathered."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    gathered = contextlib.nullcontext()
    if hasattr(next(model.parameters()), "ds_id"):
        import deepspeed

        gathered = deepspeed.zero.GatheredParameters(list(model.parameters()))
    with gathered:
        return {
            name: (value.full_tensor() if hasattr(value, "full_tensor") else value).detach().clone()
            for name, value in model.named_parameters()
        }


def local_share(trainer):
    """The share of the parameters' numbers that this rank holds: 1 where nothing is sharded."""
    held = whole = 0
    for value in trainer.accelerator.unwrap_model(trainer.model).parameters():
        if hasattr(value, "ds_tensor"):
            held, whole = held + value.ds_tensor.numel(), whole + value.ds_numel
        else:
            held += (value.to_local() if hasattr(value, "to_local") else value).numel()
            whole += value.numel()
    return held / whole


def seen(trainer):
    return {
        "share": local_share(trainer),
        "losses": [micro["loss"] for micro in trainer.losses],
        "tokens": [[row["tokens"] for row in batch["rows"]] for batch in trainer.generations],
        "weights": [batch.record.weights for batch in trainer.batches],
        "parameters": whole_parameters(trainer),
    }


def replayed(method, shape, sharding):
    trainer = build(method, shape, ranks=2, max_grad_norm=CLIPPED, **sharding)
    trainer.train()
    return seen(trainer)


def for_real(method, folder, sharding, lora=False):
    """Four steps of the policy's own responses, and the last two again from the checkpoint after the second."""
    settings = {**sharding, "output_dir": str(folder), "save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    whole = build_real(method, lora=lora, **settings)
    whole.train()
    again = build_real(method, lora=lora, **settings)
    again.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
    return {"whole": seen(whole), "resumed": seen(again)}


def main(mode, folder, jobs):
    os.environ["DS_ACCELERATOR"] = "cpu"
    sharding = shard_on_a_cpu(mode)
    for job in jobs:
        kind, _, rest = job.partition(" ")
        if kind == "replayed":
            method, _, shape = rest.partition(", ")
            result = replayed(method, shape, sharding)
        else:
            method, _, lora = rest.partition(", ")
            result = for_real(method, folder / f"{mode} {rest}", sharding, lora=bool(lora))
        torch.save(result, folder / f"{job}.{os.environ['RANK']}.pt")
    torch.distributed.destroy_process_group()
