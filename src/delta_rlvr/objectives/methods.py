"""Every method of the paper by name: a token weighting, a surrogate and an average, and nothing else."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, fields, replace

from delta_rlvr.credit.config import DeltaConfig
from delta_rlvr.credit.weighting import Entropy, ForkingTokens, Surprise, Uniform, Weighting
from delta_rlvr.objectives.aggregate import Aggregation
from delta_rlvr.objectives.surrogates import Clip, FutureClip, SoftGate, Surrogate


@dataclass(frozen=True)
class Method:
    """What tells one training method from another, everything else being equal."""

    name: str
    about: str
    """One line for `--help` and the report."""
    paper: str
    """Where the paper has it."""
    weighting: Weighting = field(default_factory=Uniform)
    """Token weights, fixed once a rollout batch."""
    surrogate: Surrogate = field(default_factory=Clip)
    """The token loss."""
    aggregation: Aggregation = "token_mean"
    """How token losses are averaged."""

    @property
    def delta(self) -> DeltaConfig | None:
        """The DelTA settings, for the methods that have some."""
        return self.weighting if isinstance(self.weighting, DeltaConfig) else None

    def with_delta(self, **changes: object) -> Method:
        """The same method with other coefficient settings (a wider range, more refinements, ...)."""
        settings = {setting.name for setting in fields(self.weighting)}
        if "lambda_min" not in settings and changes:
            raise ValueError(f"method {self.name!r} has no token coefficients to set: {', '.join(changes)}")
        unknown = changes.keys() - settings
        if unknown:
            raise ValueError(
                f"method {self.name!r} has no setting {', '.join(sorted(unknown))} (it has: {', '.join(sorted(settings))})"
            )
        return replace(self, weighting=replace(self.weighting, **changes))  # type: ignore[arg-type]


def _delta(name: str, about: str, paper: str, **settings: object) -> Method:
    return Method(name, about, paper, DeltaConfig(**settings))  # type: ignore[arg-type]


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "grpo",
            "mean over responses, symmetric clip",
            "App. J",
            Uniform(),
            Clip(0.2, 0.2),
            "sequence_mean",
        ),
        Method("dapo", "mean over tokens, clip-higher", "App. J, Table 1"),
        Method("dapo-ft", "DAPO on the 20 % most uncertain tokens", "App. J, Table 1", ForkingTokens()),
        Method(
            "sapo",
            "soft gate in the place of the clip",
            "App. J, Table 1",
            Uniform(),
            SoftGate(),
            "sequence_mean",
        ),
        Method("fipo", "advantages scaled by the future shift", "App. J, Table 1", Uniform(), FutureClip()),
        Method("surprise", "tokens count by 1 - p of the sampled one", "beyond", Surprise()),
        Method("entropy", "tokens count by 1 - exp(-entropy)", "beyond", Entropy()),
        _delta("delta", "DelTA as published: output-row proxy, range [0.8, 1.2], K = 1", "Table 1"),
        _delta("delta-topk", "DelTA with the top-K hidden gradient", "Table 4", proxy="topk_hidden"),
        _delta("delta-head", "DelTA with the exact head gradient", "beyond", proxy="head"),
        _delta("delta-group", "DelTA with one pair of centroids a prompt", "beyond", scope="group"),
        _delta(
            "delta-context",
            "gradients along what tells the sides apart, either way (K = 0)",
            "beyond",
            contrast="alignment",
            refinements=0,
        ),
        _delta(
            "delta-sharpness",
            "delta-context with (log p + H) h in the place of (1 - p) h",
            "beyond",
            contrast="alignment",
            refinements=0,
            proxy="sharpness",
        ),
        _delta("delta-wide", "DelTA with the range [0.5, 1.5]", "Table 11", lambda_min=0.5, lambda_max=1.5),
        _delta("delta-within-side", "distances to the own centroid alone", "Table 2", contrast="within_side"),
        _delta("delta-fixed-gamma", "temperatures fixed to the first distance", "Table 3", gamma="initial"),
        _delta("delta-hard", "hard 0/1 assignment", "Table 3", assignment="hard"),
        _delta("delta-no-norm", "coefficients not normalised to mean one", "Table 3", normalize=False),
        _delta("delta-no-range", "alpha itself as the weight", "Table 3", range_map=False),
        _delta("delta-no-refinement", "initial centroids (K = 0)", "Table 3", refinements=0),
        _delta("delta-random", "random coefficients in the same range", "Table 4", source="random"),
        _delta(
            "delta-top50", "DAPO on the half of the tokens with the largest lambda", "Fig. 3-4", keep="top"
        ),
        _delta("delta-random50", "DAPO on a random half of the tokens", "Fig. 3-4", keep="random"),
        _delta("delta-bottom50", "DAPO on the half with the smallest lambda", "Fig. 3-4", keep="bottom"),
    )
}


def get_method(name: str) -> Method:
    """A method by its name."""
    if name not in METHODS:
        close = difflib.get_close_matches(name, METHODS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown method {name!r}{hint} (there are: {', '.join(METHODS)})")
    return METHODS[name]
