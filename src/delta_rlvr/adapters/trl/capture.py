"""Capture of a rollout batch's hidden states, log-probs and entropies from a forward pass of the engine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor

from delta_rlvr.adapters.trl.version import VERSION_HELP
from delta_rlvr.credit import CreditStream


@dataclass
class Capture:
    """The captured rollout batch of this rank, its responses in the order of their generation."""

    stream: CreditStream
    mask: Bool[Tensor, "batch time"]
    """Valid response tokens."""
    tokens: Int[Tensor, "batch time"]
    """The sampled token ids."""
    order: Int[Tensor, " batch"] | None = None
    """The index of each response in the pass, if its order differs. The pass must then have all of them in one forward."""
    logps: Float[Tensor, "batch time"] | None = None
    entropy: Float[Tensor, "batch time"] | None = None

    @contextlib.contextmanager
    def opened(self, backbone: Any) -> Iterator[None]:
        """Add the hidden states of the backbone's forwards in the block to the stream, or only the tokens if it needs no more."""
        if not self.stream.needs_hidden:
            self.stream.add(None, mask=self.mask, tokens=self.tokens)
            yield
            return
        lengths = self.mask.sum(1).tolist()  # the only wait for the device
        seen = 0

        def keep(module: Any, arguments: Any, output: Any) -> None:
            nonlocal seen
            hidden = output.last_hidden_state if hasattr(output, "last_hidden_state") else output[0]
            rows = slice(seen, seen + len(hidden))
            seen += len(hidden)
            if seen > len(lengths):
                return  # refused below, after the pass
            if self.order is not None and len(hidden) != len(lengths):
                raise RuntimeError(
                    f"a forward of the pass had {len(hidden)} of {len(lengths)} responses, not all at once: {VERSION_HELP}"
                )
            # The state at position t predicts token t + 1.
            hidden = hidden.detach()[:, -self.mask.shape[1] - 1 : -1].to(self.mask.device)
            self.stream.add(
                hidden if self.order is None else hidden[self.order],
                mask=self.mask[rows],
                tokens=self.tokens[rows],
                token_count=sum(lengths[rows]),
            )

        handle = backbone.register_forward_hook(keep)
        try:
            yield
        finally:
            handle.remove()
        if seen != len(lengths):
            raise RuntimeError(
                f"the hook on {type(backbone).__name__} got {seen} of {len(lengths)} responses: {VERSION_HELP}"
            )

    def keep(self, logps: Tensor, entropy: Tensor | None) -> None:
        """Keep the pass's log-probs and entropies."""
        place = slice(None) if self.order is None else self.order
        self.logps = logps.detach()[place]
        self.entropy = None if entropy is None else entropy.detach()[place]
