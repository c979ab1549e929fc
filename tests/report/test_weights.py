"""What the page says of the weights: numbers worked by hand, and the core's own diagnostics as a second path."""

import math

import numpy as np
import pytest
import torch

from delta_rlvr.credit import CreditStream
from delta_rlvr.credit.diagnostics import SATURATED as CORE_SATURATED
from delta_rlvr.objectives import get_method
from delta_rlvr.report.shading import Scales
from delta_rlvr.report.weights import MOST, OWN, SATURATED, numbers, points_for, sentences, step_tokens, step_weights
from rounding import rounding


def response(advantage, chances, weights, **columns):
    logps = [math.log(chance) for chance in chances]
    return {"tokens": ["x"] * len(weights), "advantage": advantage, "logps": logps, "weight": weights, **columns}


RESPONSES = [
    response(1.0, [0.5, 0.75, 0.9], [1.2, 0.8, 1.0], alpha=[0.99, 0.02, 0.5], measured=[0.3, None, 0.1]),
    response(-2.0, [0.5, 0.9], [0.8, 1.0], alpha=[0.01, 0.97], other_weights={"other": [2.0, 0.0]}),
    response(0.0, [0.5], [1.0], alpha=[0.0]),
]


class TestNumbers:
    def test_by_hand(self):
        report = numbers(step_tokens(RESPONSES), "weight")
        # 1.2, .8 and 1 on the right, .8 and 1 on the wrong one; the response without an advantage has no say.
        assert report["weight_signal_mean"] == pytest.approx(4.8 / 5)
        # Right: 1.2 * .5 + .8 * .25 + 1 * .1 = .9; wrong: 2 * (.8 * .5 + 1 * .1) = 1.
        assert report["update_share_positive"] == pytest.approx(0.9 / 1.9)
        # Four of the five assignments with an advantage are within .05 of an end; the response without one has no say.
        assert report["saturated"] == pytest.approx(0.8)
        # Means 1 and .9 around .96: (3 * .04^2 + 2 * .06^2) / (.24^2 + .16^2 + .04^2 + .16^2 + .04^2).
        assert report["between_sides"] == pytest.approx(0.012 / 0.112)
        # Ranks 3 1 2 of the weights, 3 2 1 of 1 - p: 1 - 6 * 2 / (3 * 8).
        assert report["rank_positive"] == pytest.approx(0.5)
        assert "rank_negative" not in report  # two tokens
        assert "measured_positive" not in report  # two tokens were measured

    def test_every_weight_one(self):
        report = numbers(step_tokens(RESPONSES), "plain")
        # .5 + .25 + .1 = .85 and 2 * (.5 + .1) = 1.2.
        assert report == {
            "weight_signal_mean": 1,
            "weight_signal_std": 0,
            "update_share_positive": pytest.approx(0.85 / 2.05),
        }

    def test_a_method_that_some_responses_lack(self):
        tokens = step_tokens(RESPONSES)
        assert tokens.totals()["other:other"] == pytest.approx(2 * 2.0 * 0.5)
        assert np.isnan(tokens.weights["other:other"][:3]).all()

    def test_measured_credit_counts_in_the_direction_of_the_side(self):
        rising = [0.9, 1.0, 1.1]
        report = numbers(
            step_tokens(
                [
                    response(1.0, [0.5] * 3, rising, measured=[0.0, 0.1, 0.2]),
                    response(-1.0, [0.5] * 3, rising, measured=[0.0, -0.1, -0.2]),
                ]
            ),
            "weight",
        )
        assert (report["measured_positive"], report["measured_negative"]) == (pytest.approx(1), pytest.approx(1))

    def test_no_log_probs(self):
        bare = [{key: value for key, value in one.items() if key != "logps"} for one in RESPONSES]
        tokens = step_tokens(bare)
        assert tokens.totals() == {}
        spread = {"weight_signal_mean", "weight_signal_std"}
        assert set(numbers(tokens, "weight")) == spread | {"saturated", "between_sides"}

    @pytest.mark.parametrize("method", ["delta", "surprise", "dapo-ft"])
    def test_as_the_core_has_it(self, method):
        assert SATURATED == CORE_SATURATED
        draw = torch.Generator().manual_seed(0)
        lengths = torch.tensor([7, 12, 5, 9, 11, 6])
        advantages = torch.tensor([0.7, -1.2, 0.7, 0.0, 1.1, -0.9], dtype=torch.float64)
        groups = torch.tensor([0, 0, 0, 1, 1, 1])
        count = int(lengths.sum())
        logps = torch.rand(count, generator=draw, dtype=torch.float64).log()
        entropy = torch.rand(count, generator=draw, dtype=torch.float64)
        rule = get_method(method).rho
        stream = CreditStream(rule)
        arrays = {"entropy": entropy} if "entropy" in rule.needs else {}
        hidden = torch.randn(count, 8, generator=draw) if stream.needs_hidden else None
        stream.add(hidden, logps, lengths=lengths, **arrays)
        record = stream.solve(advantages, groups=groups, diagnose=True)
        parts = {"logps": logps, "weight": record.weights, "alpha": record.alpha}
        split = {name: values.split(lengths.tolist()) for name, values in parts.items() if values is not None}
        responses = [
            {
                "tokens": ["x"] * int(lengths[place]),
                "advantage": advantages[place].item(),
                **{name: values[place].tolist() for name, values in split.items()},
            }
            for place in range(len(lengths))
        ]
        tokens = step_tokens(responses)
        ours = numbers(tokens, "weight")
        ours["update_share_plain"] = numbers(tokens, "plain")["update_share_positive"]
        core = record.summary()
        shares = [f"update_share_{what}" for what in ("positive", "plain")]
        names = ["weight_signal_mean", *shares, "rank_positive", "rank_negative", "saturated"]
        for name in [name for name in names if name in core]:
            assert ours[name] == pytest.approx(core[name], abs=rounding(100)), name
        assert "rank_positive" in core
        assert ("saturated" in core) == ("saturated" in ours) == (method == "delta")


