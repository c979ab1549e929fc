"""A two-rank group of the real verl worker on CPU (gloo, FSDP2) against plain transformers and the single-process core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from delta_rlvr.credit import CreditStream, credit_record
from delta_rlvr.objectives import Clip, FutureClip, LossInputs, policy_loss
from rounding import MODEL, rounding
from verl_reference import (
    WEIGHTS,
    Plain,
    core_weights,
    nested,
    of_responses,
    padded_update,
    plain_pass,
    solved_weights,
    started_workers,
    update,
    worker_config,
    worker_weights,
)

LOSS = rounding(MODEL, size=3.0)


@pytest.fixture(scope="module")
def group(ray_session: None) -> Iterator[Any]:
    yield from started_workers("actor_rollout_ref.actor.optim.lr=0.0")


@pytest.fixture(scope="module")
def batch(ray_session: None) -> Any:
    from verl_workers import make_batch

    return make_batch(vocabulary=585)


@pytest.fixture(scope="module")
def plain(batch: Any) -> Plain:
    return plain_pass(batch)


LAYOUTS = {
    "padded": {"use_remove_padding": False},
    "packed": {"use_remove_padding": True},
    # Balanced by tokens, so that rows are reordered between micro-batches.
    "packed and reordered": {"use_remove_padding": True, "use_dynamic_bsz": True, "max_token_len_per_gpu": 40},
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_log_probs_and_coefficients_equal_plain_transformers_and_the_core(
    group: Any, batch: Any, plain: Plain, layout: dict[str, Any]
) -> None:
    group.switch({"method": "delta"})
    output = group.compute_log_prob(batch.tensordict(**layout))
    ours = of_responses(output["log_probs"], batch)
    torch.testing.assert_close(ours, plain.logps, atol=rounding(MODEL, 10.0), rtol=0)
    weights = solved_weights(group, batch.tensordict())
    torch.testing.assert_close(weights, core_weights(plain, "delta"), atol=WEIGHTS, rtol=0)
    assert weights[plain.mask].std() > 0.05  # they are coefficients, not ones
    assert not weights[~plain.mask].any()


@pytest.mark.parametrize(
    "method",
    [
        *(
            "delta-topk?top_k=5",
            "delta-head",
            "delta-group?refinements=2",
            "delta-sharpness",
            "delta-scalar",
            "dapo-ft",
        ),
        *("delta-centred", "delta?contrast=within_side", "delta-top50", "delta?lambda_min=1&lambda_max=1"),
    ],
)
def test_every_kind_of_rule_reaches_the_worker(group: Any, batch: Any, plain: Plain, method: str) -> None:
    weights = worker_weights(group, batch, {"method": method}, use_remove_padding=True)
    torch.testing.assert_close(weights, core_weights(plain, method), atol=WEIGHTS, rtol=0)


@pytest.mark.parametrize("layout", ["nested", "padded"])
@pytest.mark.parametrize("method", ["delta-scalar", "delta-scalar?scope=group", "dapo-ft", "ktae", "delta-random"])
def test_the_controllers_weights_are_the_workers(
    group: Any, batch: Any, plain: Plain, method: str, layout: str
) -> None:
    """The same batch solved for on the two ranks and on the controller, from the worker's own log-probs; verl's correction stays in."""
    from delta_rlvr.adapters.verl.internals import controller
    from delta_rlvr.adapters.verl.settings import read_settings

    settings = read_settings({"method": method})
    assert not settings.on_worker
    group.switch({"method": method})
    output = group.compute_log_prob(batch.tensordict(use_remove_padding=True))
    workers = solved_weights(group, batch.tensordict())
    correction = torch.where(plain.mask, torch.rand(plain.mask.shape), 0.0)
    fields = {
        "rollout_is_weights": correction,
        "old_log_probs": of_responses(output["log_probs"], batch),
        "entropy": of_responses(output["entropy"], batch),
    }
    data = (
        batch.padded(**fields)
        if layout == "padded"
        else batch.tensordict(**{name: nested(rows, batch) for name, rows in fields.items()})
    )
    solved, metrics = controller.weigh(settings, data, temperature=1.0, round_number=3, detail=True)
    ours = solved["delta_weights"].to_padded_tensor(0.0)
    torch.testing.assert_close(ours, workers, atol=rounding(100), rtol=0)
    multiplied = solved["rollout_is_weights"].to_padded_tensor(0.0)
    torch.testing.assert_close(multiplied, ours * correction)
    assert metrics["credit/weight_max"] == pytest.approx(float(ours.max()))


def test_the_stock_loss_multiplies_by_the_controllers_weights(group: Any, batch: Any, plain: Plain) -> None:
    """The worker's own lane puts the weights into verl's multiplier inside the loss; the controller's, into the batch."""
    weights = core_weights(plain, "delta-scalar")
    group.switch({"method": "delta-scalar"})
    worker = update(group, batch, plain.logps, delta_weights=weights)
    group.switch({"method": "dapo"})  # the stock loss
    controller = update(group, batch, plain.logps, rollout_is_weights=weights)
    without = update(group, batch, plain.logps)
    assert controller["actor/pg_loss"] == pytest.approx(worker["actor/pg_loss"], abs=rounding())
    assert abs(controller["actor/pg_loss"] - without["actor/pg_loss"]) > 1e-4


