"""Small random models and made-up prompts under the names that TRL's tests load from the hub: made here, nothing is fetched.

The tests spell out token ids of Qwen's vocabulary, so that is the one thing that has to come from elsewhere (`trl_suite.py --help`).
"""

from __future__ import annotations

import base64
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import nn

WORDS = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
"""How Qwen's tokenizer cuts a text before it merges bytes."""
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
NOT_SPECIAL = [
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
]
END, PAD = "<|im_end|>", "<|endoftext|>"

SMALL: dict[str, Any] = {
    "vocab_size": 151936,
    "hidden_size": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 32,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "pad_token_id": 151643,
}
EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, **SMALL}
SCORER: dict[str, Any] = {**SMALL, "hidden_size": 16, "num_labels": 1}
NEMOTRON: dict[str, Any] = {
    **{name: value for name, value in EXPERTS.items() if name != "num_hidden_layers"},
    "hidden_size": 16,
    "layers_block_type": ["mamba", "attention", "moe"],
    "mamba_num_heads": 8,
    "mamba_head_dim": 4,
    "mamba_n_groups": 1,
    "ssm_state_size": 16,
    "n_routed_experts": 4,
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
    "use_mamba_kernels": False,
}
GLM: dict[str, Any] = {**EXPERTS, "moe_intermediate_size": 32, "head_dim": 2, "n_routed_experts": 4}

# Name on the hub: (model class, configuration class, its settings, chat template).
MODELS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "tiny-Qwen2ForCausalLM-2.5": ("Qwen2ForCausalLM", "Qwen2Config", SMALL, "qwen2_5"),
    "tiny-Qwen3ForCausalLM": ("Qwen3ForCausalLM", "Qwen3Config", SMALL, "qwen3"),
    "tiny-Qwen3MoeForCausalLM": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {**EXPERTS, "num_experts": 4}, "qwen3"),
    "tiny-LlamaForCausalLM-3.2": ("LlamaForCausalLM", "LlamaConfig", SMALL, "qwen2_5"),
    "tiny-MistralForCausalLM-0.2": ("MistralForCausalLM", "MistralConfig", SMALL, "qwen2_5"),
    "tiny-Gemma2ForCausalLM": ("Gemma2ForCausalLM", "Gemma2Config", SMALL, "qwen2_5"),
    "tiny-Cohere2ForCausalLM": ("Cohere2ForCausalLM", "Cohere2Config", {**SMALL, "logit_scale": 1.0}, "qwen2_5"),
    "tiny-Glm4MoeForCausalLM": ("Glm4MoeForCausalLM", "Glm4MoeConfig", GLM, "qwen2_5"),
    "tiny-GptOssForCausalLM": ("GptOssForCausalLM", "GptOssConfig", {**EXPERTS, "num_local_experts": 4}, "qwen2_5"),
    "tiny-NemotronHForCausalLM-nano": ("NemotronHForCausalLM", "NemotronHConfig", NEMOTRON, "qwen2_5"),
    **{
        f"tiny-{name}ForSequenceClassification{version}": (
            f"{name}ForSequenceClassification",
            f"{name}Config",
            SCORER,
            template,
        )
        for name, version, template in (
            ("Qwen2", "-2.5", "qwen2_5"),
            ("Llama", "-3.2", "qwen2_5"),
            ("Qwen3", "", "qwen3"),
        )
    },
}

PROMPTS = [
    "Beautiful is better than",
    "Explicit is",
    "Simple is better",
    "Complex",
    "Flat is better than",
    "Sparse is better",
    "Readability",
    "Special cases aren't special",
    "Although practicality beats",
    "Errors should never",
    "Unless explicitly",
    "In the face of ambiguity, refuse",
    "There should be one-- and preferably",
    "Although that way may not be",
    "Now is",
    "Although never is often",
    "If the implementation is hard",
    "If the implementation is easy",
    "Namespaces are one",
]
HELD_OUT = 2


