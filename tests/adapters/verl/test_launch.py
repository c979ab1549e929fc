"""verl's own `python -m verl.trainer.main_ppo` on CPU: two FSDP2 ranks, local Ray, rollouts by transformers, the built-in task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delta_rlvr.adapters.any_trainer import token_weights
from delta_rlvr.runs import read_run
from rounding import MODEL, rounding
from verl_environment import CPU, MEGATRON, environment
from verl_launch import Run, launch, prepare

# A busy machine may take long to start; an idle one takes a minute.
pytestmark = pytest.mark.timeout(1800)

GROUP = 8
BATCH = [
    "data.train_batch_size=8",
    f"actor_rollout_ref.rollout.n={GROUP}",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4096",
    "actor_rollout_ref.actor.optim.lr=3e-4",
]
# A node without the package would ignore the block under this trainer; a library that must be there stops the launch instead.
CLASSIC = ["trainer.use_v1=False", "actor_rollout_ref.model.external_lib=delta_rlvr.adapters.verl.plugin"]
STEPS = 3


def trained(folder: Path, inputs: Path, *overrides: str, **settings: Any) -> Run:
    """A launch that comes to its end, its run folder within `folder`."""
    where = f"+delta.run_folder={folder / 'run'}"
    run = launch(folder, inputs, environment(), *BATCH, where, *overrides, **settings)
    assert run.status == 0, run.output[-4000:]
    return run


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("inputs"), problems=64)


@pytest.fixture(scope="module")
def delta(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    folder = tmp_path_factory.mktemp("delta")
    # The first and the last step are dumped.
    dumps = "+delta.rollouts_every=4", "+delta.rollout_groups=3"
    return trained(folder, inputs, "+delta.method=delta", *dumps, steps=STEPS), folder / "run"


# Slow for its launch. (Commands that take such a rule are tried in tests/commands/test_own_rule.py.)
@pytest.mark.slow
def test_a_rule_in_a_file_of_ones_own_on_the_classic_trainer(
    inputs: Path, delta: tuple[Run, Path], tmp_path: Path
) -> None:
    """Ray's workers find it too; and what the loss was given is what the rule says."""
    rule = Path(__file__).parents[2] / "own_rule" / "my_rules.py"
    run = trained(tmp_path, inputs, *CLASSIC, f"+delta.method='{rule}:FirstHalf?share=0.5'", steps=1)
    written = read_run(tmp_path / "run")
    assert written.info["status"] == "finished"
    responses = list(written.rollouts(1))
    assert len(responses) == 8 * GROUP
    for line in responses:
        count = len(line["tokens"])
        assert line["weight"] == [float(place < 0.5 * count) for place in range(count)]
        assert {len(line[key]) for key in ("ids", "logps", "entropy")} == {count}
        assert line["prompt"].startswith("Add ")
        assert line["reason"]
    assert sorted({(line["group"], line["index"]) for line in responses}) == [
        (g, n) for g in range(8) for n in range(GROUP)
    ]
    # Both trainers see the same rollouts and policy at their first step.
    (classic,), v1 = run.metrics, delta[0].metrics[0]
    for same in ("critic/score/mean", "response_length/mean", "actor/entropy"):
        assert classic[same] == pytest.approx(v1[same], abs=rounding(MODEL)), same
    assert written.metrics[0]["reward"] == pytest.approx(classic["critic/score/mean"])
    assert written.metrics[0]["seconds_credit"] > 0


BYPASS = ["algorithm.rollout_correction.bypass_mode=True", "actor_rollout_ref.rollout.calculate_log_probs=True"]
MODES: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "synchronous": ([], CPU),
    "asynchronous": (["trainer.v1.trainer_mode=delta_colocate_async"], CPU),
    "bypass": (BYPASS, CPU),
    "classic bypass": ([*CLASSIC, *BYPASS], CPU),
    "Megatron's settings": ([], MEGATRON),
}


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "strategy"), MODES.values(), ids=MODES)
def test_delta_scalar_trains_in_every_mode(
    inputs: Path, tmp_path: Path, settings: list[str], strategy: tuple[str, ...]
) -> None:
    dumps = "+delta.rollouts_every=1", "+delta.rollout_groups=0"
    run = trained(tmp_path, inputs, *settings, "+delta.method=delta-scalar", *dumps, steps=2, strategy=strategy)
    written = read_run(tmp_path / "run")
    assert written.info["status"] == "finished"
    for step, metrics in enumerate(run.metrics, start=1):
        assert metrics["credit/weight_mean"] == pytest.approx(1, abs=rounding(100))
        assert metrics["credit/weight_std"] > 0.05
        assert metrics["actor/grad_norm"] > 0
        # The written weights are those that the written log-probs and advantages give.
        responses = list(written.rollouts(step))
        assert len(responses) == 8 * GROUP
        logps = [np.array(one["logps"]) for one in responses]
        expected = token_weights(
            logps, np.array([one["advantage"] for one in responses]), [np.ones(len(row), dtype=bool) for row in logps]
        )
        for one, weights in zip(responses, expected, strict=True):
            # The run folder keeps log-probs and weights with few digits.
            np.testing.assert_allclose(one["weight"], weights, atol=2e-3)


