"""Checks of a verl config against its `delta` block. This file does not import verl: a config is nested mappings.

Every error names the setting, why it does not fit, and what to set. One launch shows all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from delta_rlvr.adapters.engines import VERL_ANY, VERL_BYPASS, VERL_FSDP, VERL_FSDP2, Engine, missing
from delta_rlvr.adapters.verl.settings import MODE, SettingsError, VerlSettings

_ACTOR = "actor_rollout_ref.actor"
_MODEL = "actor_rollout_ref.model"

# verl's policy losses that multiply each token's loss by `rollout_is_weights`. "geo_mean" takes their geometric mean over a
# response, so that its tokens get the same weight, and "bypass_mode" ignores them.
WEIGHTED_LOSSES = ("vanilla", "sapo", "gspo", "cispo", "clip_cov", "kl_cov", "dppo_tv", "dppo_kl", "gpg", "dro")
# Advantage estimators with one advantage per response.
RESPONSE_ADVANTAGES = (
    "grpo",
    "grpo_vectorized",
    "grpo_passk",
    "rloo",
    "rloo_vectorized",
    "opo",
    "gpg",
    "reinforce_plus_plus_baseline",
)
CLIP, DUAL_CLIP = 0.2, 3.0
"""verl's defaults of `clip_ratio`, `clip_ratio_low` and `clip_ratio_high`, and of `clip_ratio_c`."""
FAR_DUAL_CLIP = 10.0
"""FIPO's dual clip: for the other methods it is out of the way."""
FSDP = {"fsdp2": VERL_FSDP2, "fsdp": VERL_FSDP}
"""The strategies whose workers keep hidden states; with others only the controller's fields are available."""


def check_config(config: Mapping[str, Any], settings: VerlSettings) -> None:
    """Refuse a config in which the method would not be what its name says."""
    problems = list(config_problems(config, settings))
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise SettingsError(f"delta.method={settings.method.name} cannot run with these settings:\n{listed}")


