"""A rule as somebody outside the package writes it."""

from dataclasses import dataclass

from delta_rlvr import TokenRule, register


@register("early", about="the first tokens of a response count more", share=0.25)
@dataclass(frozen=True)
class FirstHalf(TokenRule):
    """Only the first tokens of a response count."""

    share: float = 0.5
    """The share of a response that counts."""

    def weigh(self, batch):
        return (batch.position < self.share * batch.lengths[batch.row]).float()