def test_a_group_of_equal_rewards_has_no_side(group: Any, batch: Any, plain: Plain) -> None:
    """Rows 0 and 2, and rows 3 and 4, which are on two ranks, were rewarded alike: 0.3 less its mean is not 0 in float32."""
    advantages = [0.03, -0.5, 0.03, 0.03, 0.03, 0.4, 0.0, 0.0]
    alike = replace(
        batch,
        advantages=advantages,
        rewards=[0.3, 0.0, 0.3, 0.3, 0.3, 1.0, 0.0, 0.0],
        uids=["a", "b", "a", "c", "c", "b", "d", "d"],
    )
    sides = torch.tensor([0.0, -0.5, 0.0, 0.0, 0.0, 0.4, 0.0, 0.0])
    expected = core_weights(replace(plain, advantages=sides), "delta")
    assert (core_weights(replace(plain, advantages=torch.tensor(advantages)), "delta") - expected).std() > WEIGHTS
    torch.testing.assert_close(worker_weights(group, alike, {"method": "delta"}), expected, atol=WEIGHTS, rtol=0)
    group.compute_log_prob(alike.padded(use_remove_padding=True))
    padded = solved_weights(group, alike.padded())
    torch.testing.assert_close(padded, expected, atol=WEIGHTS, rtol=0)


def test_random_coefficients_belong_to_the_problem_not_to_its_place(group: Any, batch: Any, plain: Plain) -> None:
    from delta_rlvr.adapters.verl.capture import stable_numbers

    weights = worker_weights(group, batch, {"method": "delta-random?seed=4"})
    keys = stable_numbers([f"{row}/0" for row in range(len(batch.prompts))])
    torch.testing.assert_close(weights, core_weights(plain, "delta-random?seed=4", keys=keys), atol=WEIGHTS, rtol=0)


def test_the_record_and_its_timing_come_back_as_metrics(group: Any, batch: Any, plain: Plain) -> None:
    from verl.utils import tensordict_utils as tu

    group.switch({"method": "delta"})
    group.compute_log_prob(batch.tensordict())
    solved = group.compute_token_weights(batch.tensordict(detail=True))
    metrics = tu.get(solved, "metrics")
    core = credit_record(plain.hidden, plain.logps, plain.advantages, plain.mask)
    for key, value in core.summary().items():
        assert metrics[f"credit/{key}"] == pytest.approx(value, abs=10 * WEIGHTS, rel=10 * WEIGHTS), key
    assert 0 < metrics["credit/seconds_capture"] < metrics["credit/seconds_old_log_prob"]
    # The rank with the long responses stores the most: its valid tokens x width x 4 bytes.
    assert metrics["credit/store_bytes"] == int(plain.mask[:4].sum()) * plain.hidden.shape[-1] * 4
    alpha = solved["delta_alpha"].to_padded_tensor(0.0)
    torch.testing.assert_close(alpha, core.padded(core.alpha, plain.mask), atol=WEIGHTS, rtol=0)


