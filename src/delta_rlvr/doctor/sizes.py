"""The bytes that a run needs, computed from shapes, and the bytes free on this machine."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_ADAM = 8  # two moments in float32
_FLOAT = 4


@dataclass(frozen=True)
class ModelShape:
    """The dimensions of a model that sizes depend on."""

    parameters: int
    trained: int
    """Parameters that have a gradient: all, or those of a LoRA adapter."""
    width: int
    vocabulary: int
    context: int | None

    @classmethod
    def of(cls, config: Any, lora_rank: int | None = None) -> ModelShape:
        """Return the shape from a transformers config, without loading weights."""
        from transformers import AutoModelForCausalLM

        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        text = config.get_text_config()
        parameters = sum(weight.numel() for weight in model.parameters())
        trained = parameters
        if lora_rank is not None:
            head = model.get_output_embeddings()
            trained = sum(
                lora_rank * (layer.in_features + layer.out_features)
                for layer in model.modules()
                if isinstance(layer, torch.nn.Linear) and layer is not head
            )
        context = getattr(text, "max_position_embeddings", None)
        return cls(parameters, trained, text.hidden_size, text.vocab_size, context)


def state_bytes(shape: ModelShape, moments: int = _ADAM) -> int:
    """Return the size of weights, gradients and optimizer in float32."""
    return shape.parameters * _FLOAT + shape.trained * (_FLOAT + moments)


def optimizer_bytes(name: str) -> int:
    """Return the bytes per trained parameter that transformers' optimizer of this name keeps."""
    if "8bit" in name:
        return 2
    return 0 if name in ("sgd", "adafactor") else _ADAM


def logits_bytes(shape: ModelShape, tokens: int) -> int:
    """Return the size of logits in float32 and their gradient."""
    return 2 * tokens * shape.vocabulary * _FLOAT


def store_bytes(shape: ModelShape, tokens: int, itemsize: int) -> int:
    """Return the size of the hidden states of response tokens."""
    return tokens * shape.width * itemsize


def checkpoint_bytes(shape: ModelShape, moments: int = _ADAM) -> int:
    """Return the size of the trained weights and the optimizer's state."""
    return shape.trained * (_FLOAT + moments)


def free_memory(device: torch.device) -> int:
    """Return the free bytes of a device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return free_host_memory()


def free_host_memory() -> int:
    """Return the free bytes of host memory; on Linux these include the file cache, which can be reclaimed."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_disk(folder: Path) -> int:
    """Return the free bytes on the disk of a folder, which need not exist yet."""
    place = folder.resolve()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def gigabytes(size: float) -> str:
    """Return a size as text."""
    return f"{size / 1e9:.1f} GB" if size >= 5e7 else f"{size / 1e6:.1f} MB"


def device_line() -> str:
    """Return a line about the GPUs of this machine."""
    if not torch.cuda.is_available():
        return f"no GPU: training runs on the CPU ({len(os.sched_getaffinity(0))} cores)"
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    free = ", ".join(gigabytes(torch.cuda.mem_get_info(number)[0]) for number in range(len(names)))
    return f"{len(names)} x {names[0]}; free: {free}"
