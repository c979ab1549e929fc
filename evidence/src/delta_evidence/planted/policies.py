"""Policies to measure credit on: the bundled one, and continuations of it that err in another way."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch.nn.utils.rnn import pad_sequence

from delta_rlvr.models import DEFAULT_POLICY, load_policy
from delta_rlvr.tasks import BUILT_IN
from delta_rlvr.tasks.phrased_sums import Slips

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

IGNORED = -100  # transformers' label of a position without loss


@dataclass(frozen=True)
class Continuation:
    """More supervised steps on told solutions with other slips: the policy then errs as often as they do."""

    slips: Slips
    """How often a told solution goes wrong."""
    steps: int = 250
    """Optimizer steps."""
    seed: int = 0
    """Of the problems, the phrasings and the slips."""
    batch: int = 64
    """Solutions a step."""
    learning_rate: float = 5e-4
    """AdamW's, constant."""


VARIANTS = {
    # Forgets nearly every carry and is sure of it (p about 0.9 on wrong digits).
    "confident": Continuation(Slips(0.85, 0.03), seed=7),
    # Errs seldom, and knows where it may.
    "sharp": Continuation(Slips(0.2, 0.02), seed=8),
}
"""Continuations of the bundled policy. Errors that are made with confidence are where 1 - p must fail."""


def is_variant(spec: str) -> bool:
    """Whether a policy's name is that of a continuation, which has to be made."""
    return spec.partition("?")[0] in VARIANTS


def make_variant(spec: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The bundled policy after a continuation, which is given by its name."""
    continuation = get_continuation(spec)
    model, tokenizer = load_policy(DEFAULT_POLICY)
    continue_supervised(model, tokenizer, continuation)
    return model, tokenizer


def get_continuation(spec: str) -> Continuation:
    """A continuation by its name: "confident", or "confident?seed=9" for another draw of it."""
    name, _, query = spec.partition("?")
    continuation = VARIANTS[name]
    if not query:
        return continuation
    key, _, value = query.partition("=")
    if key != "seed" or not value.isdecimal():
        raise ValueError(f"{spec}: the one setting of a variant is ?seed=N")
    return replace(continuation, seed=int(value))


def continue_supervised(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, continuation: Continuation) -> None:
    """Train the model in place."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=continuation.learning_rate, betas=(0.9, 0.98))
    solutions = told_solutions(continuation)
    model.train()
    for _ in range(continuation.steps):
        model(**collate(next(solutions), tokenizer)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.eval()


def told_solutions(continuation: Continuation) -> Iterator[list[tuple[str, str]]]:
    """Batches of (prompt, solution) without end, each of one built-in task."""
    draw = random.Random(continuation.seed)
    # Problems of a seed of their own, so that rollouts of the usual seeds are (nearly all) new.
    streams = {name: task.stream("train", seed=-1000 - continuation.seed) for name, task in BUILT_IN.items()}
    while True:
        task = draw.choice(list(BUILT_IN.values()))
        problems = itertools.islice(streams[task.name], continuation.batch)
        yield [(str(problem.prompt), task.solution(problem, draw, continuation.slips)) for problem in problems]


def collate(
    pairs: list[tuple[str, str]], tokenizer: PreTrainedTokenizerBase, device: str = "cpu"
) -> dict[str, torch.Tensor]:
    """Right-padded ids, and the labels of the solutions and their end."""
    ids, labels = [], []
    for prompt, solution in pairs:
        asked = tokenizer(prompt)["input_ids"]
        answered = [*tokenizer(solution)["input_ids"], tokenizer.eos_token_id]
        ids.append(torch.tensor([*asked, *answered]))
        labels.append(torch.tensor([*[IGNORED] * len(asked), *answered]))
    # Padding stands on the right, where no real token attends to it.
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_token_id).to(device),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED).to(device),
    }
