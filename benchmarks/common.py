"""What the benchmarks of models have in common: a shape, options, and the machine they ran on."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel


def smollm_config() -> LlamaConfig:
    """The shape of SmolLM2-135M."""
    return LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )


def smollm_shape() -> PreTrainedModel:
    """Random weights of that shape."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(smollm_config())


def wait(device: str | torch.device) -> None:
    """Until the device has done what it was given."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def model_parser(about: str | None, models: Collection[str]) -> argparse.ArgumentParser:
    """--model, --device and --json."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=models, default="builtin")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there too")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options, on a machine that has the device; transformers keeps quiet from here on."""
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: this machine has none")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return arguments


def circumstances(arguments: argparse.Namespace, **versions: str) -> dict[str, Any]:
    """What a result was measured with and on."""
    return {
        "model": arguments.model,
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else platform.processor() or "cpu",
        "threads": torch.get_num_threads(),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, **versions},
    }


def keep(result: dict[str, Any], place: Path | None) -> None:
    """Write the result as JSON, where that was asked for."""
    if place:
        place.write_text(json.dumps(result, indent=2) + "\n")
