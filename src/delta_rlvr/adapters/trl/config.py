"""TRL's GRPOConfig with a method's name in it. Everything else keeps TRL's names, meanings and defaults."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, fields

from trl import GRPOConfig

from delta_rlvr.adapters.engines import TRL, check_engine
from delta_rlvr.bounds import COUNT, HOTTEST, MOST, Bounds, check_bounds
from delta_rlvr.objectives import Method, Surrogate, get_method

LOSSES = ("dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "luspo", "vespo")
"""TRL's losses: in each of them a token's loss is proportional to its advantage, so each takes a weight per token."""

_BOUNDS = (
    "max_grad_norm",
    "delta",
    "epsilon_high",
    "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_cap",
)
"""Options for which infinity means: no bound."""

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
    """A `GRPOConfig` for `DeltaTrainer`. (TRL's own option `delta` is its two-sided clip and keeps that meaning.)"""

    method: str = field(
        default="delta",
        metadata={
            "help": "Training method, settings after '?', as in 'delta?lambda_min=0.5&lambda_max=1.5' (`delta-rlvr methods` lists "
            "them); a rule of your own as my_rules.py:MyRule or my_package.rules:MyRule. In Python a rule object will do."
        },
    )
    show_methods: str = field(
        default="delta,delta-group,delta-within-side,dapo-ft",
        metadata={
            "help": "Methods whose weights the token view shows beside the method's own, with commas. Those that need hidden states "
            "which the method does not store are left out."
        },
    )
    logps_from: str = field(
        default="policy",
        metadata={
            "help": "Where rules that need log-probs take them from: policy (a forward pass), or sampler (those that vLLM or a "
            "rollout_func returns with the samples: no pass at all, but the sampler's numerics)."
        },
    )
    equal_work: bool = field(
        default=False,
        metadata={
            "help": "Run the old-log-prob pass for every method, needed or not, so that the seconds of two methods compare."
        },
    )
    store_device_gb: float | None = field(
        default=None, metadata={"help": "Room for proxies on the accelerator, in GB (default: half of what is free)."}
    )
    store_host_gb: float | None = field(
        default=None,
        metadata={"help": "Room for proxies in pinned host memory, in GB (default: half of what is free)."},
    )
    run_folder: bool = field(
        default=False,
        metadata={
            "help": "In a script: write the run folder into output_dir (metrics, sampled rollouts, token sums, model and card), "
            "which `delta-rlvr report` reads. `delta-rlvr train` always does."
        },
    )
    rollouts_every: int = field(
        default=10, metadata={"help": "Steps between sampled rollout dumps into the run folder (0: none)."}
    )
    rollout_groups: int = field(default=4, metadata={"help": "Prompts in a rollout dump (0: all)."})
    all_credit_metrics: bool = field(
        default=False,
        metadata={
            "help": "Send every number of the weights to the console and the trackers, not only the six that tell most. The run folder "
            "has all of them."
        },
    )
    stop_if_not_finite: bool = field(
        default=True,
        metadata={
            "help": "Stop where loss, gradient or weights are NaN or infinite, before a checkpoint of it is saved (false: go on, with "
            "a warning)."
        },
    )
    # transformers would log the mean of other steps in the place of a loss that is NaN.
    logging_nan_inf_filter: bool = field(default=False, metadata={"help": "Hide a loss that is not finite."})
    # None stands for "the method's own", so that a value somebody gave can be told from a default.
    loss_type: str | None = field(  # type: ignore[assignment]
        default=None, metadata={"help": "TRL's loss type. Default: what the method is (dapo, grpo or sapo)."}
    )
    epsilon: float | None = field(  # type: ignore[assignment]
        default=None,
        metadata={
            "help": "Lower bound of the clip, and without epsilon_high the upper one too. Default: the method's own clip (0.2, and "
            "0.28 above for all but grpo)."
        },
    )

    def __post_init__(self) -> None:
        self.taken_up = False  # a DeltaTrainer that gets this config says so here
        # A rule object is kept as it is; what is written into files is how it is spelled.
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
            # TRL's two-sided clip is the dual clip: min(r, c) A where A < 0, and no change where A > 0.
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
            # DeepSpeed clips gradients itself, and a config that does not name the norm would leave them as they are.
            self.deepspeed_plugin.deepspeed_config.setdefault("gradient_clipping", self.max_grad_norm)

    def get_warmup_steps(self, num_training_steps: int) -> int:
        # Every trainer asks this when its training begins, and so can be told that it does not know `method`.
        if not self.taken_up:
            warnings.warn(
                f"this DeltaTrainerConfig was not given to a DeltaTrainer: method={self.method!r} and its other settings of delta_rlvr "
                "do nothing, and no token is weighed. Use DeltaTrainer in the place of GRPOTrainer",
                stacklevel=2,
            )
        return super().get_warmup_steps(num_training_steps)

    def _group_problem(self) -> str | None:
        """Why the responses of a rollout batch make no whole groups, in the options that set them, with values that would do."""
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
        """Options of the largest rollout batch with so many prompts at most; empty where even the smallest one has more."""
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
        # So many passes have more groups than there are prompts: one pass per process, one group in each.
        smallest = {"steps_per_generation": 1, "per_device_train_batch_size": group}
        return smallest if prompts >= self.world_size else {}

    def _set_clip(self, surrogate: Surrogate) -> None:
        """The method's own clip where none is given; an epsilon alone is TRL's symmetric one."""
        if self.epsilon is not None:
            return
        self.epsilon = GRPOConfig.epsilon if surrogate.low is None else surrogate.low
        # With cispo epsilon_high is another thing, the largest ratio.
        if self.epsilon_high is None and surrogate.high != surrogate.low and self.loss_type != "cispo":
            self.epsilon_high = surrogate.high

    @property
    def resolved_method(self) -> Method:
        """The method that `method` spells."""
        return self._method

    @property
    def shown_methods(self) -> tuple[str, ...]:
        """The names of `show_methods`."""
        return tuple(name.strip() for name in self.show_methods.split(",") if name.strip())

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
