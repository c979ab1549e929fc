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
    """Where each response stands in the pass, if that has them in another order."""
    logps: Float[Tensor, "batch time"] | None = None
    entropy: Float[Tensor, "batch time"] | None = None
    seen: int | None = None
    """Responses that the hook has seen; None where no hook was set."""

    @contextlib.contextmanager
    def hook(self, backbone: Any) -> Iterator[None]:
        """While open, every forward of the backbone adds its hidden states to the stream, row after row."""
        self.seen = 0

        def keep(module: Any, arguments: Any, output: Any) -> None:
            hidden = output.last_hidden_state if hasattr(output, "last_hidden_state") else output[0]
            rows = slice(self.seen, self.seen + len(hidden))
            self.seen += len(hidden)
            # The state at position t predicts token t + 1.
            hidden = hidden.detach()[:, -self.mask.shape[1] - 1 : -1].to(self.mask.device)
            self.stream.add(
                hidden if self.order is None else hidden[self.order],
                mask=self.mask[rows],
                tokens=self.tokens[rows],
            )

        handle = backbone.register_forward_hook(keep)
        try:
            yield
        finally:
            handle.remove()

    def without_hidden(self) -> None:
        """The responses, for rules that read no hidden state."""
        self.stream.add(None, mask=self.mask, tokens=self.tokens)

    def keep(self, logps: Tensor, entropy: Tensor | None) -> None:
        """What the pass gave of each token. It must have shown every response to the hook by now."""
        if self.seen is not None and self.seen != len(self.mask):
            raise RuntimeError(
                f"the pass showed {self.seen} of {len(self.mask)} responses to the hook on the backbone: {VERSION_HELP}"
            )
        place = slice(None) if self.order is None else self.order
        self.logps = logps.detach()[place]
        self.entropy = None if entropy is None else entropy.detach()[place]
