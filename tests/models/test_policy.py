"""The bundled policy: what training starts from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from delta_rlvr.models import load_policy, resolve_model
from delta_rlvr.tasks import get_task
from delta_rlvr.tasks.sum_credit import sum_digits
from delta_rlvr.tasks.task import flag_tokens, token_spans
from rounding import MODEL, rounding

SAMPLES = 500


@pytest.fixture(scope="module")
def policy() -> tuple[Any, Any]:
    return load_policy("builtin")


@pytest.fixture(scope="module")
def sampled(policy: tuple[Any, Any]) -> dict[str, Any]:
    """Held-out problems, one response each at temperature 1, and the entropy at each of its tokens."""
    model, tokenizer = policy
    task = get_task()
    problems = task.problems("heldout", SAMPLES)
    inputs = tokenizer([problem.prompt for problem in problems], return_tensors="pt", padding=True)
    torch.manual_seed(0)
    generated = model.generate(
        **inputs,
        max_new_tokens=task.max_tokens,
        do_sample=True,
        top_k=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    logps = torch.stack(generated.logits, dim=1).log_softmax(-1)
    ids = generated.sequences[:, inputs["input_ids"].shape[1] :]
    return {"problems": problems, "ids": ids, "entropy": -(logps.exp() * logps).sum(-1)}


def test_it_is_small_and_plain() -> None:
    folder = Path(resolve_model("builtin"))
    assert sum(file.stat().st_size for file in folder.iterdir()) < 2**21  # 2 MB; 8 are allowed
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert config["head_dim"] >= 32  # what inference servers take


def test_it_samples_a_good_part_of_the_answers_but_not_all(policy: Any, sampled: dict[str, Any]) -> None:
    _, tokenizer = policy
    texts = tokenizer.batch_decode(sampled["ids"], skip_special_tokens=True)
    verdicts = get_task().grade_batch(sampled["problems"], texts)
    accuracy = sum(verdict.score for verdict in verdicts) / SAMPLES
    assert 0.30 <= accuracy <= 0.50
    # Nearly all wrong ones are wrong sums, not broken talk.
    assert sum(verdict.reason == "no final answer" for verdict in verdicts) < 0.02 * SAMPLES


def test_words_and_sums_are_uncertain_and_copies_are_not(policy: Any, sampled: dict[str, Any]) -> None:
    _, tokenizer = policy
    words, sums, copies = [], [], []
    ended_early = 0
    for ids, entropy in zip(sampled["ids"].tolist(), sampled["entropy"].tolist(), strict=True):
        kept = [token for token in ids if token not in (tokenizer.eos_token_id, tokenizer.pad_token_id)]
        ended_early += len(kept) < len(ids)
        tokens = [tokenizer.decode([token]) for token in kept]
        flags = flag_tokens(sum_digits("".join(tokens)), token_spans(tokens))
        for token, flag, value in zip(tokens, flags, entropy, strict=False):
            (sums if flag else copies if token.isdigit() else words).append(value)
    assert ended_early > 0.99 * SAMPLES  # the limit leaves room

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    assert mean(words) > 0.4  # shared phrasing is where most of the uncertainty is
    assert 0.15 < mean(sums) < 0.6  # and the digits that decide have some of their own
    assert mean(copies) < 0.02
    assert sum(value > 1.0 for value in words) > 0.15 * len(words)


@given(st.text(max_size=60))
def test_any_text_comes_back(policy: Any, text: str) -> None:
    _, tokenizer = policy
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_digits_are_single_tokens_and_words_are_whole(policy: Any) -> None:
    _, tokenizer = policy
    text = "First, 55 and 30 come to 85. Now, putting 7 on 85 yields 92."
    tokens = [tokenizer.decode([token]) for token in tokenizer(text)["input_ids"]]
    assert tokens[:12] == ["First", ", ", "5", "5", " and ", "3", "0", " come", " to ", "8", "5", "."]
    assert "".join(tokens) == text
    # A prompt and its response meet at a token border: training and generation see the same tokens.
    prompt = "Add 55, 30, 78 and 51.\n"
    assert tokenizer(prompt + text)["input_ids"] == tokenizer(prompt)["input_ids"] + tokenizer(text)["input_ids"]


def test_padding_and_end_are_there(policy: Any) -> None:
    model, tokenizer = policy
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert tokenizer.padding_side == "left"
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert model.config.vocab_size == len(tokenizer)
    assert model.dtype == torch.float32
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "Add 5 and 6.\n"}], tokenize=False)
    assert chat == "Add 5 and 6.\n"


def test_a_step_of_padding_changes_nothing(policy: Any) -> None:
    model, tokenizer = policy
    prompts = ["Add 12, 13, 14 and 15.\n", "Add 12, 13, 14 and 15. Tom is 41 years old.\n"]
    padded = tokenizer(prompts, return_tensors="pt", padding=True)
    positions = (padded["attention_mask"].cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        together = model(**padded, position_ids=positions).logits[0, -1]
        alone = model(**tokenizer(prompts[:1], return_tensors="pt")).logits[0, -1]
    torch.testing.assert_close(together, alone, atol=rounding(MODEL, alone.abs().max().item()), rtol=0)
