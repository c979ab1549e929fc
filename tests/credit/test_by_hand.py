"""Coefficients worked out with pencil and paper."""

import math
import warnings

import pytest
import torch

from delta_rlvr import Delta, credit_record, token_coefficients
from delta_rlvr.credit.rules.ablations import Ablation, RandomWeights, Selection
from delta_rlvr.credit.rules.forking import ForkingTokens
from delta_rlvr.credit.rules.uncertainty import Entropy, Surprise
from delta_rlvr.credit.rules.uniform import ResponseMean, Uniform
from delta_rlvr.credit.vectors import topk_hidden_rows
from rounding import rounding

pytestmark = pytest.mark.numeric

# The record is float32; what is not given is computed in float64. A margin is the difference of two squares of this size.
STORED = rounding(10)


def one_dimensional(values, advantages, **settings):
    """Rows of 1-D proxies, every token valid."""
    hidden = torch.tensor(values, dtype=torch.float32).unsqueeze(-1)
    mask = torch.ones(hidden.shape[:2], dtype=torch.bool)
    return credit_record(hidden, None, torch.tensor(advantages), mask, rule=Ablation(proxy="full", **settings))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_two_responses_of_two_tokens_without_refinement():
    # v = 3, 1 (A = 1) and -1, 1 (A = -1). mu+ = 2, mu- = 0.
    # Own side +: D(3) = 9 - 1 = 8, D(1) = 1 - 1 = 0; mean 4, population std 4, gamma+ = 4: alpha = s(2), s(0).
    # Own side -: D(-1) = 9 - 1 = 8, D(1) = 1 - 1 = 0; gamma- = 4 likewise.
    record = one_dimensional([[3.0, 1.0], [-1.0, 1.0]], [1.0, -1.0], refinements=0)
    assert record.margin.tolist() == pytest.approx([8, 0, 8, 0], abs=STORED * 9)
    assert record.discriminator.gamma.flatten().tolist() == pytest.approx([4, 4])
    assert record.alpha.tolist() == pytest.approx([sigmoid(2), 0.5, sigmoid(2), 0.5])
    assert record.discriminator.centroid_gap.item() == pytest.approx(2)
    # lambda = 0.8 + 0.4 alpha: 1.152318831 and 1.0; mean 1.076159416; lambda-bar = 1.070769711 and 0.929230289.
    assert record.weights.tolist() == pytest.approx([1.070769711, 0.929230289] * 2, abs=STORED)


def test_one_refinement_moves_the_centroids_and_keeps_the_lagged_temperature():
    # As above; alpha(0) = s(2), 0.5. mu+(1) = (3 s(2) + 0.5) / (s(2) + 0.5), mu-(1) = 2 - mu+(1) by symmetry around 1.
    # With m = mu+ - 1: mu+ - mu- = 2 m and mu-^2 - mu+^2 = -4 m, so D(3) = 2 * 3 * 2 m - 4 m = 8 m and D(1) = 4 m - 4 m = 0.
    # m = (2 s(2)) / (s(2) + 0.5) = 1.275781: D(3) = 10.206245. gamma stays 4 (from the margins of pass 0).
    margin = 8 * 2 * sigmoid(2) / (sigmoid(2) + 0.5)
    record = one_dimensional([[3.0, 1.0], [-1.0, 1.0]], [1.0, -1.0])
    assert record.margin.tolist() == pytest.approx([margin, 0, margin, 0], abs=STORED * 9)
    assert record.margin_initial.tolist() == pytest.approx([8, 0, 8, 0], abs=STORED * 9)
    assert record.discriminator.gamma.flatten().tolist() == pytest.approx([4, 4])
    assert record.alpha[0].item() == pytest.approx(sigmoid(margin / 4), abs=STORED)


def test_two_refinements_take_the_temperature_of_the_margins_before():
    # v = 1, 3 (A = 1) and -1, -3 (A = -1): mu+ = 2, D = 8 |v|: 8 and 24 on both sides, std 8, alpha(0) = s(1), s(3) = a, b.
    # m1 = (a + 3 b) / (a + b), D = 4 m1 |v|; alpha(1) = s(m1 / 2), s(3 m1 / 2); m2 likewise; gamma(2) = std{4 m1, 12 m1} = 4 m1.
    a, b = sigmoid(1), sigmoid(3)
    m1 = (a + 3 * b) / (a + b)
    a, b = sigmoid(m1 / 2), sigmoid(1.5 * m1)
    m2 = (a + 3 * b) / (a + b)
    record = one_dimensional([[1.0, 3.0], [-1.0, -3.0]], [1.0, -1.0], refinements=2)
    assert record.discriminator.gamma.flatten().tolist() == pytest.approx([4 * m1] * 2)
    assert record.alpha.tolist() == pytest.approx([sigmoid(m2 / m1), sigmoid(3 * m2 / m1)] * 2, abs=STORED)
    assert record.discriminator.centroid_gap.item() == pytest.approx(2 * m2)


