"""Token weights on the controller, from the log-probs, entropies, tokens and groups in verl's advantage step.

No worker takes part, so that this works with every strategy and mode. verl's loss multiplies tokens by the weights as its
`rollout_is_weights`. docs/verl.md (*Whose log-probs*) says from which policy the log-probs are.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from delta_rlvr.adapters.metrics import tracked
from delta_rlvr.adapters.verl.internals.fields import asked, nested, packed, response_lengths
from delta_rlvr.adapters.verl.settings import DETAIL, WEIGHTS, VerlSettings
from delta_rlvr.credit import CreditStream
from delta_rlvr.objectives import rewarded_alike

CORRECTION = "rollout_is_weights"
"""verl's multiplier of each token's loss."""
SOURCES = {"logps": "old_log_probs", "entropy": "entropy", "tokens": "responses"}
"""The needs of a rule that have one value per token, and their fields."""


def fields_for(settings: VerlSettings) -> list[str]:
    """Return the fields that `weigh` reads in addition to verl's correction and the rewards."""
    needed = [field for need, field in SOURCES.items() if need in settings.method.rule.needs]
    return ["uid", "index", "session_id", "response_mask", "advantages", *needed]


def weigh(
    settings: VerlSettings, data: TensorDict, *, temperature: float, round_number: int, detail: bool
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Return nested fields of the batch, and metrics. The fields are the weights, verl's correction times the weights, and with
    `detail` the arrays of `DETAIL`."""
    began = time.perf_counter()
    rule = settings.method.rule
    lengths = response_lengths(data)
    mask = packed(data, "response_mask").bool()
    responses: dict[str, Any] = {**asked(data)}
    # A group of equal rewards has no side: verl's advantages are rounding errors there, which only the loss uses.
    alike = rewarded_alike(responses.pop("rewards"), responses["groups"].unique(return_inverse=True)[1])
    responses["advantages"] = responses["advantages"].masked_fill(alike, 0.0)
    row = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    arrays: dict[str, Any] = {need: packed(data, field)[mask] for need, field in SOURCES.items() if need in rule.needs}
    stream = CreditStream(rule, temperature=temperature)
    stream.add(None, lengths=torch.bincount(row[mask], minlength=len(lengths)), **arrays)
    record = stream.solve(**responses, round_number=round_number)
    seconds = time.perf_counter() - began
    if detail:
        record = stream.solve(**responses, round_number=round_number, diagnose=True)
    whole = {
        WEIGHTS: record.weights,
        **({field: getattr(record, name) for name, field in DETAIL.items()} if detail else {}),
    }
    fields = {name: _laid_out(values, mask) for name, values in whole.items() if values is not None}
    correction = packed(data, CORRECTION) if CORRECTION in data else torch.ones(len(mask))
    fields[CORRECTION] = fields[WEIGHTS] * correction
    metrics = tracked({**record.summary(), "seconds_solve": seconds})
    return {name: nested(values, lengths) for name, values in fields.items()}, metrics


def _laid_out(values: Tensor, mask: Tensor) -> Tensor:
    laid_out = torch.zeros(len(mask), dtype=values.dtype)
    laid_out[mask] = values
    return laid_out