def select(config: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """Return the value at a dotted path, or `default` if a part of it is missing or null."""
    value: Any = config
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return default if value is None else value


def config_problems(config: Mapping[str, Any], settings: VerlSettings) -> Iterator[str]:
    """Yield everything in the config that conflicts with the settings, each with a remedy."""
    if not (mode := _v1_mode(config)).startswith("delta_"):
        yield f"trainer.v1.trainer_mode={mode} would ignore the delta block; set it to delta_{mode}"
    else:
        yield from _need_problems(config, settings)
    if settings.on_worker and (rejection := select(config, "algorithm.rollout_correction.rollout_rs")):
        yield (
            f"algorithm.rollout_correction.rollout_rs={rejection} changes the response mask after hidden states were kept; "
            "set it to null"
        )
    estimator = select(config, "algorithm.adv_estimator")
    if estimator not in RESPONSE_ADVANTAGES:
        yield (
            f"algorithm.adv_estimator={estimator}: token credit needs one advantage per response; "
            f"use one of {', '.join(RESPONSE_ADVANTAGES)}"
        )
    if select(config, "distillation.enabled", False):
        yield "distillation.enabled=True replaces the policy loss that the coefficients multiply; set it to False"
    if select(config, f"{_ACTOR}.use_prefix_grouper", False):
        yield f"{_ACTOR}.use_prefix_grouper=True has a layout of tokens that is not supported; set it to False"
    yield from _loss_problems(config, settings)
    if settings.on_worker:
        yield from _parallel_problems(config, settings)


def config_remarks(config: Mapping[str, Any], settings: VerlSettings) -> Iterator[str]:
    """Yield where the loss that verl runs differs from the method's definition. It trains so, but under another clip or with a KL term
    it is not what the name says."""
    surrogate, name = settings.method.surrogate, settings.method.name
    loss_mode = select(config, f"{_ACTOR}.policy_loss.loss_mode", "vanilla")
    if surrogate.low is not None and loss_mode == "vanilla":
        both = select(config, f"{_ACTOR}.clip_ratio", CLIP)
        low, high = (select(config, f"{_ACTOR}.clip_ratio_{end}", both) for end in ("low", "high"))
        if (low, high) != (surrogate.low, surrogate.high):
            yield (
                f"the clip is {low} below and {high} above, and {name} is defined with {surrogate.low} and {surrogate.high}: "
                f"{_ACTOR}.clip_ratio_low={surrogate.low} {_ACTOR}.clip_ratio_high={surrogate.high}"
            )
        dual = select(config, f"{_ACTOR}.clip_ratio_c", DUAL_CLIP)
        if surrogate.dual is None and dual < FAR_DUAL_CLIP:
            yield (
                f"verl's dual clip is at {dual}, and {name} has none: {_ACTOR}.clip_ratio_c={FAR_DUAL_CLIP} keeps it out of the way"
            )
    for path in (f"{_ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward"):
        if select(config, path, False):
            yield f"{path}=True adds a KL term, and {name} is defined without one: set it to False for the published method"


def _need_problems(config: Mapping[str, Any], settings: VerlSettings) -> Iterator[str]:
    """Yield the method's needs that the config's settings do not allow, each with the setting and a remedy."""
    for setting, engine, remedy in _limits(config):
        for problem in missing(settings.method, engine):
            yield f"{setting}: {problem}. {remedy}"


def _v1_mode(config: Mapping[str, Any]) -> str:
    """Return the mode of the V1 trainer; for the classic trainer the mode that gives the same."""
    return select(config, "trainer.v1.trainer_mode", MODE) if select(config, "trainer.use_v1", True) else MODE


def _limits(config: Mapping[str, Any]) -> Iterator[tuple[str, Engine, str]]:
    """Yield each setting that limits what verl gives, with the limit and a remedy."""
    strategy = select(config, f"{_ACTOR}.strategy")
    engine = FSDP.get(strategy, VERL_ANY)
    yield f"{_ACTOR}.strategy={strategy}", engine, "Set it to fsdp2"
    if (mode := _v1_mode(config)) != MODE:
        yield f"trainer.v1.trainer_mode={mode}", VERL_ANY, f"Set it to {MODE}"
    if select(config, "algorithm.rollout_correction.bypass_mode", False):
        yield (
            "algorithm.rollout_correction.bypass_mode=True",
            VERL_BYPASS,
            "Set it to False: rollout_is still corrects for the rollout engine",
        )


def _loss_problems(config: Mapping[str, Any], settings: VerlSettings) -> Iterator[str]:
    method = settings.method
    loss_mode = select(config, f"{_ACTOR}.policy_loss.loss_mode", "vanilla")
    if method.surrogate.kind == "soft_gate":
        if loss_mode != "sapo":
            yield f"{_ACTOR}.policy_loss.loss_mode={loss_mode}: method {method.name} is verl's loss_mode=sapo; set that"
    elif method.rule.constant and loss_mode != "vanilla":
        yield f"{_ACTOR}.policy_loss.loss_mode={loss_mode}: method {method.name} clips; set it to vanilla"
    elif loss_mode not in WEIGHTED_LOSSES:
        yield (
            f"{_ACTOR}.policy_loss.loss_mode={loss_mode} does not weigh single tokens; "
            f"use one of {', '.join(WEIGHTED_LOSSES)}"
        )
    average = "token-mean" if method.aggregation == "token_mean" else "seq-mean-token-mean"
    given = select(config, f"{_ACTOR}.loss_agg_mode")
    if given != average:
        yield f"{_ACTOR}.loss_agg_mode={given}: method {method.name} averages by {average}; set that"
    dual_clip = select(config, f"{_ACTOR}.clip_ratio_c")
    if method.surrogate.dual is not None and dual_clip != method.surrogate.dual:
        yield (
            f"{_ACTOR}.clip_ratio_c={dual_clip}: method {method.name} has its dual clip at {method.surrogate.dual} (its setting "
            "`dual`); give both the same value"
        )


def _parallel_problems(config: Mapping[str, Any], settings: VerlSettings) -> Iterator[str]:
    method = settings.method
    sequence_parallel = select(config, f"{_ACTOR}.ulysses_sequence_parallel_size", 1)
    if sequence_parallel > 1:
        if not select(config, f"{_MODEL}.use_remove_padding", False):
            yield f"{_ACTOR}.ulysses_sequence_parallel_size={sequence_parallel} needs {_MODEL}.use_remove_padding=True"
        if not method.rule.sees_slices:
            yield (
                f"{_ACTOR}.ulysses_sequence_parallel_size={sequence_parallel}: method {method.name} needs whole responses, and with "
                "sequence parallelism a rank has only slices; set it to 1"
            )