def test_two_dimensions_holes_and_a_response_without_an_advantage():
    nan = [math.nan, math.nan]
    rows = [
        [[1.0, 1.0], nan, [1.0, -1.0]],  # mu+ = (1, 0)
        [nan, [-1.0, 0.0], [-1.0, 4.0]],  # mu- = (-1, 2)
        [[50.0, -9.0], nan, nan],  # no advantage: in N and Z, in no centroid
        [nan, nan, nan],
    ]
    mask = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 0, 0], [0, 0, 0]]).bool()
    rule = Delta(proxy="full", refinements=0)
    record = credit_record(torch.tensor(rows), None, torch.tensor([1.0, -2.0, 0.0, math.nan]), mask, rule=rule)
    # D: (1,1): |(2,-1)|^2 - 1 = 4; (1,-1): |(2,-3)|^2 - 1 = 12; std 4.
    #    (-1,0): |(-2,0)|^2 - |(0,-2)|^2 = 0; (-1,4): |(-2,4)|^2 - |(0,2)|^2 = 16; std 8.
    assert record.margin.tolist() == pytest.approx([4, 12, 0, 16, 0])
    assert record.discriminator.masses.flatten().tolist() == [2, 4]
    # lambda = 0.8 + 0.4 s(1), s(3), s(0), s(2), and 0.8; Z is their sum, N = 5.
    raw = [0.8 + 0.4 * sigmoid(x) for x in (1, 3, 0, 2)] + [0.8]
    assert record.weights.tolist() == pytest.approx([5 * one / sum(raw) for one in raw], abs=STORED)


@pytest.mark.parametrize(
    "settings", [{"refinements": 3, "assignment": "hard"}, {"assignment": "hard", "range_map": False}, {}]
)
def test_sides_that_coincide_keep_their_centroids(settings):
    # D = 0 everywhere: nothing is assigned to either side, or one half of everything.
    record = one_dimensional([[5.0], [5.0]], [1.0, -1.0], **settings)
    assert record.alpha.tolist() == [0 if settings else 0.5] * 2
    assert record.discriminator.centroid_gap.item() == 0
    assert record.weights.tolist() == [1, 1]


def test_masses_are_weighted_by_the_advantage_and_temperatures_are_not():
    # v = 4 (A = 3), 0 (A = 1) and -2 (A = -2): mu+ = (3*4 + 1*0)/4 = 3, mu- = -2, M+ = 4, M- = 2.
    # D(4) = 36 - 1 = 35, D(0) = 4 - 9 = -5; unweighted std = 20 (weighted by |A| it would be 17.3).
    record = one_dimensional([[4.0], [0.0], [-2.0]], [3.0, 1.0, -2.0], refinements=0)
    assert record.discriminator.masses.flatten().tolist() == pytest.approx([4, 2])
    assert record.margin.tolist() == pytest.approx([35, -5, 25], abs=STORED * 36)
    assert record.discriminator.gamma[0].tolist() == pytest.approx([20, 1e-8])
    assert record.alpha.tolist() == pytest.approx([sigmoid(1.75), sigmoid(-0.25), 1.0])


def test_within_side_looks_at_the_own_centroid_alone():
    # mu+ = 2; ||3 - 2||^2 = ||1 - 2||^2 = 1: std 0 -> gamma floor, alpha = s(-1e8) = 0. mu- = (0 + 3)/2 = 1.5.
    # With v- = 0, 3, 0, 3, ... all equal too, so take v- = 0, 0, 3: mu- = 1, distances 1, 1, 4, std = sqrt(2).
    record = one_dimensional([[3.0, 1.0, 2.0], [0.0, 0.0, 3.0]], [1.0, -1.0], refinements=0, contrast="within_side")
    # mu+ = 2, distances 1, 1, 0; std = sqrt(2)/3.
    assert record.margin.tolist() == pytest.approx([-1, -1, 0, -1, -1, -4], abs=STORED * 4)
    assert record.discriminator.gamma.flatten().tolist() == pytest.approx([math.sqrt(2) / 3, math.sqrt(2)])
    assert record.alpha[2].item() == pytest.approx(0.5)
    assert record.alpha[5].item() == pytest.approx(sigmoid(-4 / math.sqrt(2)))


