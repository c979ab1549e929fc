"""The float64 reference against numbers worked out by hand, and against properties that it does not use.

s(x) below is the logistic function: s(0.5) = 0.6224593312, s(1) = 0.7310585786, s(1.5) = 0.8175744762,
s(2) = 0.8807970780, s(3) = 0.9525741268.
"""

import math
from typing import Any

import numpy as np
import pytest

from credit_reference import (
    ADVANTAGE_KINDS,
    NEGATIVE,
    POSITIVE,
    clipped_token_loss,
    dual_clipped_rows,
    dual_clipped_token_loss,
    fipo_weights,
    forking_tokens,
    grpo_weights,
    head_gradient,
    output_row,
    predicted_change,
    random_case,
    random_head_case,
    reference_coefficients,
    sapo_token_loss,
    selection,
    sequence_mean,
    side_statistics,
    softmax,
    token_mean,
    topk_hidden,
)

S_HALF, S1, S1_5, S2, S3 = (
    0.6224593312018546,
    0.7310585786300049,
    0.8175744761936437,
    0.8807970779778823,
    0.9525741268224334,
)

# One response a side, mirrored: mu+ = 2, mu- = -2, and D = (|v| + 2)^2 - (|v| - 2)^2 = 8 |v|: 8 and 24 on
# both sides, with mean 16 and standard deviation 8.
MIRRORED: dict[str, Any] = {
    "v": [[[1.0], [3.0]], [[-1.0], [-3.0]]],
    "advantages": [1.0, -1.0],
    "mask": [[1, 1], [1, 1]],
}


def close(actual: Any, expected: Any, tolerance: float = 1e-12) -> None:
    """float64 on both sides; numbers that a comment gives with ten digits are compared to 1e-9."""
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def test_no_refinement_by_hand() -> None:
    result = reference_coefficients(**MIRRORED, refinements=0)
    close(result["margin"], [[8, 24], [8, 24]])
    close([result["gamma"][0, POSITIVE], result["gamma"][0, NEGATIVE]], [8, 8])
    # 8 / 8 = 1 and 24 / 8 = 3; lambda = 0.8 + 0.4 s = 1.0924234315, 1.1810296507; Z = 4.5469061644; N = 4.
    close(result["alpha"], [[S1, S3], [S1, S3]])
    close(result["weights"], [[0.9610257102, 1.0389742898]] * 2, 1e-9)
    assert result["masses"] == {(0, POSITIVE): 2.0, (0, NEGATIVE): 2.0}
    assert result["centroid_gap"] == {0: 4.0}


def test_one_refinement_uses_the_temperature_of_the_margins_before_it() -> None:
    result = reference_coefficients(**MIRRORED, refinements=1)
    # mu+(1) = (s(1) 1 + s(3) 3) / (s(1) + s(3)) = 3.5887809591 / 1.6836327055 = 2.1315699959 = -mu-(1).
    m = 2.1315699959
    close(result["centroids"][0, POSITIVE], [m], 1e-9)
    close(result["centroids"][0, NEGATIVE], [-m], 1e-9)
    # D = 4 m |v|. gamma stays 8: from its own margins it would be 4 m and alpha s(1), s(3) once more.
    close(result["margin"], [[4 * m, 12 * m]] * 2, 1e-9)
    close(result["gamma"][0, POSITIVE], 8)
    close(result["alpha"], [[1 / (1 + math.exp(-m / 2)), 1 / (1 + math.exp(-3 * m / 2))]] * 2, 1e-9)
    close(result["margin_initial"], [[8, 24]] * 2)
    close(result["centroid_gap"][0], 2 * m, 1e-9)


def test_two_refinements_by_hand() -> None:
    result = reference_coefficients(**MIRRORED, refinements=2)
    # With m1 as above: alpha(1) = s(m1 / 2), s(3 m1 / 2) = s(1.0657850052), s(3.1973550156);
    # m2 = (a + 3 b) / (a + b); gamma(2) = std{4 m1, 12 m1} = 4 m1; alpha* = s(m2 / m1), s(3 m2 / m1).
    m1 = (S1 + 3 * S3) / (S1 + S3)
    a, b = 1 / (1 + math.exp(-m1 / 2)), 1 / (1 + math.exp(-1.5 * m1))
    m2 = (a + 3 * b) / (a + b)
    close(result["gamma"][0, NEGATIVE], 4 * m1)
    close(result["alpha"], [[1 / (1 + math.exp(-m2 / m1)), 1 / (1 + math.exp(-3 * m2 / m1))]] * 2)


