"""Which tokens of given rollouts would get the credit: a forward pass over each, the methods' weights, and a page."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from delta_rlvr.bounds import typed
from delta_rlvr.credit import CreditStream
from delta_rlvr.credit.rule import OF_A_PASS, check_needs
from delta_rlvr.credit.stream import streams_for
from delta_rlvr.models.load import check_model_name, load_policy, load_pretrained
from delta_rlvr.objectives import get_method, group_advantages
from delta_rlvr.report.explained import Explained, Forward, Measured
from delta_rlvr.report.forward import OTHER_TOKENIZER, forward, in_vocabulary
from delta_rlvr.report.rollout_files import Rollout, RolloutFileError, read_rollouts

METHODS = ("delta", "dapo-ft", "grpo")
"""The default methods."""

Measure = Callable[[Any, Any, Sequence[Rollout], Sequence[Forward]], Measured]
"""Takes a policy, its tokenizer, rollouts and the passes over them; returns credit and standard error of each token, per response.
`delta_evidence.commands.explain_measured` has one that measures by continuations."""


@typed
def explain(
    model: str,
    rollouts: str | Path,
    *,
    methods: Sequence[str] = METHODS,
    temperature: float = 1.0,
    chat: bool = False,
    reward_key: str | None = None,
    prompt_key: str | None = None,
    response_key: str | None = None,
    measure: Measure | None = None,
) -> Explained:
    """Return the token weights that a policy's next update would give these rollouts; `write_page` shows them.

    `rollouts`: any file that `report.rollout_files` reads. `methods`: the methods whose weights are computed; the page opens with the
    first. `temperature`: that at which the rollouts were sampled. `chat`: apply the tokenizer's chat template to text prompts.
    `reward_key`, `prompt_key`, `response_key`: the keys of these in the file. `measure`: also measure credit, for the page.
    """
    chosen = {name: get_method(name) for name in methods}
    if not chosen:
        raise ValueError("methods: name at least one")
    every = read_rollouts(rollouts, reward_key, prompt_key, response_key)
    advantages, groups = advantages_and_groups(every)
    # A response without tokens counts for the mean of its group, but is not shown.
    kept = [place for place, rollout in enumerate(every) if rollout.response or rollout.ids]
    shown = [every[place] for place in kept]
    advantages, groups = [advantages[place] for place in kept], [groups[place] for place in kept]
    given = [*OF_A_PASS, "decisive"] if all(rollout.decisive is not None for rollout in shown) else OF_A_PASS
    source = Path(rollouts).name
    for name, method in chosen.items():
        check_needs(method.rho, given, f"explain with {source}", name)
    _check_ids(model, shown)
    policy, tokenizer = load_policy(model)
    policy.eval().to("cuda" if torch.cuda.is_available() else "cpu")  # type: ignore[arg-type]
    rules = {name: method.rho for name, method in chosen.items()}
    head = policy.get_output_embeddings().weight
    streams = streams_for(rules.values(), head=head, temperature=temperature)  # which check the temperature
    passes = [forward(policy, tokenizer, rollout, temperature, chat) for rollout in shown]
    _warn_of_another_writer(passes, model)
    _add(streams, shown, passes, labelled=any("decisive" in rule.needs for rule in rules.values()))
    earned = torch.tensor(advantages, dtype=torch.float64, device=head.device)
    numbers = torch.tensor(groups, device=head.device)
    records = {
        name: next(stream for stream in streams if stream.reads(rule)).solve(earned, groups=numbers, rule=rule)
        for name, rule in rules.items()
    }
    return Explained(
        model=model,
        source=source,
        temperature=temperature,
        method=next(iter(chosen.values())),
        rollouts=shown,
        without_tokens=len(every) - len(shown),
        passes=passes,
        advantages=advantages,
        groups=groups,
        records=records,
        measured=None if measure is None else measure(policy, tokenizer, shown, passes),
    )


def _check_ids(model: str, rollouts: Sequence[Rollout]) -> None:
    """Refuse ids that the model's tokenizer does not have, before the model is loaded; warn where the text can stand for them."""
    with_ids = [rollout for rollout in rollouts if rollout.ids]
    if not with_ids:
        return
    check_model_name(model)
    tokenizer = load_pretrained(AutoTokenizer, model)
    strange = [rollout for rollout in with_ids if not in_vocabulary(tokenizer, rollout)]
    if bare := [rollout for rollout in strange if not rollout.response]:
        raise RolloutFileError(f"{bare[0].where}: {OTHER_TOKENIZER}")
    if strange:
        warnings.warn(
            f"{strange[0].where}: the tokenizer of {model} does not have its token ids ({len(strange)} of {len(rollouts)} responses): "
            "texts are tokenized again. Is it the model that sampled them?",
            stacklevel=3,
        )


UNLIKELY = -4.0
"""A mean log-probability per token below this triggers a warning: for a model's own samples it is near -entropy, rarely below -2."""


def _warn_of_another_writer(passes: Sequence[Forward], model: str) -> None:
    logps = torch.cat([reading.logps for reading in passes])
    if (mean := logps.mean().item()) < UNLIKELY:
        warnings.warn(
            f"did {model} sample these rollouts? Its mean log-probability of a token is {mean:.1f}. Weights are meaningful only for "
            "the model that sampled the rollouts, at the same temperature",
            stacklevel=4,
        )


def advantages_and_groups(rollouts: Sequence[Rollout]) -> tuple[list[float], list[int]]:
    """Return each rollout's advantage and the number of its group, in order of appearance. Advantages are those of the file if it has
    all of them, else relative to the group."""
    numbers: dict[str, int] = {}
    groups = [numbers.setdefault(rollout.group, len(numbers)) for rollout in rollouts]
    known = [rollout.advantage for rollout in rollouts if rollout.advantage is not None]
    if len(known) == len(rollouts):
        return known, groups
    rewards = torch.tensor([rollout.reward for rollout in rollouts], dtype=torch.float64)
    advantages = torch.zeros_like(rewards)
    for number in range(len(numbers)):
        members = torch.tensor(groups) == number
        own = rewards[members]
        if len(own) > 1:
            advantages[members] = group_advantages(own, len(own))
    return advantages.tolist(), groups


def _add(
    streams: Sequence[CreditStream], rollouts: Sequence[Rollout], passes: Sequence[Forward], labelled: bool
) -> None:
    """Add every response to every stream. `labelled`: with the labels of decisive tokens."""
    for rollout, reading in zip(rollouts, passes, strict=True):
        arrays: dict[str, Any] = {"tokens": reading.ids, "entropy": reading.entropy}
        if labelled:
            if reading.decisive is None:
                raise RolloutFileError(f"{rollout.where}: {OTHER_TOKENIZER}")
            arrays["decisive"] = reading.decisive
        lengths = torch.tensor([len(reading.ids)], device=reading.ids.device)
        for stream in streams:
            stream.add(reading.hidden, reading.logps, lengths=lengths, **arrays)
