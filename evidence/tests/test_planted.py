"""Planted credit: conditions, methods, measures of a batch, updates; each against hand numbers or a second path."""

import dataclasses
import itertools
import math

import pytest
import torch

from delta_evidence.methods import bench_method, every_method, grid, label
from delta_evidence.planted.conditions import NOISE, SHUFFLED, one_right_a_group, perturbed_advantages
from delta_evidence.planted.measures import batch_facts, length_terciles, measure_weights, small_sample
from delta_evidence.planted.proxy_agreement import proxy_agreement, same_inner_products
from delta_evidence.planted.updates import cosines, response_logps, take_rows, update_vectors, weights_after_a_step
from delta_evidence.rollouts import Rollouts
from delta_evidence.stack.policy import StackedPolicy
from delta_evidence.weighing import BatchWeigher
from delta_rlvr.credit import Delta, credit_record, full_token_gradients
from delta_rlvr.objectives import FutureClip, group_advantages
from delta_rlvr.objectives.advantages import FLOOR as ADVANTAGE_FLOOR
from delta_rlvr.tasks import Problem
from rounding import MODEL, rounding
from stacks import small_model

GROUP = 4


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1}
    return small_model("qwen3", vocab_size=31, head_dim=8, tie_word_embeddings=True, **sizes).eval()


@pytest.fixture(scope="module")
def policy(model):
    return StackedPolicy.from_model(model, 1)


def rollouts_of(mask, **known):
    """A rollout batch of which only this is known."""
    count, time = mask.shape
    blank = {
        "problems": [Problem(str(row), "", "", "") for row in range(count)],
        "texts": [str(row) for row in range(count)],
        "prompt_ids": torch.zeros(count, 1, dtype=torch.long),
        "prompt_mask": torch.ones(count, 1, dtype=torch.bool),
        "completion_ids": torch.zeros(count, time, dtype=torch.long),
        "hidden": torch.zeros(count, time, 1),
        "groups": torch.zeros(count, dtype=torch.long),
        "decisive": None,
        **{name: torch.zeros(count, time) for name in ("logps", "entropy")},
        **{name: torch.zeros(count) for name in ("correct", "rewards", "advantages")},
    }
    return Rollouts(mask=mask, **blank | known)


@pytest.fixture
def rollouts(policy):
    """Four groups of four; group 3 is all wrong."""
    generator = torch.Generator().manual_seed(5)
    count, time = 4 * GROUP, 7
    lengths = torch.randint(3, time + 1, (count,), generator=generator)
    mask = torch.arange(time) < lengths[:, None]
    correct = torch.tensor([1.0, 0, 0, 0, 1, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0])
    prompt_mask = torch.ones(count, 3, dtype=torch.bool)
    prompt_mask[::2, 0] = False
    blank = rollouts_of(
        mask,
        prompt_ids=torch.randint(0, 31, (count, 3), generator=generator),
        prompt_mask=prompt_mask,
        completion_ids=torch.randint(0, 31, (count, time), generator=generator),
        entropy=torch.rand(count, time, generator=generator),
        correct=correct,
        advantages=group_advantages(correct, GROUP),
        groups=torch.arange(4).repeat_interleave(GROUP),
        decisive=mask & (torch.rand(count, time, generator=generator) < 0.3),
    )
    with torch.no_grad():
        hidden = policy.response_hidden(blank.prompt_ids[None], prompt_mask[None], blank.completion_ids[None])[0]
        logps = response_logps(policy, blank)
    return dataclasses.replace(blank, hidden=hidden, logps=logps)


# ------------------------------------------------------------------ conditions


def test_one_right_response_is_kept_by_hand():
    # group 0: rights 0 and 2, the draw favours 2; kept rewards 1 0 0: mean 1/3, deviation (ddof 1) sqrt(1/3)
    found = one_right_a_group(
        torch.tensor([1.0, 0, 1, 0, 1, 1, 1, 1]), 4, torch.tensor([0.2, 0.9, 0.5, 0.1, 0, 0, 0, 0])
    )
    high, low = ((2 / 3) / (math.sqrt(1 / 3) + ADVANTAGE_FLOOR), (-1 / 3) / (math.sqrt(1 / 3) + ADVANTAGE_FLOOR))
    assert found.tolist() == pytest.approx([0, low, high, low, 0, 0, 0, 0])


def test_shuffled_rewards_keep_their_group_and_lose_their_response(rollouts):
    def shuffled(number):
        return perturbed_advantages(SHUFFLED, rollouts, group=GROUP, seed=0, number=number)

    moved, clean = shuffled(0), rollouts.advantages
    torch.testing.assert_close(moved.view(-1, GROUP).sort(1).values, clean.view(-1, GROUP).sort(1).values)
    assert any(not torch.equal(shuffled(number), clean) for number in range(20))
    assert torch.equal(moved, shuffled(0))