def test_centroids_weigh_by_advantage_and_the_temperature_does_not() -> None:
    # mu+ = (3 * 0 + 1 * 4) / 4 = 1, mu- = -1. D(0) = 1 - 1 = 0; D(4) = 5^2 - 3^2 = 16; D(-1) = 2^2 - 0 = 4.
    # gamma+ = std{0, 16} = 8 (weighted by |A| it would be sqrt(48)); gamma- = std{4} = 0, clamped to 1e-8.
    result = reference_coefficients([[[0.0]], [[4.0]], [[-1.0]]], [3.0, 1.0, -2.0], [[1]] * 3, refinements=0)
    close(result["gamma"][0, POSITIVE], 8)
    assert result["gamma"][0, NEGATIVE] == 1e-8
    close(result["alpha"], [[0.5], [S2], [1.0]])
    # lambda = 1, 0.8 + 0.4 s(2) = 1.1523188312, 1.2; Z = 3.3523188312.
    close(result["weights"], [[0.8949029466], [1.0312135175], [1.0738835359]], 1e-9)
    assert result["masses"] == {(0, POSITIVE): 4.0, (0, NEGATIVE): 2.0}
    # The refined centroid weighs by |A| alpha = 3 * 0.5 and 1 * s(2): 4 s(2) / (1.5 + s(2)).
    refined = reference_coefficients([[[0.0]], [[4.0]], [[-1.0]]], [3.0, 1.0, -2.0], [[1]] * 3)
    close(refined["centroids"][0, POSITIVE], [4 * S2 / (1.5 + S2)])


def test_two_dimensions_holes_and_zero_advantage() -> None:
    nan = [math.nan, math.nan]
    v = [
        [[1.0, 1.0], nan, [1.0, -1.0]],  # mu+ = (1, 0)
        [nan, [-1.0, 0.0], [-1.0, 4.0]],  # mu- = (-1, 2)
        [[50.0, -9.0], nan, nan],  # no advantage: in N and Z, in no centroid
        [nan, nan, nan],
    ]
    mask = [[1, 0, 1], [0, 1, 1], [1, 0, 0], [0, 0, 0]]
    result = reference_coefficients(v, [1.0, -2.0, 0.0, math.nan], mask, refinements=0)
    # D: (1,1): |(2,-1)|^2 - 1 = 4; (1,-1): |(2,-3)|^2 - 1 = 12; std 4.
    #    (-1,0): |(-2,0)|^2 - |(0,-2)|^2 = 0; (-1,4): |(-2,4)|^2 - |(0,2)|^2 = 16; std 8.
    close(result["margin"], [[4, 0, 12], [0, 0, 16], [0, 0, 0], [0, 0, 0]])
    close(result["alpha"], [[S1, 0, S3], [0, 0.5, S2], [0, 0, 0], [0, 0, 0]])
    raw = [[0.8 + 0.4 * S1, 0, 0.8 + 0.4 * S3], [0, 1.0, 0.8 + 0.4 * S2], [0.8, 0, 0], [0, 0, 0]]
    # Z = 1.0924234315 + 1.1810296507 + 1 + 1.1523188312 + 0.8 = 5.2257719134; N = 5.
    close(result["weights"], np.array(raw) * 5 / 5.2257719134, 1e-9)
    assert result["masses"] == {(0, POSITIVE): 2.0, (0, NEGATIVE): 4.0}
    assert result["scored"].sum() == 4


def test_within_side() -> None:
    # mu+ = 1, squared distances 1, 1, 4: mean 2, std sqrt(2). The negative side is one token at distance 0.
    v, mask = [[[0.0], [0.0], [3.0]], [[7.0], [0.0], [0.0]]], [[1, 1, 1], [1, 0, 0]]
    result = reference_coefficients(v, [1.0, -1.0], mask, refinements=0, contrast="within_side")
    close(result["margin"], [[-1, -1, -4], [0, 0, 0]])
    close(result["gamma"][0, POSITIVE], math.sqrt(2))
    near, far = 1 / (1 + math.exp(1 / math.sqrt(2))), 1 / (1 + math.exp(4 / math.sqrt(2)))
    close(result["alpha"], [[near, near, far], [0.5, 0, 0]])
    # One refinement: mu+ = 3 far / (2 near + far), the temperature still sqrt(2).
    refined = reference_coefficients(v, [1.0, -1.0], mask, refinements=1, contrast="within_side")
    mu = 3 * far / (2 * near + far)
    close(refined["centroids"][0, POSITIVE], [mu])
    close(refined["alpha"][0, 2], 1 / (1 + math.exp((3 - mu) ** 2 / math.sqrt(2))))


