"""Methods on rollouts that a study has collected: what they may need there, and their token weights."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from delta_evidence.rollouts import Rollouts
from delta_rlvr.credit import CreditRecord, CreditStream, TokenRule
from delta_rlvr.credit.rule import OF_A_PASS, check_needs
from delta_rlvr.objectives import Method, get_method

GIVEN = (*OF_A_PASS, "decisive", "measured")
"""What a rule may need in a study."""


def study_method(spec: str) -> Method:
    """A method by its name, settings after "?", whose rule can be given what it needs."""
    method = get_method(spec)
    check_needs(method.rule, GIVEN, "a study", spec)
    return method


@dataclass
class BatchWeigher:
    """The weights of any number of rules on one rollout batch; what waits in a store is captured once."""

    rollouts: Rollouts
    head: Float[Tensor, "vocab width"]
    number: int
    """Tells the batches of a run apart."""
    seed: int = 0
    """Tells the responses of two runs apart, as random weights and ties must."""
    _streams: dict[object, CreditStream] = field(default_factory=dict)

    def weights(
        self, rule: TokenRule, advantages: Float[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time"]:
        """The weight of every token, 0 at padding. `advantages` are those of other rewards for the same responses."""
        record = self.record(rule, advantages)
        return record.padded(record.weights, self.rollouts.mask)

    def record(
        self, rule: TokenRule, advantages: Float[Tensor, " batch"] | None = None, *, diagnose: bool = False
    ) -> CreditRecord:
        """All that the rule says of the batch; `diagnose`: with numbers about the weights (`credit.diagnostics`)."""
        count = len(self.rollouts.rewards)
        return self._stream(rule).solve(
            self.rollouts.advantages if advantages is None else advantages,
            groups=self.rollouts.groups,
            keys=torch.arange(count, device=self.rollouts.mask.device) + self.seed * count,
            round_number=self.number,
            rule=rule,
            diagnose=diagnose,
        )

    def _stream(self, rule: TokenRule) -> CreditStream:
        """A stream that stores what the rule reads."""
        if rule.stores not in self._streams:
            batch = self.rollouts
            stream = CreditStream(rule, head=self.head, temperature=batch.temperature)
            stream.add(
                batch.hidden,
                batch.logps,
                batch.mask,
                tokens=batch.completion_ids,
                entropy=batch.entropy,
                decisive=batch.decisive,
                measured=batch.measured,
            )
            self._streams[rule.stores] = stream
        return self._streams[rule.stores]