def test_noise_flips_its_share_of_the_verdicts(rollouts):
    many = dataclasses.replace(rollouts, correct=torch.zeros(40_000))
    for condition, noise in NOISE.items():
        moved = perturbed_advantages(condition, many, group=GROUP, seed=0, number=0)
        flipped = (moved > 0).float().mean().item()
        # a flipped verdict has a positive advantage unless all four of its group are flipped
        assert flipped == pytest.approx(noise * (1 - noise**3), abs=0.01)


# ------------------------------------------------------------------ methods


def test_every_rule_is_there_once():
    names = every_method()
    methods = [bench_method(name) for name in names]
    assert len({(method.rho, method.surrogate.reweighs) for method in methods}) == len(names)
    assert "sapo" not in names  # at theta_old it is grpo
    for spec in grid():
        assert any(method.rho == bench_method(spec).rho for method in methods), spec


def test_settings_after_the_name():
    rule = bench_method("delta?proxy=head&scope=group&refinements=0&lambda_max=1.5").rule
    assert rule == Delta(proxy="head", scope="group", refinements=0, lambda_max=1.5)
    assert label("delta?proxy=head&scope=group&refinements=0") == "delta head group K=0"
    for spec, told in (
        ("dleta", "did you mean 'delta'"),
        ("delta?proxy=full", "gradient over all parameters .* which a study cannot give"),
        ("sapo", "grpo"),
        ("oracle-best", "did you mean .oracle-"),
    ):
        with pytest.raises(ValueError, match=told):
            bench_method(spec)


@pytest.mark.parametrize(
    "spec",
    [
        *("delta", "delta-head", "delta-topk", "delta?proxy=topk_hidden&scope=group&top_k=3", "delta-context"),
        *("delta-sharpness", "delta-random", "surprise", "entropy", "dapo-ft?quantile=0.5"),
    ],
)
def test_shared_stores_change_no_weight(spec, policy, rollouts):
    """One capture for all rules gives what each rule's own pass gives."""
    weigher = BatchWeigher(rollouts, policy.head[0].detach(), number=2)
    for other in ("delta-head", "delta-topk"):  # the stores were made for somebody else
        weigher.weights(bench_method(other).rho)
    moved = rollouts.advantages.flip(0)
    for given in (None, moved):
        alone = credit_record(
            rollouts.hidden,
            rollouts.logps,
            rollouts.advantages if given is None else given,
            rollouts.mask,
            rule=bench_method(spec).rho,
            head=policy.head[0].detach(),
            tokens=rollouts.completion_ids,
            groups=rollouts.groups,
            entropy=rollouts.entropy,
            round_number=2,
        )
        torch.testing.assert_close(
            weigher.weights(bench_method(spec).rho, given), alone.padded(alone.weights, rollouts.mask)
        )


# ------------------------------------------------------------------ measures of a batch