def test_initial_distance_scale() -> None:
    # ||2 - (-2)||^2 = 16: alpha(0) = s(8/16), s(24/16); it stays 16 when the centroids move to +-m.
    result = reference_coefficients(**MIRRORED, refinements=0, gamma="initial")
    close(result["alpha"], [[S_HALF, S1_5]] * 2)
    refined = reference_coefficients(**MIRRORED, refinements=1, gamma="initial")
    m = (S_HALF + 3 * S1_5) / (S_HALF + S1_5)
    close(refined["gamma"][0, POSITIVE], 16)
    close(refined["alpha"], [[1 / (1 + math.exp(-m / 4)), 1 / (1 + math.exp(-3 * m / 4))]] * 2)


def test_hard_assignment_and_weights_without_the_range_map() -> None:
    # mu+ = 2, mu- = -2; D = 8 v on the positive side: -24, 24, 48 -> 0, 1, 1, so mu+(1) = 4.5.
    # Then D(-3) = 1 - 56.25 < 0, D(3) = 25 - 2.25 > 0, D(6) = 64 - 2.25 > 0, D(-2) = 42.25 > 0.
    v, mask = [[[-3.0], [3.0], [6.0]], [[-2.0], [0.0], [0.0]]], [[1, 1, 1], [1, 0, 0]]
    result = reference_coefficients(v, [1.0, -1.0], mask, refinements=1, assignment="hard")
    close(result["centroids"][0, POSITIVE], [4.5])
    close(result["alpha"], [[0, 1, 1], [1, 0, 0]])
    # lambda = 0.8, 1.2, 1.2, 1.2; Z = 4.4: 8/11 and 12/11.
    close(result["weights"], [[8 / 11, 12 / 11, 12 / 11], [12 / 11, 0, 0]])
    bare = reference_coefficients(v, [1.0, -1.0], mask, refinements=1, assignment="hard", range_map=False)
    close(bare["weights"], [[0, 4 / 3, 4 / 3], [4 / 3, 0, 0]])


def test_sides_that_coincide_keep_their_centroids() -> None:
    v, mask = [[[5.0]], [[5.0]]], [[1], [1]]
    hard = reference_coefficients(v, [1.0, -1.0], mask, refinements=3, assignment="hard")
    close(hard["centroids"][0, POSITIVE], [5])
    close(hard["alpha"], [[0], [0]])
    assert hard["weights"].tolist() == [[1.0], [1.0]]
    bare = reference_coefficients(v, [1.0, -1.0], mask, assignment="hard", range_map=False)
    assert bare["weights"].tolist() == [[1.0], [1.0]]
    soft = reference_coefficients(v, [1.0, -1.0], mask, refinements=1)
    close(soft["alpha"], [[0.5], [0.5]])


def test_without_normalisation_and_without_range_map() -> None:
    close(
        reference_coefficients(**MIRRORED, refinements=0, normalize=False)["weights"],
        [[0.8 + 0.4 * S1, 0.8 + 0.4 * S3]] * 2,
    )
    close(
        reference_coefficients(**MIRRORED, refinements=0, range_map=False)["weights"],
        [[2 * S1 / (S1 + S3), 2 * S3 / (S1 + S3)]] * 2,
    )
    close(
        reference_coefficients(**MIRRORED, refinements=0, range_map=False, normalize=False)["weights"],
        [[S1, S3]] * 2,
    )


