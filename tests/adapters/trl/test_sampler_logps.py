"""`logps_from="sampler"`: rules that read log-probs alone are weighed from those that come with the samples, with no pass at all."""

import math

import pytest
import torch

from delta_rlvr import token_coefficients
from replayed_training import TEMPERATURE, build, pretend_vllm, rollout
from rounding import rounding


def sampled(batch):
    """What `rollout(sampling=True)` says of each token: far from what the policy says."""
    return -6.0 - 0.1 * (batch.completion_ids % 5)


def expected_weights(trainer, batch, logps, **arrays):
    weights = token_coefficients(
        None,
        logps,
        batch.advantages,
        batch.mask,
        rule=trainer.method.rule,
        groups=batch.groups,
        temperature=TEMPERATURE,
        **arrays,
    )
    return weights[batch.mask]


@pytest.mark.parametrize("shape", ["one micro-batch", "accumulation 4", "several updates"])
@pytest.mark.parametrize("method", ["delta-scalar", "surprise", "delta-scalar?scope=group"])
def test_the_weights_are_the_cores_on_the_samplers_log_probs(method, shape):
    trainer = build(method, shape, rollout_func=rollout(sampling=True), logps_from="sampler")
    trainer.train()
    for batch in trainer.batches:
        torch.testing.assert_close(batch.logps[batch.mask], sampled(batch)[batch.mask])
        expected = expected_weights(trainer, batch, sampled(batch))
        torch.testing.assert_close(batch.record.weights, expected, atol=rounding(100), rtol=0)
        assert expected.std() > 0.01


def test_the_setting_holds_where_trl_runs_its_pass_anyway():
    """vLLM's importance correction has one. The loss is corrected as TRL does; the rule reads what it was told to."""
    trainer = build("delta-scalar", "one micro-batch", rollout_func=rollout(sampling=True), logps_from="sampler")
    pretend_vllm(trainer)
    trainer.train()
    for batch in trainer.batches:
        expected = expected_weights(trainer, batch, sampled(batch))
        torch.testing.assert_close(batch.record.weights, expected, atol=rounding(100), rtol=0)
    assert "importance_sampling_ratio" in trainer._buffered_inputs[0]


def test_a_token_that_the_sampler_could_not_score_counts_as_certain():
    generate = rollout(sampling=True)

    def holes(prompts, trainer):
        output = generate(prompts, trainer)
        output["logprobs"] = [[None, *rest] for _, *rest in output["logprobs"]]  # as TRL gives vLLM's NaN
        return output

    settings = {"logps_from": "sampler", "logging_steps": 1, "all_credit_metrics": True}
    trainer = build("surprise", "accumulation 4", rollout_func=holes, **settings)
    trainer.train()
    for batch in trainer.batches:
        logps = sampled(batch).clone()
        logps[:, 0] = 0.0
        expected = expected_weights(trainer, batch, logps)
        torch.testing.assert_close(batch.record.weights, expected, atol=rounding(100), rtol=0)
    told = [line["credit/unknown_logps"] for line in trainer.state.log_history if "credit/unknown_logps" in line]
    assert told == pytest.approx([(len(batch.mask) / batch.mask.sum()).item() for batch in trainer.batches])
    assert all(math.isfinite(micro["loss"]) for micro in trainer.losses)


def test_a_sampler_without_log_probs_is_refused():
    with pytest.raises(ValueError, match=r"logps_from='sampler': the rollout_func gave no logprobs"):
        build("delta-scalar", rollout_func=rollout(), logps_from="sampler").train()


def test_transformers_generation_is_refused_at_the_start(monkeypatch):
    import real_generation

    with pytest.raises(ValueError, match=r"logps_from='sampler': transformers' generation gives no log-probs"):
        real_generation.build_real("delta-scalar", logps_from="sampler")
    with pytest.raises(ValueError, match=r"delta reads hidden too.* read nothing else \(.*delta-scalar, .*surprise"):
        real_generation.build_real("delta", logps_from="sampler")
    real_generation.build_real("dapo", logps_from="sampler")  # reads none
