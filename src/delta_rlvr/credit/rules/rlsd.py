"""RLSD (arXiv 2604.03128): a token counts by what the same policy thinks of it once it knows the solution.

    Delta = log p(y | prompt with the solution) - log p(y | prompt)                     (13)
    w = exp(sign(A) Delta)                                                              (14)
    weight = 1 - lam + lam clip(w, 1 - epsilon, 1 + epsilon)                            (15; lam: Algorithm 1, line 17)

Where this differs from the paper or the authors' code (github.com/iie-ycx/RLSD):
- Eq. 16 takes the minimum of clipped and unclipped weight and has no policy ratio. The code clips w on both sides and leaves the usual
  ratio clip to the loss; so does this.
- lam decays to 0 over the first 50 steps in the paper (60 in the launch script). A rule does not know the step: lam is a setting.
- log p(y | prompt) is the old policy's (the code: the current policy's). Which policy sees the solution is the engine's to say (paper:
  the current one; launch script: a copy that is renewed every 20 steps), and so is what the prompt tells of it (the code: the answer).
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.checks import require
from delta_rlvr.credit.rule import TokenRule, register


@register(
    "rlsd",
    about="tokens count by how much likelier the solution in the prompt makes them",
    paper="arXiv 2604.03128",
)
@dataclass(frozen=True)
class SelfDistillation(TokenRule):
    """Tokens that the solution in the prompt makes likelier count more in right responses and less in wrong ones."""

    lam: float = 0.5
    """How much of the weight is this rule's (lambda); 0 is plain DAPO."""
    epsilon: float = 0.2
    """The ratio of the two probabilities is clipped to 1 - epsilon and 1 + epsilon."""

    needs = ("logps", "informed_logps")
    sees_slices = True

    def __post_init__(self) -> None:
        require(0 <= self.lam <= 1, f"lam={self.lam}: give a number from 0 to 1")
        require(0 <= self.epsilon <= 1, f"epsilon={self.epsilon}: give a number from 0 to 1")

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        ratio = (batch.side * (batch.informed_logps - batch.logps)).exp()
        return 1 - self.lam + self.lam * ratio.clamp(1 - self.epsilon, 1 + self.epsilon)
