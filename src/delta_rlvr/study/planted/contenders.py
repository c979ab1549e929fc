"""Whose token weights are compared on the same rollouts: methods by name with any settings, oracles, and FIPO a step later.

Everything is read as Appendix E's rho at theta_old, the weight in sum rho A grad log pi: a mean over responses is the weight
N / (R |o_i|), and surrogates that differ only away from theta_old (clips, SAPO's gate) do not differ here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from urllib.parse import parse_qsl

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit import CreditStream, DeltaConfig, ResponseMean, Uniform, Weighting
from delta_rlvr.objectives import METHODS, FutureClip, Method, SoftGate
from delta_rlvr.study.arms import ORACLES, Oracle, get_arm, oracle_weights
from delta_rlvr.study.rollouts import Rollouts

PROXIES = ("output_row", "topk_hidden", "head")
SCOPES = ("batch", "group")


@dataclass(frozen=True)
class Contender:
    """One token weight."""

    name: str
    """A method's or an oracle's name, settings after "?" as in "delta?proxy=head&scope=group&refinements=0"."""
    method: Method
    """Everything but an oracle's weights."""
    oracle: Oracle | None = None

    @property
    def later(self) -> bool:
        """Whether the weight is one at theta_old and tells tokens apart only after a step (FIPO)."""
        return isinstance(self.method.surrogate, FutureClip)

    @property
    def weighting(self) -> Weighting:
        """The rule that gives rho, the mean over responses included."""
        if self.method.aggregation == "sequence_mean" and isinstance(self.method.weighting, Uniform):
            return ResponseMean()
        return self.method.weighting


def get_contender(spec: str) -> Contender:
    """A contender by its name, which is read as a study reads its arms."""
    arm = get_arm(spec)
    if isinstance(arm, Oracle):
        return Contender(spec, arm.method, arm)
    method = arm.method
    if isinstance(method.surrogate, SoftGate):
        raise ValueError(
            f"{spec} has no weight of its own here: at theta_old its gate has slope one, so that it is grpo"
        )
    if method.delta is not None and method.delta.proxy == "full":
        raise ValueError(f"{spec}: full gradients are the yardstick of proxy_agreement.json, not a contender")
    return Contender(spec, method)


def grid(refinements: Iterable[int] = (0, 1)) -> list[str]:
    """DelTA with every proxy and scope."""
    return [
        f"delta?proxy={proxy}&scope={scope}&refinements={number}"
        for proxy, scope, number in product(PROXIES, SCOPES, refinements)
    ]


def every_contender() -> list[str]:
    """Every method whose weight differs at theta_old (or a step later), the grid, and the oracles, each weighting once."""
    found: dict[object, str] = {}
    for spec in (*METHODS, *grid(), *ORACLES):
        if spec in METHODS and isinstance(METHODS[spec].surrogate, SoftGate):
            continue
        contender = get_contender(spec)
        found.setdefault(contender.oracle or (contender.weighting, contender.later), spec)
    return list(found.values())


class Weigher:
    """The weights of many contenders on one rollout batch; what waits in a store is captured once."""

    def __init__(
        self,
        rollouts: Rollouts,
        head: Float[Tensor, "vocab width"],
        *,
        number: int,
        temperature: float = 1.0,
    ):
        self.rollouts, self.head = rollouts, head
        self.number, self.temperature = number, temperature
        self._streams: dict[str, CreditStream] = {}

    def weights(
        self, contender: Contender, advantages: Float[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time"]:
        """rho of every token, 0 at padding. `advantages` are those of other rewards for the same responses."""
        rollouts = self.rollouts if advantages is None else replace(self.rollouts, advantages=advantages)
        if contender.oracle is not None:
            return oracle_weights(contender.oracle, rollouts)
        if contender.later:
            raise ValueError(
                f"{contender.name} depends on the updated policy: see `updates.weights_after_a_step`"
            )
        record = self._stream(contender.weighting).solve(
            rollouts.advantages,
            groups=rollouts.groups,
            keys=torch.arange(len(rollouts.rewards), device=rollouts.mask.device),
            round_number=self.number,
            config=contender.weighting,
        )
        return record.padded(record.weights, rollouts.mask)

    def _stream(self, weighting: Weighting) -> CreditStream:
        """A stream whose stored rows the rule can be read from."""
        delta = weighting if isinstance(weighting, DeltaConfig) else DeltaConfig()
        if delta.stored_rows not in self._streams:
            # The exact head reads plain hidden states and makes the stream keep the head's weight: all other rules fit in.
            capture = delta if delta.proxy == "topk_hidden" else DeltaConfig(proxy="head")
            stream = CreditStream(capture, head=self.head, temperature=self.temperature)
            found = self.rollouts
            stream.add(
                found.hidden, found.logps, found.mask, tokens=found.completion_ids, entropy=found.entropy
            )
            self._streams[delta.stored_rows] = stream
        return self._streams[delta.stored_rows]


def label(name: str) -> str:
    """A contender's name as tables show it."""
    base, _, query = name.partition("?")
    if not query:
        return base
    short = {"refinements": "K"}
    return (
        base
        + " "
        + " ".join(
            value if key in ("proxy", "scope") else f"{short.get(key, key)}={value}"
            for key, value in parse_qsl(query)
        )
    )
