"""One forward pass over a response: its tokens, their log-probs and entropies, and the inputs of the LM head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from delta_rlvr.models.prompts import encode_prompt
from delta_rlvr.models.token_texts import token_texts
from delta_rlvr.report.explained import Forward
from delta_rlvr.report.rollout_files import Rollout, RolloutFileError

OTHER_TOKENIZER = "its token ids do not fit this model's tokenizer: give the model that sampled them"


def forward(policy: Any, tokenizer: Any, rollout: Rollout, temperature: float, chat: bool) -> Forward:
    """Run the policy over prompt and response, and return what it has at the positions that predict the response."""
    prompt_ids, ids, texts, exact = _tokens(tokenizer, rollout, chat)
    limit = getattr(policy.config, "max_position_embeddings", None)
    if limit is not None and len(prompt_ids) + len(ids) > limit:
        raise RolloutFileError(
            f"{rollout.where} has {len(prompt_ids) + len(ids)} tokens, but the model's context is {limit}: shorten it"
        )
    head = policy.get_output_embeddings()
    inputs = torch.tensor([prompt_ids + ids], device=head.weight.device)
    seen: list[Any] = []
    # The proxies are made of the inputs of the head, whose names differ between architectures.
    hook = head.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        with torch.no_grad():
            logits = policy(input_ids=inputs).logits
    finally:
        hook.remove()
    positions = slice(len(prompt_ids) - 1, -1)
    targets = inputs[0, len(prompt_ids) :]
    logps, entropy = _distribution(logits[0, positions], targets, temperature)
    decisive = None
    if exact and rollout.decisive is not None:
        decisive = torch.tensor(rollout.decisive, device=inputs.device)
    return Forward(prompt_ids, targets, texts, logps, entropy, seen[-1][0, positions], decisive)


def in_vocabulary(tokenizer: Any, rollout: Rollout) -> bool:
    """Return whether the tokenizer has all ids of prompt and response."""
    ids = (*(rollout.prompt_ids or ()), *(rollout.ids or ()))
    return not ids or (min(ids) >= 0 and max(ids) < len(tokenizer))


def _tokens(tokenizer: Any, rollout: Rollout, chat: bool) -> tuple[list[int], list[int], list[str], bool]:
    """Return the ids of the prompt, the ids and texts of the response, and whether they are the sampled ones.

    The ids of the file are used if they decode to the response with this tokenizer; else its text is tokenized again."""
    if rollout.ids is not None and in_vocabulary(tokenizer, rollout):
        ids = list(rollout.ids)
        texts = token_texts(tokenizer, ids)
        bare = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        if rollout.response in ("", "".join(texts), bare):
            prompt = list(rollout.prompt_ids or ()) or _prompt_ids(tokenizer, rollout, chat)
            return prompt, ids, texts, True
    if not rollout.response:
        raise RolloutFileError(f"{rollout.where}: {OTHER_TOKENIZER}")
    if not tokenizer.is_fast:
        raise ValueError(f"{type(tokenizer).__name__} has no offsets: use a model with a fast tokenizer")
    encoded = tokenizer(rollout.response, add_special_tokens=False, return_offsets_mapping=True)
    texts = _texts(rollout.response, encoded["offset_mapping"])
    return _prompt_ids(tokenizer, rollout, chat), encoded["input_ids"], texts, False


def _prompt_ids(tokenizer: Any, rollout: Rollout, chat: bool) -> list[int]:
    prompt = rollout.prompt
    if chat and isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    try:
        ids = encode_prompt(tokenizer, prompt)
    except ValueError as error:
        raise RolloutFileError(f"{rollout.where}: {error}") from error
    if isinstance(prompt, str) and ids[-1:] == [tokenizer.eos_token_id]:
        ids = ids[:-1]  # some tokenizers append it to every text, but the response follows
    if not ids:
        raise RolloutFileError(f"{rollout.where}: its prompt has no tokens")
    return ids


def _distribution(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the log-prob of each target and the entropy of each position, computed in parts to save memory."""
    logps, entropy = [], []
    for part, wanted in zip(logits.split(512), targets.split(512), strict=True):
        log_probs = torch.log_softmax(part.float() / temperature, dim=-1)
        logps.append(log_probs.gather(-1, wanted[:, None])[:, 0])
        entropy.append(-(log_probs.exp() * log_probs.nan_to_num(neginf=0.0)).sum(-1))
    return torch.cat(logps), torch.cat(entropy)


def _texts(response: str, offsets: Sequence[tuple[int, int]]) -> list[str]:
    """Return the text of each token. Spaces that a tokenizer drops belong to the next token. A character that several tokens share
    belongs to the last of them; the others are U+FFFD."""
    texts: list[str] = []
    start = 0
    for number, (_, end) in enumerate(offsets):
        shared = number + 1 < len(offsets) and offsets[number + 1][1] == end
        texts.append("\ufffd" if shared else response[start:end])
        start = start if shared else max(start, end)
    if texts and start < len(response):
        texts[-1] += response[start:]
    return texts