def weighted(weights, advantages=(1.0, -1.0)):
    """Two responses with these weights, of which the policy was less and less sure."""
    return [
        {"tokens": ["a"] * len(own), "advantage": advantage, "reward": float(advantage > 0), "weight": own,
         "logps": [-0.1 * (place + 1) for place in range(len(own))]}
        for own, advantage in zip(weights, advantages, strict=True)
    ]  # fmt: skip


class TestWeightsThatDoNothing:
    def test_weights_that_hardly_differ_are_dapo_and_have_no_correlations(self):
        """Their standard deviation was 0.004, and the page said that they rise with 1 - p."""
        tokens = step_tokens(weighted([[0.998, 1.0, 1.002, 1.004], [0.996, 0.998, 1.0, 1.002]]))
        told = numbers(tokens, OWN)
        assert not [name for name in told if name.startswith(("rank", "between"))]
        assert step_weights(tokens, 1, "mine.py:Flat", 10, {}) is None
        assert sentences({OWN: told})[:2] == [
            "This run weighs all tokens alike.",
            "The weights hardly differ from each other: in effect, this is DAPO.",
        ]

    def test_zero_is_said(self):
        told = numbers(step_tokens(weighted([[0.0] * 4, [0.0] * 4])), OWN)
        assert "Every weight is 0: nothing is learnt." in sentences({OWN: told})

    def test_saturated_by_side(self):
        shown = step_weights(step_tokens(weighted([[1.2, 1.2, 1.2, 1.1], [0.8] * 4])), 1, "delta", 10, {})
        assert shown["tells_sides"]
        shown = step_weights(step_tokens(weighted([[1.2, 0.8, 1.2, 0.8]] * 2)), 1, "delta", 10, {})
        assert not shown["tells_sides"]


