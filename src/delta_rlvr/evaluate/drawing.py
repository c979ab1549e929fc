"""Drawing of tokens: a sample depends on its own seed and prompt, not on the other samples of its batch.

Each sample has its own stream of uniform numbers, one per token, generated on the CPU. A token is found by inverting the cumulative
distribution. Another batch changes a sample only if rounding moves a probability across the drawn number, which is rare with float32
logits. `torch.multinomial` would share one stream among the rows of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int

_BLOCK = 256


class UniformStreams:
    """One stream of numbers in [0, 1) per sample, read at the same position for all samples of a batch."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._generators = [np.random.Generator(np.random.Philox(seed)) for seed in seeds]
        self._block = np.empty((len(seeds), 0))
        self._position = 0

    def next(self) -> Float[np.ndarray, " batch"]:
        """Return the next number of every stream."""
        if self._position == self._block.shape[1]:
            self._block = np.stack([generator.random(_BLOCK) for generator in self._generators])
            self._position = 0
        self._position += 1
        return self._block[:, self._position - 1]


def draw_tokens(
    logits: Float[torch.Tensor, "batch vocab"],
    uniforms: Float[torch.Tensor, " batch"],
    *,
    temperature: float,
    top_p: float,
) -> Int[torch.Tensor, " batch"]:
    """Draw one token per row: apply the temperature, then top-p, then invert the cumulative distribution."""
    if temperature == 0:
        return logits.argmax(dim=-1)
    logits = logits.double()
    # Skip the division by 1: it would pass over the whole vocabulary.
    probabilities = torch.softmax(logits if temperature == 1 else logits / temperature, dim=-1)
    if top_p == 1:
        return _invert(probabilities.cumsum(dim=-1), uniforms)
    ordered, tokens = probabilities.sort(dim=-1, descending=True, stable=True)
    cumulative = ordered.cumsum(dim=-1)
    # The smallest set that reaches top_p: a token is in it if those before it do not reach top_p.
    size = (cumulative - ordered < top_p).sum(dim=-1, keepdim=True)
    nucleus = cumulative.clamp(max=cumulative.gather(-1, size - 1))
    return tokens.gather(-1, _invert(nucleus, uniforms)[:, None])[:, 0]


def _invert(
    cumulative: Float[torch.Tensor, "batch vocab"], uniforms: Float[torch.Tensor, " batch"]
) -> Int[torch.Tensor, " batch"]:
    total = cumulative[:, -1:]
    # Beyond the last token with any probability the sum is flat: right=True never lands there, as u < 1.
    places = torch.searchsorted(cumulative, uniforms[:, None].to(cumulative) * total, right=True)[:, 0]
    return places.clamp(max=cumulative.shape[-1] - 1)
