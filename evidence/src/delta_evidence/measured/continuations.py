"""Continuations of responses from the policy that wrote them, in chunks of a few from one place, judged as training judges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Float

from delta_evidence.judging import Asked
from delta_evidence.rollouts import Collector, Rollouts, left_padded
from delta_evidence.stack.memory import with_fewer_rows
from delta_rlvr.tasks import Problem, Task

COPIES = 8
"""Continuations of a chunk."""

# Draws of continuations must not be those of the rollouts.
_STREAM = 1 << 45
# Parts that a batch of texts is cut into for the judge's processes.
_PARTS = 16


@dataclass(frozen=True)
class Response:
    """A response whose tokens are to be given their credit."""

    problem: Problem
    prompt: list[int]
    tokens: list[int]
    surprise: Float[np.ndarray, " token"]
    """1 - p of each token."""
    reward: float
    limit: int
    """Tokens that a response may have: a continuation ends there too."""


class Chunk(NamedTuple):
    """`COPIES` continuations from one place."""

    batch: int
    """The number of the rollout batch."""
    response: int
    """Its place among the batch's measured responses."""
    position: int
    """Tokens of the response that stay."""
    number: int
    """Tells the chunks of one place apart. Even ones are the first half of the samples, odd ones the second."""


class Continuations(Protocol):
    """Where continuations come from."""

    def __call__(self, chunks: Sequence[Chunk]) -> Iterator[tuple[Sequence[Chunk], list[float]]]:
        """The sum of the rewards of each chunk, a few chunks at a time, in any order."""
        ...


def responses_of(rollouts: Rollouts, rows: Iterable[int], limit: int) -> list[Response]:
    """Rows of a rollout batch, ready to be measured."""
    responses = []
    for row in rows:
        mask = rollouts.mask[row]
        logps = rollouts.logps[row][mask].double().cpu().numpy()
        responses.append(
            Response(
                rollouts.problems[row],
                rollouts.prompt_ids[row][rollouts.prompt_mask[row]].tolist(),
                rollouts.completion_ids[row][mask].tolist(),
                -np.expm1(np.minimum(logps, 0.0)),
                float(rollouts.correct[row]),
                limit,
            )
        )
    return responses


@dataclass
class StackContinuations:
    """From a stacked policy on its own device. A chunk's draws are its own, so that it does not matter what is sampled beside it."""

    collector: Collector
    task: Task
    responses: Mapping[int, Sequence[Response]]
    """By the number of their rollout batch, which tells the batches of one seed apart."""
    seed: int
    temperature: float = 1.0
    rows_at_once: int = 1024
    _known: dict[tuple[tuple[int, int], tuple[int, ...]], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (runs := self.collector.policy.runs) != 1:
            raise ValueError(f"{runs} runs in the stack: credit is measured of one at a time")

    def __call__(self, chunks: Sequence[Chunk]) -> Iterator[tuple[Sequence[Chunk], list[float]]]:
        # Alike in length: little padding, and few lengths of the cache.
        ordered = sorted(chunks, key=lambda chunk: (-self._length(chunk), chunk))
        waiting: tuple[Sequence[Chunk], Callable[[], list[float]]] | None = None
        place = 0
        while place < len(ordered):
            part = ordered[place : place + max(1, self.rows_at_once // COPIES)]
            place += len(part)
            begun = part, self._begin(part)
            # Judged while the device samples the next ones.
            if waiting is not None:
                yield waiting[0], waiting[1]()
            waiting = begun
        if waiting is not None:
            yield waiting[0], waiting[1]()

    def _of(self, chunk: Chunk) -> Response:
        return self.responses[chunk.batch][chunk.response]

    def _length(self, chunk: Chunk) -> int:
        return len(self._of(chunk).prompt) + chunk.position

    def _begin(self, part: Sequence[Chunk]) -> Callable[[], list[float]]:
        """Sample, and have the texts judged; what comes back gives the sums."""
        rows, self.rows_at_once = with_fewer_rows(
            lambda rows: self._sample(part, rows), self.rows_at_once, COPIES, self.collector.phases.tell
        )
        texts = [
            ((chunk.batch, chunk.response), (*self._of(chunk).tokens[: chunk.position], *ids))
            for chunk, of_chunk in zip(part, rows, strict=True)
            for ids in of_chunk
        ]
        # Many continuations are one and the same.
        fresh = sorted({text for text in texts if text not in self._known})
        step = max(64, -(-len(fresh) // _PARTS))
        parts = [fresh[start : start + step] for start in range(0, len(fresh), step)]
        verdicts = self.collector.judge(
            [
                Asked(
                    self.task,
                    [self.responses[batch][place].problem for (batch, place), _ in some],
                    1,
                    [list(ids) for _, ids in some],
                )
                for some in parts
            ]
        )

        def finish() -> list[float]:
            for some, judged in zip(parts, verdicts, strict=True):
                self._known.update(zip(some, map(checked_reward, judged.correct), strict=True))
            scores = [self._known[text] for text in texts]
            return [sum(scores[start : start + COPIES]) for start in range(0, len(scores), COPIES)]

        return finish

    def _sample(self, part: Sequence[Chunk], rows_at_once: int) -> list[list[list[int]]]:
        """The tokens of each continuation of each chunk."""
        at_once = max(1, rows_at_once // COPIES)
        continued: list[list[list[int]]] = []
        for start in range(0, len(part), at_once):
            some = list(part[start : start + at_once])
            # On CUDA the sampler keeps its memory and its graphs while the number of rows stays the same.
            rows = at_once if self.collector.policy.device.type == "cuda" else len(some)
            filled = list(islice(cycle(some), rows))
            prompts = [self._of(chunk).prompt + self._of(chunk).tokens[: chunk.position] for chunk in filled]
            left = [self._of(chunk).limit - chunk.position for chunk in filled]
            ids, real = left_padded(prompts, self.collector.tokenizer)
            uniforms = np.zeros((len(filled) * COPIES, max(left)))
            for place, chunk in enumerate(filled):
                drawn = slice(place * COPIES, (place + 1) * COPIES)
                uniforms[drawn, : left[place]] = self._draws(chunk, left[place])
            sampled, mask = self.collector.sampler.sample(
                ids[None], real[None], torch.from_numpy(uniforms)[None], self.temperature, COPIES
            )
            most = torch.tensor(left, device=mask.device).repeat_interleave(COPIES)
            lengths = mask[0].sum(1).clamp(max=most).tolist()
            rows_of = [row[:length] for row, length in zip(sampled[0].tolist(), lengths, strict=True)]
            continued += [rows_of[place * COPIES : (place + 1) * COPIES] for place in range(len(some))]
        return continued

    def _draws(self, chunk: Chunk, left: int) -> Float[np.ndarray, "copy time"]:
        source = np.random.SeedSequence(self.seed + _STREAM, spawn_key=chunk)
        return np.random.Generator(np.random.Philox(source)).random((COPIES, left))


def checked_reward(reward: float) -> float:
    """The bound 1 - p holds for rewards between 0 and 1."""
    if not 0 <= reward <= 1:
        raise ValueError(f"a reward of {reward:g}: measured credit needs rewards between 0 and 1, such as verdicts")
    return reward
