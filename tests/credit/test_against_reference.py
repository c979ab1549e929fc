"""The library against the independent float64 loop, over hundreds of random batches. (Numbers by hand, in `test_by_hand.py`, hold
the library, and through it the loop.)"""

import itertools
import zlib

import numpy as np
import pytest
import torch

from credit_reference import (
    entropy_score,
    forking_tokens,
    grpo_weights,
    head_gradient,
    output_row,
    random_case,
    random_head_case,
    reference_coefficients,
    scored_weights,
    selection,
    sharpness,
    surprise_score,
    topk_hidden,
)
from delta_rlvr.credit import Delta, credit_record
from delta_rlvr.credit.rules.ablations import Ablation, Selection
from delta_rlvr.credit.rules.forking import ForkingTokens
from delta_rlvr.credit.rules.uncertainty import Entropy, Surprise
from delta_rlvr.credit.rules.uniform import ResponseMean
from rounding import rounding

CASES = 6  # a setting; the settings below make it some eight hundred batches

# Both sides compute in float64. The library is given float32 advantages, log-probs and entropies, whose sum may cancel
# ("sharpness"), and stores its record in float32.
INPUTS, STORED = rounding(100), rounding(10)

SETTINGS = [
    {"refinements": k, "scope": scope, **variant}
    for k, scope, variant in itertools.product(
        (0, 1, 3),
        ("batch", "group"),
        (
            {},
            {"contrast": "within_side"},
            {"gamma": "initial"},
            {"assignment": "hard"},
            {"normalize": False},
            {"range_map": False},
            {"lambda_min": 0.5, "lambda_max": 1.5},
            {"lambda_min": 1.0, "lambda_max": 1.0},
        ),
    )
]
BEYOND = [
    {"refinements": k, "scope": scope, **variant}
    for k, scope, variant in itertools.product(
        (0, 2),
        ("batch", "group"),
        ({"contrast": "alignment"}, {"contrast": "alignment", "lambda_min": 0.5, "lambda_max": 1.5}),
    )
]


def assert_close(ours, expected, tolerance):
    """As close as the largest of the numbers allows."""
    np.testing.assert_allclose(ours, expected, atol=tolerance * np.abs(expected).max(initial=1.0), rtol=0)


def tensor(array, dtype=torch.float32):
    return torch.as_tensor(np.asarray(array)).to(dtype)


def run_both(case, proxy, settings, rng, dtype=torch.float32):
    """(library's record, reference, mask) on a random case with the given proxy."""
    mask = np.asarray(case["mask"], dtype=bool)
    batch, time = mask.shape
    inputs = {}
    if proxy == "full":
        hidden = tensor(case["v"], dtype)
        vectors = hidden.double().numpy()
        logps = None
    else:
        width = np.asarray(case["v"]).shape[-1]
        extra = random_head_case(rng, batch, time, width)
        hidden, head = tensor(extra["hidden"], dtype), tensor(extra["head"], dtype)
        tokens, temperature = torch.as_tensor(np.asarray(extra["tokens"])), float(extra["temperature"])
        logps = tensor(extra["logps"])
        exact_hidden, exact_head = hidden.double().numpy(), head.double().numpy()
        inputs = {"head": head, "tokens": tokens, "temperature": temperature}
        if proxy == "output_row":
            vectors = output_row(exact_hidden, logps.double().numpy())
        elif proxy == "sharpness":
            inputs["entropy"] = tensor(case["entropy"])
            vectors = sharpness(exact_hidden, logps.double().numpy(), case["entropy"])
        elif proxy == "topk_hidden":
            vectors = topk_hidden(exact_hidden, exact_head, tokens.numpy(), 2, temperature)
        else:
            vectors = head_gradient(exact_hidden, exact_head, tokens.numpy(), temperature)
    rule = Ablation(proxy=proxy, top_k=2, **settings)
    record = credit_record(
        hidden,
        logps,
        tensor(case["advantages"]),
        torch.as_tensor(mask),
        rule=rule,
        groups=torch.as_tensor(np.asarray(case["groups"], dtype=np.int64)),
        **inputs,
    )
    expected = reference_coefficients(vectors, case["advantages"], mask, groups=case["groups"], **settings)
    return record, expected, torch.as_tensor(mask)