@pytest.mark.slow
def test_both_trainers_give_the_same_coefficients(inputs: Path, delta: tuple[Run, Path], tmp_path: Path) -> None:
    run = trained(tmp_path, inputs, *CLASSIC, "+delta.method=delta", steps=2)
    classic, v1 = run.metrics[0], delta[0].metrics[0]
    # Through one pass of the policy, and ratios of sums over its states.
    close = pytest.approx
    for name in ("weight_std", "gamma_positive", "centroid_gap", "mass_negative", "update_share_positive"):
        key = f"credit/{name}"
        assert classic[key] == close(v1[key], rel=100 * rounding(MODEL)), key
    for step in run.metrics:
        assert step["actor/credit_weight_mean"] == close(1, abs=0.05)  # a mean of means
        assert step["actor/credit_weight_away_from_one"] > 0.02
        assert step["timing_s/credit"] > step["credit/seconds_solve"]
    assert [line["step"] for line in read_run(tmp_path / "run").metrics] == [1, 2]


# (That the loss is multiplied by them is held of the worker alone, in test_worker.py.)
def test_the_coefficients_reach_the_loss_and_are_timed(delta: tuple[Run, Path]) -> None:
    steps = delta[0].metrics
    assert len(steps) == STEPS
    for step in steps:
        assert step["credit/weight_mean"] == pytest.approx(1, abs=rounding(100))
        # Seen from inside the loss: the same coefficients, mean one (a mean of means over unequal micro-batches), and away from it.
        assert step["actor/credit_weight_mean"] == pytest.approx(1, abs=0.05)
        assert step["actor/credit_weight_away_from_one"] > 0.02
        # Rollout and actor agree on every probability.
        assert step["training/rollout_probs_diff_max"] < 2e-5
        timed = step["credit/seconds_capture"] + step["credit/seconds_solve"]
        assert step["credit/overhead"] == pytest.approx(timed / step["credit/seconds_old_log_prob"])


def test_the_run_folder_is_one_that_the_report_reads(delta: tuple[Run, Path]) -> None:
    run = read_run(delta[1])
    assert run.info["engine"] == "verl"
    assert run.info["status"] == "finished"
    assert run.info["method"] == "delta"
    assert [line["step"] for line in run.metrics] == [1, 2, 3]
    for line, theirs in zip(run.metrics, delta[0].metrics, strict=True):
        assert ("reliability" in line) == (line["step"] in (1, 3))
        assert line["reward"] == pytest.approx(theirs["critic/score/mean"])
        assert line["weight_std"] == theirs["credit/weight_std"]
        assert line["seconds_credit"] > 0
        assert line["length"] == theirs["response_length/mean"]
    assert set(run.rollout_steps) == {1, 3}
    responses = list(run.rollouts(3))
    assert len(responses) == 3 * GROUP
    assert [(one["group"], one["index"]) for one in responses] == [(g, n) for g in range(3) for n in range(GROUP)]
    for one in responses:
        assert one["response"] == "".join(one["tokens"])
        assert {len(one[key]) for key in ("ids", "logps", "entropy", "weight", "alpha", "margin")} == {
            len(one["tokens"])
        }
        assert one["prompt"].startswith("Add ")
        assert one["answer"].isdigit()
        assert one["reason"]
    tokens = run.tokens
    assert tokens is not None
    counted = int(tokens.count_positive.sum() + tokens.count_negative.sum())
    assert counted > 100


@pytest.mark.slow
def test_the_reward_rises_and_the_weights_cost_little(tmp_path: Path) -> None:
    larger = [
        "data.train_batch_size=16",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8",
        "actor_rollout_ref.rollout.n=16",
    ]
    inputs = prepare(tmp_path / "inputs", problems=512)
    run = trained(tmp_path / "run", inputs, *larger, "+delta.method=delta", steps=40, timeout=1500)
    rewards = [step["critic/score/mean"] for step in run.metrics]
    first, last = sum(rewards[:8]) / 8, sum(rewards[-8:]) / 8
    assert last > first + 0.1, rewards
    # The quieter half of the steps: the others tell how busy the machine was.
    overheads = sorted(step["credit/overhead"] for step in run.metrics)
    assert overheads[(len(overheads) - 1) // 2] <= 0.05, overheads