def test_only_tokens_with_an_advantage_count():
    # two groups of two: the first has both outcomes, the second none; rows 0 and 1 have 3 tokens
    mask = torch.tensor([[1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 1, 1]], dtype=torch.bool)
    batch = rollouts_of(
        mask,
        logps=torch.log(torch.tensor([[0.1, 0.2, 0.3]] * 4)),
        correct=torch.tensor([1.0, 0.0, 0.0, 0.0]),
        advantages=torch.tensor([1.0, -2.0, 0.0, 0.0]),
        groups=torch.tensor([0, 0, 1, 1]),
        decisive=torch.tensor([[0, 1, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=torch.bool),
    )
    weights = torch.tensor([[1.0, 2.0, 3.0], [4.0, 1.0, 1.0], [9.0, 9.0, 9.0], [9.0, 9.0, 9.0]])
    found = measure_weights(weights, batch, batch.advantages)
    # right: decisive 2 against 1 and 3; wrong: decisive 4 against 1 and 1
    assert found["right_auroc"] == 0.5
    assert found["wrong_auroc"] == 1
    assert found["right_precision"] == 0.5
    # masses: row 0 1 2 3 (A = 1), row 1 8 2 2 (|A| = 2): decisive 2 + 8 of 18
    assert found["mass_share"] == pytest.approx(10 / 18)
    facts = batch_facts(batch, 2)
    assert facts["accuracy"] == 0.25
    assert facts["mixed_groups"] == 0.5
    assert facts["wrong_tokens"] == 3
    assert facts["right_decisive_p"] == pytest.approx(0.2)
    assert facts["wrong_decisive_p"] == pytest.approx(0.1)


def test_terciles_split_the_live_responses_by_length(rollouts):
    parts = length_terciles(rollouts)
    lengths = rollouts.mask.sum(1)
    assert [int(part.sum()) for part in parts] == [4, 4, 4]
    assert not any(part[12:].any() for part in parts)  # the group without an advantage
    for shorter, longer in itertools.pairwise(parts):
        assert lengths[shorter].max() <= lengths[longer].min()


def test_small_sample_takes_whole_groups_up_to_its_limit(rollouts):
    # group 0 has one right response (0) and three wrong ones, of which two are taken
    lengths = rollouts.mask.sum(1)
    first = int(lengths[[0, 1, 2]].sum())
    second = int(lengths[[4, 5, 6]].sum())
    assert small_sample(rollouts, first).tolist() == [0, 1, 2]
    assert small_sample(rollouts, first + second - 1).tolist() == [0, 1, 2]
    assert small_sample(rollouts, first + second).tolist() == [0, 1, 2, 4, 5, 6]
    assert small_sample(rollouts, 0).tolist() == []


# ------------------------------------------------------------------ updates


def test_update_is_the_weighted_sum_of_token_gradients(policy, rollouts):
    weights = [torch.rand(rollouts.mask.shape), rollouts.mask.float()]
    found = update_vectors(policy, rollouts, weights, rows_at_once=5)
    logps = response_logps(policy, rollouts)[rollouts.mask]
    gradients = full_token_gradients(logps, list(policy.parameters()))
    token_advantages = rollouts.advantages.repeat_interleave(rollouts.mask.sum(1))
    for update, rho in zip(found, weights, strict=True):
        expected = (rho[rollouts.mask] * token_advantages) @ gradients
        size = ((rho[rollouts.mask] * token_advantages).abs() @ gradients.abs()).max().item()
        torch.testing.assert_close(update, expected, atol=rounding(MODEL, size), rtol=0)
    assert cosines(torch.tensor([[1.0, 0], [1, 1], [-2, 0]]), torch.tensor([3.0, 0])) == pytest.approx(
        [1, math.sqrt(0.5), -1]
    )


def test_shrunken_vectors_keep_their_inner_products():
    torch.manual_seed(0)
    wide = torch.randn(6, 200)
    narrow = same_inner_products([wide[:2], wide[2:]])
    assert narrow.shape == (6, 6)
    torch.testing.assert_close(narrow @ narrow.T, (wide @ wide.T).double(), atol=rounding(200, size=300.0), rtol=0)


def test_fipo_is_weighed_by_a_policy_that_took_a_dapo_step_on_the_other_half(model, policy, rollouts):
    """The same by hand, with transformers' model, torch's optimizer and clipping, one half at a time."""
    import copy

    found = weights_after_a_step(policy, rollouts, FutureClip(), learning_rate=0.01, rows_at_once=3)
    assert torch.equal(found == 0, ~rollouts.mask)
    assert (found[rollouts.mask] != 1).float().mean() > 0.2

    def logps_of(some_model, part):
        ids = torch.cat([part.prompt_ids, part.completion_ids], 1)
        real = torch.cat([part.prompt_mask, part.mask], 1)
        positions = (real.long().cumsum(1) - 1).clamp(min=0)
        logits = some_model(input_ids=ids, attention_mask=real.long(), position_ids=positions).logits
        scores = logits[:, part.prompt_ids.shape[1] - 1 : -1].log_softmax(-1)
        return scores.gather(-1, part.completion_ids[..., None])[..., 0]

    halves = torch.arange(8), torch.arange(8, 16)
    for trained, weighed in (halves, halves[::-1]):
        stepped = copy.deepcopy(model)
        optimizer = torch.optim.AdamW(stepped.parameters(), lr=0.01, weight_decay=0.0)
        part = take_rows(rollouts, trained)
        # at ratio one the clipped surrogate's gradient is that of the plain one
        ratio = (logps_of(stepped, part) - part.logps).exp()
        loss = -(ratio * part.advantages[:, None])[part.mask].sum() / part.mask.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(stepped.parameters(), 1.0)
        optimizer.step()
        here = take_rows(rollouts, weighed)
        with torch.no_grad():
            shift = torch.where(here.mask, logps_of(stepped, here) - here.logps, 0.0)
        expected = FutureClip().reweigh(shift, here.advantages[:, None].expand_as(shift), here.mask)
        # After a step of Adam, which divides by the gradient's size: entries that are all but 0 may step either way.
        torch.testing.assert_close(found[weighed], expected, atol=2e-3, rtol=0)


def test_proxies_agree_less_with_the_full_gradient_than_it_does_with_itself():
    torch.manual_seed(0)
    hidden, head, ids = torch.randn(6, 8, 5).double(), torch.randn(7, 5).double(), torch.randint(0, 7, (6, 8))
    weight = head.requires_grad_()
    logps = (hidden @ weight.T).log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    mask = torch.rand(6, 8) < 0.8
    advantages = torch.tensor([1.0, -0.7, 0.4, -1.2, 0.0, 0.9], dtype=torch.float64)
    gradients = full_token_gradients(logps[mask], [weight])
    batch = rollouts_of(mask, hidden=hidden, logps=logps.detach(), advantages=advantages, completion_ids=ids)
    proxies = ("full", "head", "output_row", "topk_hidden")
    report = proxy_agreement(gradients, batch, head.detach(), Delta(), proxies)
    for name in ("full", "head"):  # the head is all that this policy has
        assert report[name].margin_rank_correlation == pytest.approx(1)
        assert report[name].update_cosine == pytest.approx(1)
    for name in ("output_row", "topk_hidden"):
        assert -1 <= report[name].margin_rank_correlation < 0.9999
        assert 0.9 < report[name].update_cosine < 1 - 1e-9
