"""The ways in which verl can hold a model, each once: the core's coefficients, and a step that trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from rounding import MODEL, rounding
from verl_reference import (
    WEIGHTS,
    Plain,
    core_weights,
    plain_pass,
    started_workers,
    update,
    worker_config,
    worker_weights,
)

FSDP1 = ("actor_rollout_ref.actor.strategy=fsdp", "actor_rollout_ref.actor.fsdp_config.strategy=fsdp")
OFFLOAD = (
    "actor_rollout_ref.actor.fsdp_config.param_offload=True",
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True",
)
LORA = ("actor_rollout_ref.model.lora_rank=4", "actor_rollout_ref.model.lora_alpha=8")


@pytest.fixture(scope="module")
def group(ray_session: None) -> Iterator[Any]:
    yield from started_workers("actor_rollout_ref.actor.optim.lr=1e-3")


@pytest.fixture(scope="module")
def batch(ray_session: None) -> Any:
    from verl_workers import make_batch

    return make_batch(vocabulary=585)


@pytest.fixture(scope="module")
def plain(batch: Any) -> Plain:
    return plain_pass(batch)


def engine(group: Any, *overrides: str) -> None:
    """The bundled policy afresh, held in this way."""
    group.rebuild(worker_config("actor_rollout_ref.actor.optim.lr=1e-3", *overrides))


def response_logps(group: Any, batch: Any, **settings: Any) -> torch.Tensor:
    """Old log-probs of the response tokens, padded."""
    whole = group.compute_log_prob(batch.tensordict(use_remove_padding=True, **settings))["log_probs"]
    rows = [
        row[len(prompt) - 1 : len(prompt) - 1 + len(response)]
        for row, prompt, response in zip(whole.unbind(), batch.prompts, batch.responses, strict=True)
    ]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def check_weights_and_step(group: Any, batch: Any, plain: Plain, method: str = "delta", **block: Any) -> None:
    """The core's coefficients; after one step with them, the weighted advantage of what was sampled has grown."""
    expected = core_weights(plain, method)
    weights = worker_weights(group, batch, {"method": method, **block}, use_remove_padding=True)
    torch.testing.assert_close(weights, expected, atol=WEIGHTS, rtol=0)
    metrics = update(group, batch, plain.logps, delta_weights=weights)
    assert metrics["actor/credit_weight_away_from_one"] > 0.02
    moved = torch.where(plain.mask, response_logps(group, batch) - plain.logps, 0.0)
    gain = (expected * plain.advantages[:, None] * moved).sum()
    assert gain > 100 * rounding(MODEL), gain


def test_host_memory_as_the_store(group: Any, batch: Any, plain: Plain) -> None:
    engine(group)
    group.switch({"method": "delta", "store_device_gb": 0, "store_host_gb": 0.5})
    group.compute_log_prob(batch.tensordict())
    counts = [int(plain.mask[rows].sum()) for rows in (slice(0, 4), slice(4, 8))]
    assert group.ask("store") == [f"{count} tokens: 0.0 MB in host memory" for count in counts]
    check_weights_and_step(group, batch, plain, store_device_gb=0, store_host_gb=0.5)


def test_fsdp1(group: Any, batch: Any, plain: Plain) -> None:
    engine(group, *FSDP1)
    assert group.ask("engine") == ["FullyShardedDataParallel"] * 2
    check_weights_and_step(group, batch, plain)


def test_parameter_offload(group: Any, batch: Any, plain: Plain) -> None:
    engine(group, *OFFLOAD)
    assert group.ask("offloads") == [True] * 2
    # This rule asks for the whole head as well, at a moment when the parameters are back.
    check_weights_and_step(group, batch, plain, method="delta-topk?top_k=5")


def test_lora(group: Any, batch: Any, plain: Plain) -> None:
    engine(group, *LORA)
    (trained, _) = group.ask("trained")
    assert trained
    assert all("lora" in name for name in trained)
    check_weights_and_step(group, batch, plain)
    # The reference policy is the same model with its adapters off: it has not moved, and its pass is not the one that is kept.
    own = worker_weights(group, batch, {"method": "delta"}, use_remove_padding=True)
    response_logps(group, batch)
    reference = response_logps(group, batch, no_lora_adapter=True)
    torch.testing.assert_close(
        reference[plain.mask], plain.logps[plain.mask], atol=rounding(MODEL, 10.0), rtol=0
    )
    kept = group.compute_token_weights(batch.tensordict())["delta_weights"].to_padded_tensor(0.0)
    torch.testing.assert_close(kept, own, atol=WEIGHTS, rtol=0)
    assert (kept - core_weights(plain, "delta")).abs().max() > 10 * WEIGHTS