def make_stand_ins(hub: Path, vocabulary: Path) -> None:
    """Write every stand-in that is not there yet below `hub`."""
    place = hub / "trl-internal-testing"
    place.mkdir(parents=True, exist_ok=True)
    base = hub / "qwen-tokenizer"
    if not base.exists():
        _whole(base, lambda folder: _save_tokenizer(folder, vocabulary))
    for name in MODELS:
        if not (place / name).exists():
            _whole(place / name, lambda folder, name=name: _save_model(folder, name, base))  # type: ignore[misc]
    if not (place / "zen").exists():
        _whole(place / "zen", _save_prompts)


def _whole(place: Path, make: Any) -> None:
    """What is interrupted leaves no stand-in that looks whole."""
    unfinished = place.with_name(f"{place.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    make(unfinished)
    unfinished.rename(place)
    print("made", place.name, flush=True)


def _save_model(folder: Path, name: str, base: Path) -> None:
    model_class, config_class, settings, template = MODELS[name]
    torch.manual_seed(0)
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**settings)).to(torch.bfloat16)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    if model.can_generate():
        model.generation_config = transformers.GenerationConfig(
            eos_token_id=[151645, 151643], pad_token_id=151643, do_sample=True, temperature=0.7, top_p=0.8, top_k=20
        )
    model.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    templates = Path(trl.__file__).parent / "chat_templates"
    tokenizer.chat_template = (templates / f"{template}.jinja").read_text()
    tokenizer.save_pretrained(folder)


def _save_prompts(folder: Path) -> None:
    from datasets import Dataset

    kinds: dict[str, list[Any]] = {
        "standard_prompt_only": list(PROMPTS),
        "conversational_prompt_only": [[{"role": "user", "content": prompt}] for prompt in PROMPTS],
    }
    head = ["---", "configs:"]
    for kind, prompts in kinds.items():
        (folder / kind).mkdir()
        head += [f"- config_name: {kind}", "  data_files:"]
        for split, part in (("train", prompts[:-HELD_OUT]), ("test", prompts[-HELD_OUT:])):
            Dataset.from_dict({"prompt": part}).to_parquet(str(folder / kind / f"{split}.parquet"))
            head += [f"  - split: {split}", f"    path: {kind}/{split}.parquet"]
    (folder / "README.md").write_text("\n".join([*head, "---", ""]))


def _save_tokenizer(folder: Path, vocabulary: Path) -> None:
    """Qwen's tokenizer from its list of byte strings and their ranks."""
    lines = vocabulary.read_text().split("\n")
    ranks = {base64.b64decode(text): int(rank) for text, rank in (line.split() for line in lines if line)}
    letters = _letters()
    spelled = {token: "".join(letters[byte] for byte in token) for token in ranks}
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = _merged_below(token, rank, ranks) if len(token) > 1 else []
        if len(parts) == 2:
            merges.append((spelled[parts[0]], spelled[parts[1]]))
    tokenizer = Tokenizer(models.BPE(vocab={spelled[token]: rank for token, rank in ranks.items()}, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in NOT_SPECIAL])
    call = '<tool_call>\n{"name": "multiply_tool"'
    expected = [151657, 198, 4913, 606, 788, 330, 64648, 22785, 1]
    if tokenizer.encode(call).ids != expected:
        raise SystemExit(f"{vocabulary}: not Qwen's vocabulary: {call!r} is {tokenizer.encode(call).ids}")
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "Qwen2TokenizerFast", "model_max_length": 131072, "eos_token": END, "pad_token": PAD}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _merged_below(token: bytes, rank: int, ranks: dict[bytes, int]) -> list[bytes]:
    """The parts that merges of lower rank leave of a token."""
    parts = [token[place : place + 1] for place in range(len(token))]
    while len(parts) > 2:
        pairs = [ranks.get(left + right, rank) for left, right in itertools.pairwise(parts)]
        lowest = min(pairs)
        if lowest >= rank:
            break
        where = pairs.index(lowest)
        parts[where : where + 2] = [parts[where] + parts[where + 1]]
    return parts


def _letters() -> dict[int, str]:
    """The letter that stands for each byte in a byte-level vocabulary."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {byte: chr(byte) for byte in shown} | {byte: chr(256 + place) for place, byte in enumerate(hidden)}