@pytest.mark.parametrize("range_map", [True, False])
def test_group_scope(range_map: bool) -> None:
    # "a" is the mirrored pair, far away, with a third response of no advantage; "b" has no negative side.
    v = [[[101.0], [103.0]], [[9.0], [0.0]], [[99.0], [97.0]], [[-4.0], [0.0]], [[0.0], [0.0]]]
    mask = [[1, 1], [1, 0], [1, 1], [1, 0], [1, 0]]
    advantages, groups = [1.0, 2.0, -1.0, 0.0, 0.0], ["a", "b", "a", "b", "a"]
    result = reference_coefficients(
        v, advantages, mask, groups=groups, scope="group", refinements=0, range_map=range_map
    )
    low, high = (0.8 + 0.4 * S1, 0.8 + 0.4 * S3) if range_map else (S1, S3)
    raw = np.array([[low, high], [1, 0], [low, high], [1, 0], [0.8 if range_map else 0, 0]])
    close(result["raw"], raw)
    close(result["weights"], raw * 7 / raw.sum())
    assert result["masses"] == {("a", 1): 2.0, ("a", -1): 2.0, ("b", 1): 2.0, ("b", -1): 0.0}
    assert set(result["centroids"]) == {("a", 1), ("a", -1)}
    assert result["scored"].tolist() == [
        [True, True],
        [False, False],
        [True, True],
        [False, False],
        [False, False],
    ]


@pytest.mark.parametrize(
    "options", [{}, {"range_map": False}, {"normalize": False}, {"contrast": "within_side"}]
)
@pytest.mark.parametrize("advantages", [[1.0, 2.0], [-1.0, -3.0], [0.0, 0.0], [0.0, 1.0]])
def test_an_empty_side_gives_exactly_one(advantages: list[float], options: dict[str, Any]) -> None:
    result = reference_coefficients([[[1.0], [2.0]], [[3.0], [4.0]]], advantages, [[1, 1], [1, 0]], **options)
    assert result["weights"].tolist() == [[1.0, 1.0], [1.0, 0.0]]


def test_a_flat_range_gives_exactly_one_and_still_solves() -> None:
    v, mask = [*MIRRORED["v"], [[9.0], [9.0]]], [[1, 1], [1, 1], [1, 0]]
    choices: list[dict[str, Any]] = [{}, {"scope": "group", "groups": [0, 0, 1]}, {"normalize": False}]
    for options in choices:
        result = reference_coefficients(v, [1.0, -1.0, 1.0], mask, lambda_min=0.7, lambda_max=0.7, **options)
        assert result["weights"].tolist() == [[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]
        assert result["scored"].any()


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="advantages: row 1"):
        reference_coefficients([[[1.0]], [[1.0]]], [1.0, math.inf], [[1], [1]])
    with pytest.raises(ValueError, match="v: row 0, position 1"):
        reference_coefficients([[[1.0], [math.nan]]], [1.0], [[1, 1]])
    with pytest.raises(ValueError, match="logps: row 0, position 1"):
        fipo_weights([[0.0, math.nan]], [[0.0, 0.0]], [1.0], [[1, 1]])
    with pytest.raises(ValueError, match="groups"):
        reference_coefficients(**MIRRORED, scope="group")
    with pytest.raises(ValueError, match="within-side"):
        reference_coefficients(**MIRRORED, contrast="within_side", assignment="hard")


def test_proxies_by_hand() -> None:
    # p(y) = 1/4: three quarters of h.
    close(output_row([[4.0, -8.0]], [math.log(0.25)]), [[3, -6]])
    # h = (ln 3, 0), temperature 1/2: logits 2 ln 3, 0, -2 ln 3 -> odds 9, 1, 1/9.
    hidden, head = [[math.log(3.0), 0.0]], [[1.0, 0.0], [0.0, 2.0], [-1.0, 5.0]]
    # Top 2: 0.9, 0.1, so the mean row is (0.9, 0.2); y = 2, outside the top two: (-1, 5) - (0.9, 0.2).
    close(topk_hidden(hidden, head, [2], 2, 0.5), [[-1.9, 4.8]])
    close(topk_hidden(hidden, head, [0], 1, 0.5), [[0, 0]])
    # All three: p = (81, 9, 1) / 91; y = 1.
    third = math.log(3.0) / 91
    close(head_gradient(hidden, head, [1], 0.5), [[-81 * third, 0, 82 * third, 0, -third, 0]])