def test_hard_assignment_and_its_refinement():
    # mu+ = (6 + 0)/2 = 3, mu- = -2: D(6) = 64 - 9 > 0, D(0) = 4 - 9 < 0: alpha = 1, 0. Refined mu+ = 6: D(0) = 4 - 36 < 0 again.
    record = one_dimensional([[6.0, 0.0], [-2.0, -2.0]], [1.0, -1.0], assignment="hard")
    assert record.alpha.tolist() == [1, 0, 1, 1]
    assert record.margin.tolist() == pytest.approx([64, -32, 64, 64])
    # lambda = 1.2, 0.8, 1.2, 1.2; mean 1.1.
    assert record.weights.tolist() == pytest.approx([1.2 / 1.1, 0.8 / 1.1, 1.2 / 1.1, 1.2 / 1.1])


def test_without_range_map_alpha_is_the_weight_and_zero_advantage_gets_none():
    record = one_dimensional(
        [[6.0, 0.0], [-2.0, -2.0], [1.0, 1.0]], [1.0, -1.0, 0.0], assignment="hard", range_map=False
    )
    # alpha = 1, 0, 1, 1 and 0, 0 for A = 0: sum 3 over N = 6 tokens.
    assert record.weights.tolist() == pytest.approx([2, 0, 2, 2, 0, 0])


def test_without_normalisation_lambda_is_the_weight_and_zero_advantage_gets_lambda_min():
    record = one_dimensional(
        [[6.0, 0.0], [-2.0, -2.0], [1.0, 1.0]], [1.0, -1.0, 0.0], assignment="hard", normalize=False
    )
    assert record.weights.tolist() == pytest.approx([1.2, 0.8, 1.2, 1.2, 0.8, 0.8])


def test_fixed_temperature_is_the_first_squared_distance():
    # mu+ = 2, mu- = 0: gamma = 4 on both sides whatever the spread.
    record = one_dimensional([[3.0, 1.0], [-1.0, 1.0]], [1.0, -1.0], gamma="initial", refinements=2)
    assert record.discriminator.gamma.flatten().tolist() == pytest.approx([4, 4])


def test_output_row_is_one_minus_p_times_hidden():
    # p = 0.25: v = 0.75 h. h = 4, -4 -> v = 3, -3: mu+ = 3, mu- = -3, D = 36 each.
    hidden = torch.tensor([[[4.0]], [[-4.0]]])
    logps = torch.full((2, 1), math.log(0.25))
    record = credit_record(hidden, logps, torch.tensor([1.0, -1.0]), torch.ones(2, 1, dtype=torch.bool))
    assert record.margin.tolist() == pytest.approx([36, 36])


def test_alignment_looks_along_the_contrast_either_way():
    # v = (3, 4), (1, 0) with A = 1 and (0, 0), (-2, 0) with A = -1: mu+ = (2, 2), mu- = (-1, 0), difference (3, 2).
    # <v, difference>^2 / ||v||: 17^2 / 5 = 57.8 and 3^2 / 1 = 9; 0 where v is 0, and 6^2 / 2 = 18, the sign being lost.
    # gamma = population std = half the distance of two values: 24.4 and 9. alpha = 2 sigmoid(D / gamma) - 1.
    hidden = torch.tensor([[[3.0, 4.0], [1.0, 0.0]], [[0.0, 0.0], [-2.0, 0.0]]])
    mask = torch.ones(2, 2, dtype=torch.bool)
    rule = Ablation(proxy="full", contrast="alignment", refinements=0)
    record = credit_record(hidden, None, torch.tensor([1.0, -1.0]), mask, rule=rule)
    assert record.margin.tolist() == pytest.approx([57.8, 9, 0, 18], abs=STORED * 58)
    assert record.discriminator.gamma.flatten().tolist() == pytest.approx([24.4, 9])
    expected = [2 * sigmoid(57.8 / 24.4) - 1, 2 * sigmoid(9 / 24.4) - 1, 0, 2 * sigmoid(2) - 1]
    assert record.alpha.tolist() == pytest.approx(expected, abs=STORED)


