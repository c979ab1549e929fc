"""The hook that keeps hidden states of a forward pass which the engine runs anyway."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor

from delta_rlvr.adapters.trl.version import VERSION_HELP
from delta_rlvr.credit import CreditStream


class Capture:
    """Keeps what the old-log-prob pass knows until the advantages are there."""

    stream: CreditStream
    mask: Bool[Tensor, "batch time"]
    tokens: Int[Tensor, "batch time"]
    entropy: Float[Tensor, "batch time"] | None = None

    @contextlib.contextmanager
    def hook(self, backbone: Any) -> Iterator[None]:
        """While open, every forward of the backbone adds its hidden states to the stream, row after row."""
        done = 0

        def keep(module: Any, arguments: Any, output: Any) -> None:
            nonlocal done
            hidden = output.last_hidden_state if hasattr(output, "last_hidden_state") else output[0]
            rows = slice(done, done + len(hidden))
            done += len(hidden)
            # The state at position t predicts token t + 1.
            self.stream.add(
                hidden[:, -self.mask.shape[1] - 1 : -1], mask=self.mask[rows], tokens=self.tokens[rows]
            )

        handle = backbone.register_forward_hook(keep)
        try:
            yield
        finally:
            handle.remove()
        if done != len(self.mask):
            raise RuntimeError(
                f"the old-log-prob pass showed {done} of {len(self.mask)} responses to the hook on {type(backbone).__name__}: "
                + VERSION_HELP
            )