def test_proxies_are_the_gradients_that_they_claim_to_be() -> None:
    # By central differences of log softmax(W h / temperature)[y]; both leave the factor 1 / temperature out.
    case = random_head_case(np.random.default_rng(3), 1, 1, 3)
    hidden, head, token = case["hidden"][0, 0], case["head"], int(case["tokens"][0, 0])

    def log_probability(h: np.ndarray, w: np.ndarray) -> float:
        return math.log(softmax(list(w @ h / case["temperature"]))[token])

    close(log_probability(hidden, head), case["logps"][0, 0])
    step = 1e-5
    by_hidden, by_head = np.zeros_like(hidden), np.zeros_like(head)
    for i in range(len(hidden)):
        nudge = np.eye(len(hidden))[i] * step
        by_hidden[i] = (log_probability(hidden + nudge, head) - log_probability(hidden - nudge, head)) / (
            2 * step
        )
    for at in np.ndindex(head.shape):
        shift = np.zeros_like(head)
        shift[at] = step
        by_head[at] = (log_probability(hidden, head + shift) - log_probability(hidden, head - shift)) / (
            2 * step
        )
    full = topk_hidden(hidden, head, np.array(token), len(head), case["temperature"])
    close(full, by_hidden * case["temperature"], 1e-8)
    exact = head_gradient(hidden, head, np.array(token), case["temperature"])
    close(exact, by_head.ravel() * case["temperature"], 1e-8)
    # The output-row proxy is the head gradient's row of the sampled token.
    close(output_row(case["hidden"], case["logps"])[0, 0], exact.reshape(head.shape)[token])


def test_selection() -> None:
    # Five tokens have an advantage; half of them, rounded up from 2.5, is 3. N = 6: weight 2.
    lam, advantages = [[0.9, 1.1, 0.0], [1.0, 0.8, 1.2], [9.0, 0.0, 0.0]], [1.0, -1.0, 0.0]
    mask = [[1, 1, 0], [1, 1, 1], [1, 0, 0]]
    weights, kept = selection(lam, advantages, mask, 0.5)
    assert weights.tolist() == [[0, 2, 0], [2, 0, 2], [0, 0, 0]]
    assert kept.sum() == 3
    assert selection(lam, advantages, mask, 0.5, "bottom")[0].tolist() == [[2, 0, 0], [2, 2, 0], [0, 0, 0]]
    # 0.4 * 5 = 2 tokens: 1.1 and 1.2 average to 3.0 when the losses are 2 and 4, whatever the others are.
    weights, _ = selection(lam, advantages, mask, 0.4)
    assert token_mean([[7, 2, 7], [7, 7, 4], [7, 7, 7]], mask, weights) == 3.0
    assert selection(lam, [0.0, 0.0, 0.0], mask, 0.5)[0].sum() == 0
    with pytest.raises(ValueError, match="ties"):
        selection([[1.0, 1.0]], [1.0], [[1, 1]], 0.5)


def test_forking_tokens() -> None:
    # Six tokens 0..5: the 0.8 quantile stands at index 0.8 * 5 = 4, on the value 4: two kept, weight 6 / 2.
    weights, _ = forking_tokens([[0.0, 1.0, 2.0, 99.0], [5.0, 4.0, 3.0, 99.0]], [[1, 1, 1, 0], [1, 1, 1, 0]])
    assert weights.tolist() == [[0, 0, 0, 0], [3, 3, 0, 0]]
    # Four tokens 1, 2, 2, 2: index 2.4, value 2: the three tied ones stay.
    assert forking_tokens([[2.0, 1.0, 2.0, 2.0]], [[1, 1, 1, 1]])[1].tolist() == [[True, False, True, True]]
    # Two tokens 1, 3 at 0.5: threshold 2, between them.
    assert forking_tokens([[1.0, 3.0]], [[1, 1]], 0.5)[0].tolist() == [[0, 2]]


def test_grpo_is_the_mean_of_response_means() -> None:
    mask, loss = [[1, 1, 1], [0, 1, 0], [0, 0, 0]], [[1.0, 2.0, 6.0], [8.0, 5.0, 8.0], [9.0, 9.0, 9.0]]
    # N = 4, R = 2: 4 / (2 * 3) and 4 / (2 * 1). Means 3 and 5, then 4.
    close(grpo_weights(mask), [[2 / 3] * 3, [0, 2, 0], [0, 0, 0]])
    close(sequence_mean(loss, mask), 4)
    close(token_mean(loss, mask, grpo_weights(mask)), 4)
    close(token_mean(loss, mask), 14 / 4)