class TestSentences:
    def test_saturated_sides(self):
        own = {
            "saturated": 0.714,
            "between_sides": 0.91,
            "rank_positive": -0.988,
            "rank_negative": 0.02,
            "update_share_positive": 0.441,
        }
        said = sentences({"weight": own, "plain": {"update_share_positive": 0.487}}, reliability=0.7)
        assert said == [
            "71 % of the coefficients are at the ends of their range; on this batch the weights differ between sides, not between "
            "tokens (the side alone explains 91 % of their variance). "
            "Shaded by the coefficient, tokens show their side; the share of the update tells them apart.",
            "On right responses the weight falls with 1 \N{MINUS SIGN} p: rank correlation \N{MINUS SIGN}0.99; on wrong ones it "
            "hardly follows 1 \N{MINUS SIGN} p: rank correlation +0.02.",
            "Right responses have 44.1 % of the update, and 48.7 % with every weight one.",
            "Weights from one half of the batch and from the other agree: rank correlation +0.70.",
        ]

    def test_a_plateau_is_not_what_the_weight_follows(self):
        """On the plateau the weight rises with 1 - p, from 1.190 to 1.197; three unsure tokens have 0.8. It "rose with 1 - p"."""
        chances = [1 - 0.001 * place for place in range(1, 30)] + [0.1, 0.05, 0.01]
        weights = [1.19 + 0.00025 * place for place in range(29)] + [0.8, 0.8, 0.8]
        report = numbers(step_tokens([response(1.0, chances, weights)]), "weight")
        assert report["rank_positive"] > 0.3
        assert report["sure_positive"] == pytest.approx(1.19 + 0.00025 * 14)
        assert report["unsure_positive"] == pytest.approx(0.8)
        minus = "\N{MINUS SIGN}"
        said = sentences(
            {"weight": {key: report[key] for key in ("rank_positive", "sure_positive", "unsure_positive")}}
        )
        assert said[-1] == (
            f"On right responses the weight is lower where the policy was unsure: 0.80 on average where 1 {minus} p is above 0.5, "
            "1.19 where it is below 0.1."
        )

    @pytest.mark.parametrize(
        ("rank", "unsure", "words"),
        [
            (-0.9, 1.0, "falls with"),  # both say so
            (0.9, 1.18, "rises with"),  # no difference that can be seen
            (-0.05, 1.0, "is lower where"),  # ranks say nothing
            (-0.5, 1.3, "is higher where"),
        ],
    )
    def test_ranks_or_means(self, rank, unsure, words):
        own = {"rank_negative": rank, "sure_negative": 1.19, "unsure_negative": unsure}
        assert f"On wrong ones it {words} " in sentences({"weight": own})[-1]

    @pytest.mark.parametrize(
        ("share", "words"),
        [
            (0.1, "tokens, not between sides"),
            (0.3, "tokens more than between sides"),
            (0.5, "sides as much as between tokens"),
            (0.7, "sides more than between tokens"),
            (0.9, "sides, not between tokens"),
        ],
    )
    def test_sides_or_tokens(self, share, words):
        assert f"differ between {words} (" in sentences({"weight": {"between_sides": share}})[0]

    @pytest.mark.parametrize(
        ("weights", "words"),
        [
            (([1.2, 1.2], [1.2, 1.2]), "This run weighs all tokens alike."),
            (
                ([1.2, 1.2], [0.8, 0.8]),
                "differ between responses, not between tokens: all tokens of a response weigh the same (",
            ),
            (([1.2, 1.1], [0.8, 0.8]), "differ between sides, not between tokens ("),
        ],
    )
    def test_weights_that_are_alike(self, weights, words):
        responses = [response(a, [0.5, 0.9], own) for a, own in zip((1.0, -1.0), weights, strict=True)]
        other = response(1.0, [0.5, 0.9], [1.2, 0.9], other_weights={"other": [2.0, 0.0]})["other_weights"]
        shown = step_weights(step_tokens([one | {"other_weights": other} for one in responses]), 1, "mine", 9, {})
        assert words in shown["sentences"][0]

    @pytest.mark.parametrize(
        ("rewards", "better", "worse"),
        [
            ((1.0, 0.0), "right", "wrong"),
            ((1.0, -1.0), "right", "wrong"),
            ((0.5, 0.0), "better", "worse"),
            ((None, None), "right", "wrong"),
        ],
    )
    def test_half_right_is_not_called_right(self, rewards, better, worse):
        responses = [
            {**response(advantage, [0.1, 0.5, 0.9], [1.2, 0.9, 0.8]), "reward": reward}
            for advantage, reward in zip((1.0, -1.0), rewards, strict=True)
        ]
        view = step_weights(step_tokens(responses), 1, "mine", 9, {})
        assert view["sides"] == (better, worse)
        assert view["sentences"][1].startswith(f"On {better} responses the weight")
        assert f"; on {worse} ones it" in view["sentences"][1]
        assert view["sentences"][2].startswith(f"{better.capitalize()} responses have")

    def test_a_method_without_weights(self):
        rows = {"weight": {"update_share_positive": 0.5}, "plain": {"update_share_positive": 0.5}}
        assert sentences(rows) == ["This run weighs all tokens alike.", "Right responses have 50.0 % of the update."]


