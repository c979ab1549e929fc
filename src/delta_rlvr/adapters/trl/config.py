"""TRL's GRPOConfig with a method's name in it. Everything else keeps TRL's names, meanings and defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trl import GRPOConfig

from delta_rlvr.objectives import METHODS, Clip, FutureClip, Method, SoftGate, get_method

# TRL computes these per token from (batch, time) advantages, so that a token weight carries over to them as it is.
_WEIGHTABLE_LOSSES = ("dapo", "grpo", "bnpo", "dr_grpo", "cispo")


@dataclass
class DeltaTrainerConfig(GRPOConfig):
    """A `GRPOConfig` for `DeltaTrainer`. (TRL's own option `delta` is its two-sided clip and keeps that meaning.)"""

    method: str = field(default="delta", metadata={"help": f"Training method: {', '.join(METHODS)}."})
    lambda_min: float | None = field(
        default=None, metadata={"help": "Smallest token coefficient before normalisation (default: 0.8)."}
    )
    lambda_max: float | None = field(
        default=None, metadata={"help": "Largest token coefficient before normalisation (default: 1.2)."}
    )
    refinements: int | None = field(
        default=None, metadata={"help": "How often the centroids are refined, K (default: 1)."}
    )
    proxy: str | None = field(
        default=None,
        metadata={
            "help": "Token-gradient proxy: output_row, topk_hidden, head or sharpness (default: the method's)."
        },
    )
    proxy_top_k: int | None = field(
        default=None, metadata={"help": "Vocabulary entries in the topk_hidden proxy (default: 20)."}
    )
    scope: str | None = field(
        default=None, metadata={"help": "Centroids over the whole batch, or one pair a prompt: batch, group."}
    )
    contrast: str | None = field(
        default=None,
        metadata={
            "help": "What a token is compared with: both_sides, within_side or alignment (default: the method's)."
        },
    )
    own_response: str | None = field(
        default=None,
        metadata={
            "help": "A token's own response in the centroid of its side: include, leave_out (default: include)."
        },
    )
    whiten: str | None = field(
        default=None,
        metadata={"help": "Metric in which tokens are compared: none, diagonal or full (default: none)."},
    )
    store_device_gb: float | None = field(
        default=None,
        metadata={"help": "Room for proxies on the accelerator, in GB (default: half of what is free)."},
    )
    store_host_gb: float | None = field(
        default=None,
        metadata={"help": "Room for proxies in pinned host memory, in GB (default: half of what is free)."},
    )
    # None stands for "the method's own", so that a value somebody gave can be told from a default.
    loss_type: str | None = field(  # type: ignore[assignment]
        default=None, metadata={"help": "TRL's loss type. Default: what the method is (dapo, grpo or sapo)."}
    )

    def __post_init__(self) -> None:
        method = self.resolved_method
        surrogate = method.surrogate
        own = (
            "sapo"
            if isinstance(surrogate, SoftGate)
            else "grpo"
            if method.aggregation == "sequence_mean"
            else "dapo"
        )
        if self.loss_type is None:
            self.loss_type = own
        elif self.loss_type != own and (own != "dapo" or isinstance(surrogate, FutureClip)):
            raise ValueError(
                f"loss_type={self.loss_type!r}: method {self.method!r} is defined with {own!r}; leave it out"
            )
        elif self.loss_type not in _WEIGHTABLE_LOSSES and self.loss_type != own:
            raise ValueError(
                f"loss_type={self.loss_type!r} does not take a weight a token; use one of {', '.join(_WEIGHTABLE_LOSSES)}"
            )
        if (
            isinstance(surrogate, (Clip, FutureClip))
            and self.epsilon_high is None
            and surrogate.high != surrogate.low
            and self.loss_type != "cispo"  # where epsilon_high is another thing: the largest ratio
        ):
            self.epsilon_high = surrogate.high
        if isinstance(surrogate, FutureClip) and self.delta is None:
            # TRL's two-sided clip is the dual clip: min(r, c) A where A < 0, and no change where A > 0.
            self.delta = surrogate.future.dual_clip
        for name in ("store_device_gb", "store_host_gb"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name}={value}: give a size in GB, 0 or more")
        super().__post_init__()

    @property
    def resolved_method(self) -> Method:
        """The method with this config's coefficient settings in it."""
        given: dict[str, Any] = {
            "lambda_min": self.lambda_min,
            "lambda_max": self.lambda_max,
            "refinements": self.refinements,
            "proxy": self.proxy,
            "top_k": self.proxy_top_k,
            "scope": self.scope,
            "contrast": self.contrast,
            "own_response": self.own_response,
            "whiten": self.whiten,
        }
        if self.proxy == "full":
            raise ValueError(
                "proxy='full' is for analysis on tiny models, not for training: use 'head' for the closest"
            )
        return get_method(self.method).with_delta(**{k: v for k, v in given.items() if v is not None})

    @property
    def updates_per_batch(self) -> float:
        """Optimizer steps taken on one rollout batch (less than one where several batches are accumulated)."""
        assert self.steps_per_generation is not None
        return self.steps_per_generation * self.num_iterations / self.gradient_accumulation_steps

    @property
    def prompts_per_batch(self) -> int:
        """Prompts of one rollout batch, over all ranks."""
        assert self.generation_batch_size is not None
        assert self.num_generations is not None
        return self.generation_batch_size // self.num_generations