def test_clipped_losses() -> None:
    old = [[0.0] * 3] * 3
    new = np.log([[0.5, 1.1, 2.0], [0.5, 1.1, 2.0], [11.0, 12.0, 9.0]])
    mask, advantages = [[1, 1, 1]] * 3, [2.0, -2.0, -1.0]
    # A = 2: the smaller of r A and clip(r) A: 0.5, 1.1, 1.28. A = -2: 0.8, 1.1, 2. A = -1: unbounded in r.
    close(
        clipped_token_loss(new, old, advantages, mask),
        [[-1.0, -2.2, -2.56], [1.6, 2.2, 4.0], [11.0, 12.0, 9.0]],
    )
    # The second clip caps the loss at 10 |A|; a positive advantage never meets it.
    close(dual_clipped_token_loss(new, old, advantages, mask)[2], [10, 10, 9])
    close(
        dual_clipped_token_loss(new, old, advantages, mask, ceiling=1.5)[:2],
        [[-1, -2.2, -2.56], [1.6, 2.2, 3]],
    )
    assert dual_clipped_rows(new, old, advantages, mask).tolist() == [False, False, True]
    assert dual_clipped_rows(new, old, advantages, [[1, 1, 1], [1, 1, 1], [1, 0, 1]]).tolist() == [False] * 3


def test_sapo() -> None:
    # r = 1: sigmoid(0) * 4 / tau = 2 / tau. r = 2: s(1) * 4 for A > 0, s(1.05) * 4 / 1.05 for A < 0.
    new, old = [[0.0, math.log(2.0)], [0.0, math.log(2.0)]], [[0.0, 0.0], [0.0, 0.0]]
    s105 = 0.7407748991821539
    close(
        sapo_token_loss(new, old, [1.0, -3.0], [[1, 1], [1, 1]]),
        [[-2, -4 * S1], [3 * 2 / 1.05, 3 * 4 * s105 / 1.05]],
    )
    # A log-ratio of 800 would overflow without the clamp; the gate is then 4 / tau.
    close(sapo_token_loss([[800.0]], [[0.0]], [1.0], [[1]]), [[-4]])


def test_fipo() -> None:
    old, mask = [[0.0] * 3], [[1, 1, 1]]
    # Decay 1/2: F = 0.1 + 0.2/2 - 0.1/4 = 0.175; 0.2 - 0.1/2 = 0.15; -0.1, whose exponential is lifted to 1.
    close(
        fipo_weights([[0.1, 0.2, -0.1]], old, [1.0], mask, decay=0.5),
        [[math.exp(0.175), math.exp(0.15), 1.0]],
    )
    # A hole adds nothing and still counts as a step: 0.1 - 0.1/4 = 0.075.
    close(fipo_weights([[0.1, 0.7, -0.1]], old, [1.0], [[1, 0, 1]], decay=0.5), [[math.exp(0.075), 0, 1]])
    # d = 3 > ln 10 leaves the sum, for earlier tokens as well: F = 0.05 / 2, then 0.05. exp(0.3): 1.2.
    close(fipo_weights([[3.0, 0.05, 0.0]], old, [1.0], mask, decay=0.5)[0, 0], math.exp(0.025))
    close(fipo_weights([[0.05, 3.0, 0.0]], old, [1.0], mask, decay=0.5)[0, 0], math.exp(0.05))
    assert fipo_weights([[0.3]], [[0.0]], [1.0], [[1]])[0, 0] == 1.2
    # Guard, after the clip: A < 0 and r = e^3 > 10: at most 1. F = -0.2/2 = -0.1, then -1, then +0.05.
    for second, low, first in (
        (-0.2, 0.8, math.exp(-0.1)),
        (-2.0, 0.8, 0.8),
        (-0.2, 1.0, 1.0),
        (0.1, 1.0, 1.0),
    ):
        weights = fipo_weights([[3.0, second]], [[0.0] * 2], [-1.0], [[1, 1]], decay=0.5, low=low)
        close(weights[0, 0], first)
    # At the old policy every weight is one.
    assert fipo_weights(old, old, [-1.0], mask).tolist() == [[1.0, 1.0, 1.0]]
    # The default half-life is 32 tokens: a step of 0.1 counts 0.05 at 32 tokens' distance.
    step = np.zeros((1, 33))
    step[0, 32] = 0.1
    close(fipo_weights(step, np.zeros((1, 33)), [1.0], np.ones((1, 33)))[0, 0], math.exp(0.05))