def test_diagnostics_are_those_of_the_core_where_someone_looks_closely(group: Any, batch: Any, plain: Plain) -> None:
    """Under the names that the TRL adapter logs them by, and not at other steps."""
    from verl.utils import tensordict_utils as tu

    group.switch({"method": "delta"})
    seen = []
    for detail in (False, True):
        group.compute_log_prob(batch.tensordict())
        seen.append(tu.get(group.compute_token_weights(batch.tensordict(detail=detail)), "metrics"))
    stream = CreditStream()
    stream.add(plain.hidden, plain.logps, plain.mask)
    core = stream.solve(plain.advantages, diagnose=True).diagnostics
    # (The responses are too few to say how reliable the weights are.)
    assert {"saturated", "update_share_positive", "update_share_plain", "rank_negative"} <= set(core)
    for name, value in core.items():
        assert seen[1][f"credit/{name}"] == pytest.approx(value, abs=10 * WEIGHTS), name
        assert f"credit/{name}" not in seen[0]


def test_the_classic_trainers_padded_batches_give_the_same_coefficients_and_losses(
    group: Any, batch: Any, plain: Plain, moved: torch.Tensor
) -> None:
    """The classic trainer sends responses padded on the right, where the V1 trainer sends nested ones."""
    weights = core_weights(plain, "delta")
    group.switch({"method": "delta"})
    group.compute_log_prob(batch.padded(use_remove_padding=True))
    solved = solved_weights(group, batch.padded())
    torch.testing.assert_close(solved, weights, atol=WEIGHTS, rtol=0)
    nested = update(group, batch, moved, delta_weights=weights)
    padded = padded_update(group, batch, moved, delta_weights=weights)
    for name in ("actor/pg_loss", "actor/credit_weight_mean", "actor/credit_weight_away_from_one"):
        assert padded[name] == pytest.approx(nested[name], abs=LOSS), name
    group.switch({"method": "fipo"})
    loss = padded_update(group, batch, moved)["actor/pg_loss"]
    assert loss == pytest.approx(update(group, batch, moved)["actor/pg_loss"], abs=LOSS)


def test_weights_without_a_pass_are_refused(group: Any, batch: Any) -> None:
    group.switch({"method": "delta"})
    group.compute_log_prob(batch.tensordict())
    group.compute_token_weights(batch.tensordict())
    with pytest.raises(Exception, match="before the old-log-prob pass"):
        group.compute_token_weights(batch.tensordict())


def test_the_reference_pass_of_a_lora_run_is_not_kept(group: Any, batch: Any) -> None:
    group.switch({"method": "delta"})
    group.compute_log_prob(batch.tensordict())
    with pytest.raises(Exception, match="disable_adapter"):  # no adapter here: the pass itself cannot run
        group.compute_log_prob(batch.tensordict(no_lora_adapter=True))
    weights = solved_weights(group, batch.tensordict())
    assert weights.std() > 0.05  # those of the first pass


@pytest.fixture(scope="module")
def moved(plain: Plain) -> torch.Tensor:
    """Old log-probs from which the policy has moved away, far enough that both clips act."""
    draw = torch.Generator().manual_seed(1)
    return plain.logps + 0.3 * torch.randn(plain.logps.shape, generator=draw)


def test_the_policy_loss_is_the_hand_computed_one(group: Any, batch: Any, plain: Plain, moved: torch.Tensor) -> None:
    weights = core_weights(plain, "delta")
    group.switch({"method": "delta"})
    metrics = update(group, batch, moved, delta_weights=weights)
    # 1/N sum of lambda-bar * max(-r A, -clip(r, 0.8, 1.28) A), written out.
    total, clipped = 0.0, 0
    for row, time in plain.mask.nonzero().tolist():
        ratio = torch.exp(plain.logps[row, time] - moved[row, time]).item()
        advantage = batch.advantages[row]
        bounded = min(max(ratio, 0.8), 1.28)
        clipped += bounded != ratio
        total += weights[row, time].item() * max(-ratio * advantage, -bounded * advantage)
    assert clipped > 10
    assert metrics["actor/pg_loss"] == pytest.approx(total / int(plain.mask.sum()), abs=LOSS)
    assert metrics["actor/credit_weight_mean"] == pytest.approx(1, abs=WEIGHTS)
    away = (weights[plain.mask] - 1).abs().mean().item()
    assert metrics["actor/credit_weight_away_from_one"] == pytest.approx(away, abs=WEIGHTS)


