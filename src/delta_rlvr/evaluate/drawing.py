"""Draw tokens so that a sample depends on its own seed and prompt, not on what is sampled beside it.

Each sample has its own stream of uniform numbers, one per token, made on the CPU; a token is found by inverting the cumulative
distribution. Another batch then changes a sample only if rounding moves a probability across the number drawn, which float32 logits
make rare. `torch.multinomial` would share one stream among the rows of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int

_BLOCK = 256


class UniformStreams:
    """One stream of numbers in [0, 1) a sample, read at the same position for all samples of a batch."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._generators = [np.random.Generator(np.random.Philox(seed)) for seed in seeds]
        self._block = np.empty((len(seeds), 0))
        self._position = 0

    def next(self) -> Float[np.ndarray, " batch"]:
        """The next number of every stream."""
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
    """One token per row: temperature first, then the nucleus, then the inverse of the cumulative distribution."""
    if temperature == 0:
        return logits.argmax(dim=-1)
    logits = logits.double()
    # A division by one changes nothing, and is a pass over the whole vocabulary.
    probabilities = torch.softmax(logits if temperature == 1 else logits / temperature, dim=-1)
    if top_p == 1:
        return _invert(probabilities.cumsum(dim=-1), uniforms)
    ordered, tokens = probabilities.sort(dim=-1, descending=True, stable=True)
    cumulative = ordered.cumsum(dim=-1)
    # The smallest set that reaches top_p: a token stays while those before it have not reached it.
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