def test_discriminator_view() -> None:
    v, mask = (
        [[[1.0, 0.0], [3.0, 2.0]], [[0.0, 4.0], [8.0, 8.0]], [[5.0, 5.0], [5.0, 5.0]]],
        [[1, 1], [1, 0], [1, 1]],
    )
    advantages = [2.0, -3.0, 0.0]
    statistics = side_statistics(v, advantages, mask)
    # M+ = 4, mu+ = (2, 1); M- = 3, mu- = (0, 4). g = (1, 1): 4 * 3 - 3 * 4 = 0; g = (1, 0): 8.
    assert statistics[POSITIVE][0] == 4
    close(statistics[POSITIVE][1], [2, 1])
    assert statistics[NEGATIVE][0] == 3
    close(statistics[NEGATIVE][1], [0, 4])
    close([predicted_change(g, v, advantages, mask) for g in ([1, 1], [1, 0])], [0, 8])
    # rho = (0.5, 1.5), 2: M+ = 4, mu+ = (1 * 1 + 3 * 3, 3 * 2) / 4 = (2.5, 1.5); M- = 6. g = (1, 1): 16 - 24.
    rho = [[0.5, 1.5], [2.0, 7.0], [7.0, 7.0]]
    close(side_statistics(v, advantages, mask, rho)[POSITIVE][1], [2.5, 1.5])
    close(predicted_change([1, 1], v, advantages, mask, rho), -8)
    # No negative side: its mass and its centroid are zero.
    assert side_statistics(v, [1.0, 1.0, 0.0], mask)[NEGATIVE][0] == 0


OPTIONS: list[dict[str, Any]] = [
    {},
    {"refinements": 0},
    {"refinements": 3},
    {"scope": "group"},
    {"gamma": "initial"},
    {"contrast": "within_side"},
    {"assignment": "hard"},
    {"range_map": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_random_cases_hold_the_contract(options: dict[str, Any]) -> None:
    """Mean one, the affine form of the margin, and no sight of masked places, of row order or of padding."""
    rng = np.random.default_rng(11)
    for _ in range(25):
        case = random_case(rng, poison=True)
        v, advantages, mask = case["v"], case["advantages"], case["mask"]
        groups = case["groups"].tolist()
        result = reference_coefficients(v, advantages, mask, groups=groups, **options)
        close(result["weights"][mask].mean(), 1)
        assert (result["weights"][~mask] == 0).all()
        if options.get("contrast") is None:
            for b, t in np.argwhere(result["scored"]):
                label, side = (groups[b] if "scope" in options else 0), int(np.sign(advantages[b]))
                own, other = result["centroids"][label, side], result["centroids"][label, -side]
                affine = 2 * v[b, t] @ (own - other) + other @ other - own @ own
                close(result["margin"][b, t], affine, 1e-9)
        order = rng.permutation(len(mask))
        wider = np.zeros((len(mask), mask.shape[1] + 3), dtype=bool)
        wider[:, 2:-1] = mask[order]
        moved = np.full((*wider.shape, v.shape[2]), np.nan)
        moved[:, 2:-1] = v[order]
        again = reference_coefficients(
            moved, advantages[order], wider, groups=[groups[i] for i in order], **options
        )
        assert (again["weights"][:, 2:-1] == result["weights"][order]).all()


def test_random_cases_cover_what_they_promise() -> None:
    rng = np.random.default_rng(0)
    cases = [random_case(rng) for _ in range(300)]
    assert {case["kind"] for case in cases} == set(ADVANTAGE_KINDS)
    assert {case["v"].shape[0] for case in cases} == set(range(1, 9))
    assert {case["v"].shape[1] for case in cases} == set(range(1, 13))
    assert {case["v"].shape[2] for case in cases} == set(range(1, 10))
    assert any((~case["mask"].any(axis=1)).any() for case in cases)
    assert any(len(set(case["groups"])) > 2 for case in cases)
    holes = [
        case
        for case in cases
        if (np.diff(case["mask"].astype(int), axis=1) != 0).sum(axis=1).max(initial=0) > 1
    ]
    assert len(holes) > 50
    for case in cases:
        assert case["mask"].any()
        for array in (case["v"], case["advantages"], case["logps_old"], case["logps_new"], case["entropy"]):
            assert (array.astype(np.float32).astype(np.float64) == array).all()
        assert (case["logps_new"] <= 0).all()
    ratios = np.concatenate([np.exp(case["logps_new"] - case["logps_old"]).ravel() for case in cases])
    assert (ratios > 10).any()
    assert (ratios < 0.8).any()