def test_rollout_correction_is_multiplied_in_and_not_replaced(
    group: Any, batch: Any, plain: Plain, moved: torch.Tensor
) -> None:
    weights = core_weights(plain, "delta")
    correction = torch.rand(weights.shape, generator=torch.Generator().manual_seed(2)) + 0.5
    group.switch({"method": "delta"})
    metrics = update(group, batch, moved, delta_weights=weights, rollout_is_weights=correction)
    inputs = LossInputs(plain.logps, moved, plain.advantages, plain.mask, weights * correction)
    assert metrics["actor/pg_loss"] == pytest.approx(policy_loss(inputs, Clip(dual=10.0)).item(), abs=LOSS)


def test_future_weights_are_computed_inside_the_loss(group: Any, batch: Any, plain: Plain, moved: torch.Tensor) -> None:
    group.switch({"method": "fipo"})
    metrics = update(group, batch, moved)
    inputs = LossInputs(plain.logps, moved, plain.advantages, plain.mask)
    assert metrics["actor/pg_loss"] == pytest.approx(policy_loss(inputs, FutureClip()).item(), abs=LOSS)
    assert metrics["actor/credit_weight_away_from_one"] > 0.02
    plain_clip = policy_loss(inputs, Clip(dual=10.0)).item()
    assert abs(metrics["actor/pg_loss"] - plain_clip) > 1e-3


def test_weights_that_got_lost_stop_the_update(group: Any, batch: Any, moved: torch.Tensor) -> None:
    group.switch({"method": "delta"})
    with pytest.raises(Exception, match="no delta_weights"):
        update(group, batch, moved)


@pytest.fixture(scope="module")
def trl_batch() -> Any:
    """One rollout batch that TRL sampled, and the record of the TRL adapter about it."""
    from real_generation import build_real

    trainer = build_real("delta", max_steps=1, learning_rate=0.0)
    trainer.train()
    (batch,) = trainer.batches
    return batch, [torch.tensor(trainer.processing_class(row["prompt"])["input_ids"]) for row in batch.rows]


def test_trl_verl_and_the_core_give_the_same_coefficients(group: Any, trl_batch: Any) -> None:
    from verl_workers import Batch

    sampled, prompts = trl_batch
    lengths = sampled.mask.sum(1).tolist()
    batch = Batch(
        prompts=prompts,
        responses=[ids[:length] for ids, length in zip(sampled.completion_ids, lengths, strict=True)],
        masks=[torch.ones(length, dtype=torch.int64) for length in lengths],
        advantages=sampled.advantages.tolist(),
        uids=[str(group_number) for group_number in sampled.groups.tolist()],
    )
    trl = torch.cat(list(sampled.record.weights.split(lengths)))
    group.switch({"method": "delta"})
    group.compute_log_prob(batch.tensordict(use_remove_padding=True))
    verl = group.compute_token_weights(batch.tensordict())["delta_weights"].values()

    plain = plain_pass(batch)
    record = credit_record(plain.hidden, plain.logps, sampled.advantages, plain.mask)
    torch.testing.assert_close(verl, record.weights, atol=WEIGHTS, rtol=0)
    torch.testing.assert_close(trl, record.weights, atol=WEIGHTS, rtol=0)
    assert record.weights.std() > 0.05


# The ways in which verl can hold a model, each once: the core's coefficients, and a step that trains. They come last, and in this file,
# because the two processes take long to start: each test leaves another engine in them.

FSDP1 = ("actor_rollout_ref.actor.strategy=fsdp", "actor_rollout_ref.actor.fsdp_config.strategy=fsdp")
OFFLOAD = (
    "actor_rollout_ref.actor.fsdp_config.param_offload=True",
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True",
)
LORA = ("actor_rollout_ref.model.lora_rank=4", "actor_rollout_ref.model.lora_alpha=8")


def engine(group: Any, *overrides: str) -> None:
    """The bundled policy afresh, held in this way."""
    group.rebuild(worker_config("actor_rollout_ref.actor.optim.lr=1e-3", *overrides))


def response_logps(group: Any, batch: Any, **settings: Any) -> torch.Tensor:
    """Old log-probs of the response tokens, padded."""
    output = group.compute_log_prob(batch.tensordict(use_remove_padding=True, **settings))
    return of_responses(output["log_probs"], batch)


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
    torch.testing.assert_close(reference[plain.mask], plain.logps[plain.mask], atol=rounding(MODEL, 10.0), rtol=0)
    kept = solved_weights(group, batch.tensordict())
    torch.testing.assert_close(kept, own, atol=WEIGHTS, rtol=0)
    assert (kept - core_weights(plain, "delta")).abs().max() > 10 * WEIGHTS
