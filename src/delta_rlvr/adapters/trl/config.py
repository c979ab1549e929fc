"""TRL's GRPOConfig with a method. All other options keep TRL's names, meanings and defaults."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, fields

from trl import GRPOConfig

from delta_rlvr.adapters.engines import TRL, check_engine
from delta_rlvr.bounds import COUNT, HOTTEST, MOST, Bounds, check_bounds
from delta_rlvr.objectives import Method, Surrogate, get_method
from delta_rlvr.words import comma_list

LOSSES = ("dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "luspo", "vespo")
"""TRL's losses: in each of them a token's loss is proportional to its advantage, so that weights can multiply advantages."""

_BOUNDS = (
    "max_grad_norm",
    "delta",
    "epsilon_high",
    "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_cap",
)
"""Options for which infinity means "no bound"."""

_RANGES = {
    **dict.fromkeys(("per_device_train_batch_size", "num_generations", "steps_per_generation"), COUNT),
    **dict.fromkeys(("generation_batch_size", "gradient_accumulation_steps", "num_iterations"), COUNT),
    "max_completion_length": COUNT,
    "max_steps": Bounds(-1, MOST),
    "num_train_epochs": Bounds(0, MOST),
    **dict.fromkeys(("rollouts_every", "rollout_groups", "store_device_gb", "store_host_gb", "top_k"), Bounds()),
    **dict.fromkeys(("learning_rate", "epsilon", "epsilon_high", "max_grad_norm", "beta", "weight_decay"), Bounds()),
    "temperature": Bounds(0, HOTTEST),
    **dict.fromkeys(("top_p", "min_p"), Bounds(0, 1)),
    "seed": Bounds(0, 2**32 - 1),
}
"""What each may be; TRL and transformers find out late, or never."""
SCALES = ("group", "batch", "none")

_OWN_LOSS = {"token_mean": "dapo", "sequence_mean": "grpo"}


@dataclass
class DeltaTrainerConfig(GRPOConfig):
    """A `GRPOConfig` for `DeltaTrainer`. (TRL's option `delta`, its two-sided clip, keeps its meaning.)"""

    method: str = field(
        default="delta",
        metadata={
            "help": "Training method, with settings after '?': 'delta?lambda_min=0.5&lambda_max=1.5' (`delta-rlvr methods` lists "
            "them), or your own rule: my_rules.py:MyRule or my_package.rules:MyRule. In Python also a rule object."
        },
    )
    show_methods: str = field(
        default="delta,delta-group,delta-within-side,dapo-ft",
        metadata={
            "help": "Other methods, with commas, whose weights the token view shows, too. Those that need hidden states which the "
            "method does not store are left out."
        },
    )
    logps_from: str = field(
        default="policy",
        metadata={
            "help": "Source of log-probs for rules that need them: policy (a forward pass), or sampler (vLLM or a rollout_func "
            "returns them with the samples: no pass, but the sampler's numerics)."
        },
    )
    equal_work: bool = field(
        default=False,
        metadata={
            "help": "Run the old-log-prob pass also for methods that do not need it, so that the seconds of methods can be compared."
        },
    )
    store_device_gb: float | None = field(
        default=None, metadata={"help": "Memory for proxies on the accelerator, in GB (default: half of what is free)."}
    )
    store_host_gb: float | None = field(
        default=None, metadata={"help": "Pinned host memory for proxies, in GB (default: half of what is free)."}
    )
    run_folder: bool = field(
        default=False,
        metadata={
            "help": "In a script: write a run folder for `delta-rlvr report` to output_dir (metrics, sampled rollouts, token sums, "
            "model and card). `delta-rlvr train` always does."
        },
    )
    rollouts_every: int = field(
        default=10, metadata={"help": "Steps between those whose rollouts go into the run folder (0: none)."}
    )
    rollout_groups: int = field(default=4, metadata={"help": "Prompts per step whose rollouts are written (0: all)."})
    all_credit_metrics: bool = field(
        default=False,
        metadata={
            "help": "Send all metrics of the weights to the console and the trackers, not only the six most telling ones. The run "
            "folder always has all of them."
        },
    )
    stop_if_not_finite: bool = field(
        default=True,
        metadata={
            "help": "Stop when loss, gradient or weights are NaN or infinite, before a checkpoint is saved (false: only warn)."
        },
    )
    # transformers would replace a loss that is NaN in the log by the mean of other steps.
    logging_nan_inf_filter: bool = field(default=False, metadata={"help": "Hide a loss that is not finite."})
    # None means the method's own value, so that a given value differs from the default.
    loss_type: str | None = field(  # type: ignore[assignment]
        default=None, metadata={"help": "TRL's loss type. Default: that of the method (dapo, grpo or sapo)."}
    )
    epsilon: float | None = field(  # type: ignore[assignment]
        default=None,
        metadata={
            "help": "Lower bound of the clip, and without epsilon_high also the upper one. Default: the method's clip (0.2 below and "
            "0.28 above; grpo has 0.2 for both)."
        },
    )

    def __post_init__(self) -> None:
        self.taken_up = False  # set by the DeltaTrainer that gets this config
        # A rule object is kept; files get its spec.
        self._method = get_method(self.method)
        self.method = self._method.name
        check_engine(self._method, TRL)
        for name in self.shown_methods:
            check_engine(get_method(name), TRL)
        surrogate = self._method.surrogate
        own = "sapo" if surrogate.kind == "soft_gate" else _OWN_LOSS[self._method.aggregation]
        if self.loss_type is None:
            self.loss_type = own
        elif self.loss_type not in LOSSES:
            raise ValueError(f"loss_type={self.loss_type!r}: choose one of {', '.join(LOSSES)}")
        elif self.loss_type != own and (own != "dapo" or surrogate.reweighs):
            raise ValueError(
                f"loss_type={self.loss_type!r}: method {self.method!r} is defined with {own!r}; leave it out"
            )
        self._set_clip(surrogate)
        if surrogate.dual is not None and self.delta is None:
            # TRL's two-sided clip is the dual clip: min(r, c) A where A < 0, without effect where A > 0.
            self.delta = surrogate.dual
        if self.logps_from not in ("policy", "sampler"):
            raise ValueError(f"logps_from={self.logps_from!r}: choose policy or sampler")
        for one in fields(self):
            value = getattr(self, one.name)
            bound = one.name in _BOUNDS and value == math.inf
            if isinstance(value, float) and not math.isfinite(value) and not bound:
                raise ValueError(f"{one.name}={value}: give a finite number")
        check_bounds(self, _RANGES)
        if not self.top_p > 0:
            raise ValueError(f"top_p={self.top_p}: give a number above 0")
        if self.save_steps <= 0:
            raise ValueError(
                f"save_steps={self.save_steps}: give a positive number (save_strategy='no': no checkpoints)"
            )
        self._sized = self.generation_batch_size is not None  # the size of a rollout batch was given itself
        try:
            super().__post_init__()
        except ValueError as error:
            if problem := self._group_problem():
                raise ValueError(problem) from error
            raise
        if self.scale_rewards not in SCALES:
            raise ValueError(f"scale_rewards={self.scale_rewards!r}: choose one of {', '.join(SCALES)}")
        if self.deepspeed_plugin is not None:
            # DeepSpeed clips gradients itself, and only if its config has the norm.
            self.deepspeed_plugin.deepspeed_config.setdefault("gradient_clipping", self.max_grad_norm)

    def get_warmup_steps(self, num_training_steps: int) -> int:
        # Every trainer calls this at the start of training: one that is not a DeltaTrainer would ignore `method`.
        if not self.taken_up:
            warnings.warn(
                f"this DeltaTrainerConfig was not passed to a DeltaTrainer, so that method={self.method!r} and the other settings of "
                "delta_rlvr have no effect. Use DeltaTrainer instead of GRPOTrainer",
                stacklevel=2,
            )
        return super().get_warmup_steps(num_training_steps)

    def _group_problem(self) -> str | None:
        """Return why the responses of a rollout batch cannot be divided into groups, with options that would work, or None."""
        responses, group = self.generation_batch_size, self.num_generations
        if not responses or not group or group < 2 or responses % group == 0:
            return None
        passes = responses // self.per_device_train_batch_size
        size = "generation_batch_size" if self._sized else "per_device_train_batch_size"
        unit = group if self._sized else group // math.gcd(group, passes)
        now = getattr(self, size)
        fits = max(1, round(now / unit)) * unit
        made = f"per_device_train_batch_size {self.per_device_train_batch_size} x {passes} passes"
        nearest = min((n for n in range(2, responses + 1) if responses % n == 0), key=lambda n: (abs(n - group), -n))
        return (
            f"num_generations {group}: the {responses} responses of a rollout batch ({made}) cannot be divided into groups of {group}; "
            f"set num_generations to {nearest}, or {size} to {fits}"
        )

    def smaller_batch(self, prompts: int) -> dict[str, int]:
        """Return options for the largest rollout batch with at most so many prompts, or {} if even the smallest has more."""
        assert self.generation_batch_size is not None
        assert self.num_generations is not None
        group, at_once = self.num_generations, self.per_device_train_batch_size * self.world_size
        if self._sized:
            unit = math.lcm(group, at_once)
            return {"generation_batch_size": fits} if (fits := prompts * group // unit * unit) else {}
        passes = self.generation_batch_size // self.per_device_train_batch_size
        unit = group // math.gcd(group, passes)
        if fits := prompts * group // (passes * unit) * unit:
            return {"per_device_train_batch_size": fits}
        # With these passes there are more groups than prompts: use one pass with one group per process.
        smallest = {"steps_per_generation": 1, "per_device_train_batch_size": group}
        return smallest if prompts >= self.world_size else {}

    def _set_clip(self, surrogate: Surrogate) -> None:
        """Set the method's clip unless one is given. A given epsilon without epsilon_high is a symmetric clip, as in TRL."""
        if self.epsilon is not None:
            return
        self.epsilon = GRPOConfig.epsilon if surrogate.low is None else surrogate.low
        # With cispo epsilon_high is the largest ratio.
        if self.epsilon_high is None and surrogate.high != surrogate.low and self.loss_type != "cispo":
            self.epsilon_high = surrogate.high

    @property
    def resolved_method(self) -> Method:
        """The `Method` of the spec in `method`."""
        return self._method

    @property
    def shown_methods(self) -> tuple[str, ...]:
        """The names of `show_methods`."""
        return tuple(comma_list(self.show_methods))

    @property
    def updates_per_batch(self) -> float:
        """The number of optimizer steps per rollout batch (less than one if several batches are accumulated)."""
        assert self.steps_per_generation is not None
        return self.steps_per_generation * self.num_iterations / self.gradient_accumulation_steps

    @property
    def prompts_per_batch(self) -> int:
        """The number of prompts of a rollout batch, over all ranks."""
        assert self.generation_batch_size is not None
        assert self.num_generations is not None
        return self.generation_batch_size // self.num_generations
