"""verl's loss with each token multiplied by its weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from delta_rlvr.adapters.verl.settings import WEIGHTS, VerlSettings


def weighted_loss(
    stock: Callable[..., tuple[Tensor, dict[str, Any]]],
    settings: VerlSettings,
    model_output: Mapping[str, Tensor],
    data: TensorDict,
    dp_group: Any = None,
) -> tuple[Tensor, dict[str, Any]]:
    """Return verl's loss of a micro-batch with token weights. Clip, dual clip, averages, KL and entropy are verl's."""
    weights = _weights(settings, model_output, data)
    if weights is None:
        return stock(model_output=model_output, data=data, dp_group=dp_group)
    multipliers = weights
    if "rollout_is_weights" in data:  # verl's own correction for the rollout engine
        correction = data["rollout_is_weights"].unbind()
        multipliers = [ours * theirs for ours, theirs in zip(weights, correction, strict=True)]
    weighed = data.copy()
    weighed["rollout_is_weights"] = torch.nested.as_nested_tensor(multipliers, layout=torch.jagged)
    loss, metrics = stock(model_output=model_output, data=weighed, dp_group=dp_group)
    return loss, {**metrics, **_seen(weights, data)}


def _weights(settings: VerlSettings, model_output: Mapping[str, Tensor], data: TensorDict) -> list[Tensor] | None:
    """Return the weights of each response's tokens, or None for a method without weights."""
    if settings.weighs:
        if WEIGHTS not in data:
            raise RuntimeError(f"the batch has no {WEIGHTS}: they were lost between the solve and the update")
        return list(data[WEIGHTS].unbind())
    if settings.method.surrogate.reweighs:
        return _weights_at_current_policy(settings, model_output, data)
    return None


def _weights_at_current_policy(
    settings: VerlSettings, model_output: Mapping[str, Tensor], data: TensorDict
) -> list[Tensor]:
    """Return the surrogate's weights. They are not negative, so that scaling the loss is the same as scaling the advantage."""
    padded = data.select("response_mask", "old_log_probs", "advantages").to_padded_tensor()
    logps = no_padding_2_padding(model_output["log_probs"], data)
    weights = settings.method.surrogate.reweigh(
        logps.detach() - padded["old_log_probs"], padded["advantages"], padded["response_mask"].bool()
    )
    lengths = [len(row) for row in data["response_mask"].unbind()]
    return [row[:length] for row, length in zip(weights, lengths, strict=True)]


def _seen(weights: list[Tensor], data: TensorDict) -> dict[str, Metric]:
    """Return metrics of the weights that the loss really uses."""
    mask = torch.cat([row.bool() for row in data["response_mask"].unbind()])
    values = torch.cat(weights).to(mask.device)
    tokens = (data["batch_num_tokens"] or int(mask.sum())) / data["dp_size"]
    seen = {"mean": values, "away_from_one": (values - 1).abs()}
    return {
        f"actor/credit_weight_{name}": Metric(
            value=float(torch.where(mask, part, 0.0).sum() / tokens), aggregation=AggregationType.SUM
        )
        for name, part in seen.items()
    }
