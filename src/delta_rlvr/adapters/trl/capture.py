"""What a forward pass that the engine runs anyway shows of a rollout batch, kept until the weights are solved for."""

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
    """A rollout batch of this rank, its responses in the order in which they were generated."""

    stream: CreditStream
    mask: Bool[Tensor, "batch time"]
    """Valid response tokens."""
    tokens: Int[Tensor, "batch time"]
    """Sampled ids."""
    order: Int[Tensor, " batch"] | None = None
    """Where each response stands in the pass, if that has them in another order (and all of them in one forward)."""
    logps: Float[Tensor, "batch time"] | None = None
    entropy: Float[Tensor, "batch time"] | None = None

    @contextlib.contextmanager
    def opened(self, backbone: Any) -> Iterator[None]:
        """While open, the backbone's forwards add their hidden states to the stream; a stream that needs none gets the tokens alone."""
        if not self.stream.needs_hidden:
            self.stream.add(None, mask=self.mask, tokens=self.tokens)
            yield
            return
        lengths = self.mask.sum(1).tolist()  # one wait for the device here, and none while the pass runs
        seen = 0

        def keep(module: Any, arguments: Any, output: Any) -> None:
            nonlocal seen
            hidden = output.last_hidden_state if hasattr(output, "last_hidden_state") else output[0]
            rows = slice(seen, seen + len(hidden))
            seen += len(hidden)
            if seen > len(lengths):
                return  # refused below, once the pass is over
            if self.order is not None and len(hidden) != len(lengths):
                raise RuntimeError(
                    f"a forward of the pass showed {len(hidden)} of {len(lengths)} responses, not all at once: {VERSION_HELP}"
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
                f"the pass showed {seen} of {len(lengths)} responses to the hook on {type(backbone).__name__}: {VERSION_HELP}"
            )

    def keep(self, logps: Tensor, entropy: Tensor | None) -> None:
        """What the pass gave of each token."""
        place = slice(None) if self.order is None else self.order
        self.logps = logps.detach()[place]
        self.entropy = None if entropy is None else entropy.detach()[place]