def far_from_threshold(expected, settings, tolerance):
    """Where a hard assignment is decided by more than rounding; anywhere for a soft one."""
    if settings.get("assignment") != "hard":
        return True
    scored = expected["scored"]
    margins = np.concatenate([expected["margin"][scored], expected["margin_initial"][scored]])
    return np.abs(margins).min(initial=np.inf) > tolerance


@pytest.mark.filterwarnings("ignore:no contrast")
@pytest.mark.parametrize(
    "proxy", ["full", pytest.param("output_row", marks=pytest.mark.numeric), "sharpness", "topk_hidden", "head"]
)
@pytest.mark.parametrize("settings", [*SETTINGS, *BEYOND], ids=lambda s: "-".join(f"{k}={v}" for k, v in s.items()))
def test_fp32_inputs_match_the_loop(proxy, settings):
    rng = np.random.default_rng(zlib.crc32(f"{proxy}{settings}".encode()))
    compared = 0
    for _ in range(CASES if proxy in ("full", "output_row", "sharpness") else CASES // 3):
        record, expected, mask = run_both(random_case(rng), proxy, settings, rng)
        if not far_from_threshold(expected, settings, INPUTS):
            continue
        compared += 1
        weights = record.padded(record.weights, mask).double().numpy()
        assert_close(weights, expected["weights"], STORED)
        scored = expected["scored"]
        margins = record.padded(record.margin, mask).double().numpy()
        assert_close(margins[scored], expected["margin"][scored], INPUTS)
        found = record.discriminator
        for number, group in enumerate(found.groups.tolist()):
            for column, sign in enumerate((1, -1)):
                assert found.masses[number, column].item() == pytest.approx(
                    expected["masses"].get((group, sign), 0.0), rel=INPUTS
                )
                if (group, sign) in expected["gamma"]:
                    gamma = expected["gamma"][group, sign]
                    assert found.gamma[number, column].item() == pytest.approx(gamma, rel=INPUTS)
            if group in expected["centroid_gap"]:
                gap = expected["centroid_gap"][group]
                assert found.centroid_gap[number].item() == pytest.approx(gap, rel=INPUTS)
    assert compared >= 2


@pytest.mark.filterwarnings("ignore:no contrast")
@pytest.mark.parametrize("proxy", ["full", "output_row", "head"])
@pytest.mark.parametrize("settings", [*SETTINGS[:16:3], *BEYOND[:4]], ids=str)
def test_bf16_store_matches_the_loop_on_what_it_stores(proxy, settings):
    """bf16 rows are kept as they are, so that against the loop on the same rows only accumulation could differ."""
    rng = np.random.default_rng(11)
    for _ in range(CASES):
        record, expected, mask = run_both(random_case(rng), proxy, settings, rng, torch.bfloat16)
        if far_from_threshold(expected, settings, INPUTS):
            weights = record.padded(record.weights, mask).double().numpy()
            assert_close(weights, expected["weights"], STORED)


@pytest.mark.parametrize("proxy", ["output_row", "topk_hidden"])
def test_bf16_store_is_close_to_exact_hidden_states(proxy):
    """Hidden states of a realistic width rounded to bf16, against the loop on the unrounded ones: <= 2e-3."""
    rng = np.random.default_rng(5)
    for _ in range(4):
        batch, time, width, vocab = 6, 8, 256, 40
        mask = rng.random((batch, time)) < 0.8
        mask[0, 0] = True
        hidden = rng.standard_normal((batch, time, width)).astype(np.float32)
        head = (rng.standard_normal((vocab, width)) / np.sqrt(width)).astype(np.float32)
        tokens = rng.integers(0, vocab, (batch, time))
        logps = -rng.random((batch, time)).astype(np.float32)
        advantages = np.array([1.0, -0.5, 0.8, -1.2, 0.0, 0.6], dtype=np.float32)
        weights = credit_record(
            tensor(hidden, torch.bfloat16),
            tensor(logps),
            tensor(advantages),
            torch.as_tensor(mask),
            rule=Delta(proxy=proxy, top_k=5),
            head=tensor(head),
            tokens=torch.as_tensor(tokens),
        )
        exact = output_row(hidden, logps) if proxy == "output_row" else topk_hidden(hidden, head, tokens, 5)
        expected = reference_coefficients(exact, advantages, mask)["weights"]
        ours = weights.padded(weights.weights, torch.as_tensor(mask)).double().numpy()
        np.testing.assert_allclose(ours, expected, atol=2e-3, rtol=0)  # the method's contract, not rounding


@pytest.mark.numeric
@pytest.mark.filterwarnings("ignore:no contrast")
@pytest.mark.parametrize("which", ["top", "bottom"])
@pytest.mark.parametrize("share", [0.5, 0.3])
def test_selection_keeps_what_the_loop_keeps(which, share):
    rng = np.random.default_rng(3)
    compared = 0
    for _ in range(120):
        case = random_case(rng)
        mask = torch.as_tensor(case["mask"])
        rule = Selection(proxy="full", keep=which, share=share)
        record = credit_record(tensor(case["v"]), None, tensor(case["advantages"]), mask, rule=rule)
        expected = reference_coefficients(case["v"], case["advantages"], case["mask"], refinements=1)
        if record.discriminator.degenerate.all():
            assert (record.weights == 1).all()
            continue
        ranked = np.sort(expected["raw"][np.asarray(case["mask"]) & (np.asarray(case["advantages"]) != 0)[:, None]])
        if np.diff(ranked).min(initial=1) < INPUTS:
            continue  # closer than float32 inputs can tell
        weights = selection(expected["raw"], case["advantages"], case["mask"], share, which)
        assert_close(record.padded(record.weights, mask).double().numpy(), weights, STORED)
        compared += 1
    assert compared >= 10


@pytest.mark.numeric
def test_forking_tokens_and_response_means_match_the_loop():
    rng = np.random.default_rng(9)
    for _ in range(60):
        case = random_case(rng)
        mask = torch.as_tensor(case["mask"])
        arguments = (None, None, tensor(case["advantages"]), mask)
        entropy = tensor(case["entropy"], torch.float64)
        forking = credit_record(*arguments, rule=ForkingTokens(0.8), entropy=entropy)
        expected = forking_tokens(case["entropy"], case["mask"], 0.8)
        assert_close(forking.padded(forking.weights, mask).numpy(), expected, STORED)
        means = credit_record(*arguments, rule=ResponseMean())
        assert_close(means.padded(means.weights, mask).numpy(), np.asarray(grpo_weights(case["mask"])), STORED)


@pytest.mark.numeric
@pytest.mark.parametrize("bounds", [(0.8, 1.2), (0.5, 1.5), (0.0, 2.0)])
def test_surprise_and_entropy_match_the_loop(bounds):
    rng = np.random.default_rng(10)
    for _ in range(40):
        case = random_case(rng)
        mask = torch.as_tensor(case["mask"])
        logps, entropy = tensor(case["logps_old"], torch.float64), tensor(case["entropy"], torch.float64)
        arguments = (None, logps, tensor(case["advantages"]), mask)
        for rule, score in (
            (Surprise(*bounds), surprise_score(case["logps_old"])),
            (Entropy(*bounds), entropy_score(case["entropy"])),
        ):
            record = credit_record(*arguments, rule=rule, entropy=entropy)
            expected = scored_weights(score, case["advantages"], case["mask"], *bounds)
            assert_close(record.padded(record.weights, mask).numpy(), expected, STORED)


def test_random_cases_cover_what_they_promise():
    rng = np.random.default_rng(0)
    cases = [random_case(rng) for _ in range(300)]
    sides = [frozenset(np.sign(case["advantages"])) for case in cases]
    assert {frozenset(kind) for kind in ((1, -1), (1, -1, 0), (1,), (-1,), (0,))} <= set(sides)
    for axis, most in ((0, 8), (1, 12), (2, 9)):
        assert {case["v"].shape[axis] for case in cases} == set(range(1, most + 1))
    assert all(case["mask"].any() for case in cases)
    assert any((~case["mask"].any(axis=1)).any() for case in cases)
    assert any(len(set(case["groups"])) > 2 for case in cases)
    changes = [np.diff(case["mask"].astype(int), axis=1) != 0 for case in cases]
    assert sum(change.sum(axis=1).max(initial=0) > 1 for change in changes) > 50  # masks with holes
    ratios = np.concatenate([np.exp(case["logps_new"] - case["logps_old"]).ravel() for case in cases])
    assert (ratios > 10).any()
    assert (ratios < 0.8).any()