def test_sharpness_is_log_p_plus_entropy_times_hidden():
    # Two logits 0 and ln 3: p = 1/4, 3/4, H = 0.562335; log(1/4) + H = -0.823959. h = 1 and -1: v = -0.823959, 0.823959; D = (2 v)^2.
    # It is the slope of log p in an inverse temperature: d/da of log softmax((1 + a h) (0, ln 3))[0] at a = 0.
    logits = torch.tensor([0.0, math.log(3)], dtype=torch.float64)
    scale = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.grad(((1 + scale) * logits).log_softmax(-1)[0], scale)[0].item()
    assert slope == pytest.approx(-0.823959, abs=5e-7)  # the digits above
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    record = credit_record(
        torch.tensor([[[1.0]], [[-1.0]]]),
        torch.full((2, 1), math.log(0.25)),
        torch.tensor([1.0, -1.0]),
        torch.ones(2, 1, dtype=torch.bool),
        entropy=torch.full((2, 1), entropy),
        rule=Delta(proxy="sharpness"),
    )
    assert record.margin.tolist() == pytest.approx([(2 * slope) ** 2] * 2, rel=STORED)


def test_top_k_hidden_by_hand():
    # h = (ln 3, 0), temperature 1/2: logits 2 ln 3, 0, -2 ln 3 -> odds 9, 1, 1/9. Top 2: 0.9, 0.1, so the mean row is (0.9, 0.2).
    # y = 2, outside of the top two: (-1, 5) - (0.9, 0.2). The top one alone: W_0 - W_0.
    hidden, head = torch.tensor([[math.log(3), 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 5.0]])
    rows = [topk_hidden_rows(hidden, head, torch.tensor([y]), k, 0.5)[0].tolist() for y, k in ((2, 2), (0, 1))]
    assert rows == [pytest.approx([-1.9, 4.8], rel=STORED), [0, 0]]


def test_a_selection_keeps_its_share_of_the_tokens_with_an_advantage():
    # mu+ = 3, mu- = -2.5: D = 63.25, -2.75 with gamma 33 | 24.75, 35.75 with gamma 5.5: alpha = s(1.9), s(-0.1) | s(4.5), s(6.5).
    # Half of the four tokens is two, of N = 6: weight 3.
    values, advantages = [[6.0, 0.0], [-2.0, -3.0], [9.0, 9.0]], torch.tensor([1.0, -1.0, 0.0])
    hidden, mask = torch.tensor(values)[..., None], torch.ones(3, 2, dtype=torch.bool)
    kept = {
        keep: credit_record(hidden, None, advantages, mask, rule=Selection(0.8, 1.2, 0, "full", keep=keep)).weights
        for keep in ("top", "bottom")
    }
    assert kept["top"].tolist() == [0, 0, 3, 3, 0, 0]
    assert kept["bottom"].tolist() == [3, 3, 0, 0, 0, 0]


@pytest.mark.parametrize("settings", [{}, {"range_map": False}, {"normalize": False}, {"contrast": "within_side"}])
@pytest.mark.parametrize("advantages", [[1.0, 0.0], [-1.0, -3.0], [0.0, 0.0]])
def test_an_empty_side_gives_exactly_one_and_one_plain_warning(advantages, settings):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        record = one_dimensional([[1.0, 2.0], [3.0, 4.0]], advantages, **settings)
    assert record.weights.tolist() == [1, 1, 1, 1]
    assert [str(w.message).startswith("no contrast to learn from") for w in caught] == [True]


def test_a_group_with_an_empty_side_counts_one_before_the_normalisation():
    # Group 0 as in the hard case: lambda 1.2, 0.8, 1.2, 1.2. Group 1 has A = 1 and 0: lambda 1, 1. Z = 6.4, N = 6.
    hidden = torch.tensor([[6.0, 0.0], [-2.0, -2.0], [9.0, 0.0], [5.0, 0.0]]).unsqueeze(-1)
    mask = torch.tensor([[True, True], [True, True], [True, False], [True, False]])
    weights = token_coefficients(
        hidden,
        None,
        torch.tensor([1.0, -1.0, 1.0, 0.0]),
        mask,
        rule=Ablation(proxy="full", scope="group", assignment="hard"),
        groups=torch.tensor([0, 0, 1, 1]),
    )
    scale = 6 / 6.4
    expected = [[1.2 * scale, 0.8 * scale], [1.2 * scale, 1.2 * scale], [scale, 0], [scale, 0]]
    torch.testing.assert_close(weights, torch.tensor(expected))