class TestStep:
    def test_the_run_s_own_method_comes_first_and_is_drawn(self):
        view = step_weights(step_tokens(RESPONSES), 3, "delta", 2, {"reliability": 0.5})
        assert [row["name"] for row in view["rows"]] == ["delta", "other", "every weight 1"]
        assert view["drawn"] == {"key": "weight", "name": "delta"}
        assert view["tokens"] == 5
        assert len(view["points"]["positive"]["weight"]) == 2  # of three: a draw
        assert view["points"]["negative"] == {"uncertain": [0.5, 0.1], "weight": [0.8, 1.0], "of": 2}

    def test_without_weights_of_its_own_another_method_is_drawn(self):
        alike = [{**one, "weight": [1.0] * len(one["tokens"])} for one in RESPONSES]
        assert step_weights(step_tokens(alike), 3, "dapo", 9, {})["drawn"]["name"] == "other"

    def test_nothing_to_follow(self):
        alike = [response(1.0, [0.5], [1.0]), response(-1.0, [0.5], [1.0])]
        assert step_weights(step_tokens(alike), 1, "dapo", 9, {}) is None
        without = [response(0.0, [0.5], [1.2])]
        assert step_weights(step_tokens(without), 1, "delta", 9, {}) is None
        assert step_weights(step_tokens([]), 1, "delta", 9, {}) is None

    def test_many_steps_share_the_page(self):
        assert points_for(1) == MOST
        assert points_for(1000) * 2 * 1000 <= 120_000


def test_every_method_of_the_rollouts_can_be_shaded_by():
    scales = Scales("delta")
    tokens = step_tokens(RESPONSES)
    scales.add(tokens, [{**one, "entropy": [0.2]} for one in RESPONSES])
    listed = {shading["key"]: shading for shading in scales.shadings()}
    weighed = ["weight", "share:weight", "other:other", "share:other:other", "share:plain"]
    assert list(listed) == [*weighed, "measured", "probability", "entropy"]
    assert listed["weight"]["group"] == "delta (this run)"
    # One scale for all shares: the largest is the other method's only token, which has the whole.
    assert {entry["span"] for key, entry in listed.items() if key.startswith("share:")} == {1.0}
    assert (listed["weight"]["centre"], listed["measured"]["centre"]) == (1, 0)
    assert "centre" not in listed["entropy"]


@pytest.mark.parametrize(
    ("reliability", "words"),
    [
        (0.7, "agree: rank correlation +0.70."),
        (0.3, "agree only in part: rank correlation +0.30, so the weights are partly chance."),
        (0.05, "do not agree: rank correlation +0.05, so the weights are mostly chance."),
        (-0.1, "do not agree: rank correlation \N{MINUS SIGN}0.10, so the weights are mostly chance."),
        (
            -0.54,
            "contradict each other: rank correlation \N{MINUS SIGN}0.54, so a few responses decide which tokens weigh more.",
        ),
    ],
)
def test_halves_that_do_not_agree_are_not_said_to(reliability, words):
    (said,) = sentences({}, reliability)
    assert said == f"Weights from one half of the batch and from the other {words}"