def test_baseline_weights():
    mask = torch.tensor([[True, True, True], [True, False, False]])
    advantages = torch.tensor([1.0, -1.0])
    # GRPO: N / (R |o|) = 4 / (2 * 3) and 4 / (2 * 1).
    grpo = token_coefficients(None, None, advantages, mask, rule=ResponseMean())
    torch.testing.assert_close(grpo, torch.tensor([[2 / 3, 2 / 3, 2 / 3], [2.0, 0, 0]]))
    assert token_coefficients(None, None, advantages, mask, rule=Uniform()).sum() == 4
    # Entropies 1, 2, 3, 4: the 50 % quantile is 2.5, two tokens stay, each with weight 4 / 2.
    entropy = torch.tensor([[1.0, 2.0, 3.0], [4.0, 99.0, 99.0]])
    forking = token_coefficients(None, None, advantages, mask, rule=ForkingTokens(0.5), entropy=entropy)
    torch.testing.assert_close(forking, torch.tensor([[0.0, 0.0, 2.0], [2.0, 0.0, 0.0]]))


def test_surprise_and_entropy_weights():
    mask = torch.tensor([[True, True], [True, False], [True, True]])
    advantages = torch.tensor([1.0, -1.0, 0.0])
    # p = 1, 1/2 / 1/4 / 1/8, 1/8 without an advantage: scores 0, 0.5 / 0.75 / 0, 0. In [0.8, 1.2]: 0.8, 1 / 1.1 / 0.8, 0.8; Z = 4.5.
    logps = torch.tensor([[1.0, 0.5], [0.25, 9.0], [0.125, 0.125]]).log()
    surprise = token_coefficients(None, logps, advantages, mask, rule=Surprise())
    expected = torch.tensor([[0.8, 1.0], [1.1, 0.0], [0.8, 0.8]]) * 5 / 4.5
    torch.testing.assert_close(surprise, expected)
    # Entropies 0, ln 2 (perplexity 2: score 1/2), ln 4 (3/4) in [0, 2]: 0, 1 / 1.5 / 0, 0; Z = 2.5.
    entropy = torch.tensor([[1.0, 2.0], [4.0, 99.0], [8.0, 8.0]]).log()
    weights = token_coefficients(None, None, advantages, mask, rule=Entropy(0.0, 2.0), entropy=entropy)
    torch.testing.assert_close(weights, torch.tensor([[0.0, 2.0], [3.0, 0.0], [0.0, 0.0]]))
    # No contrast is needed: one sign alone weighs as well. No advantage at all: nothing to tell apart.
    one_sided = token_coefficients(None, logps[:1], advantages[:1], mask[:1], rule=Surprise())
    torch.testing.assert_close(one_sided, torch.tensor([[0.8, 1.0]]) / 0.9)
    flat = token_coefficients(None, logps, advantages, mask, rule=Surprise(1.1, 1.1))
    assert torch.equal(flat, mask.float())
    silent = token_coefficients(None, logps, advantages * 0, mask, rule=Surprise(0.0, 1.0))
    assert torch.equal(silent, mask.float())


def test_random_coefficients_are_in_range_uniform_and_seeded():
    mask = torch.ones(40, 100, dtype=torch.bool)
    advantages = torch.randn(40)

    def draw(**settings):
        rule = RandomWeights(**settings)
        return token_coefficients(None, None, advantages, mask, rule=rule)

    first = draw()
    # 4,000 draws reach the range's ends to 0.001; their mean, by which they are divided, is within five standard errors (0.009) of 1.
    assert first.min().item() == pytest.approx(0.8, abs=0.01)
    assert (first.max() / first.min()).item() == pytest.approx(1.5, abs=0.004)  # 1.2 / 0.8, whatever the mean
    assert first.mean().item() == pytest.approx(1, abs=rounding(4000))
    assert first.std().item() == pytest.approx(0.4 / math.sqrt(12), abs=0.004)  # the same
    assert torch.equal(first, draw())
    assert not torch.equal(first, draw(seed=1))
    # Neighbours, in time and between responses, know nothing of each other.
    for a, b in ((first[:, 1:], first[:, :-1]), (first[1:], first[:-1])):
        assert abs(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1].item()) < 0.05
