"""Weights for any trainer: every layout, every way to gather, the running form, and the table of engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from delta_rlvr import token_coefficients
from delta_rlvr.adapters.any_trainer import token_weights
from delta_rlvr.adapters.engines import BESIDE, ENGINES, NEMO_RL, PRIME_RL, TRL, VERL_BYPASS, check_engine, engines_for
from delta_rlvr.adapters.running import RunningCentroids, running_weights
from delta_rlvr.credit import NEEDS
from delta_rlvr.credit.rule import RuleError
from delta_rlvr.objectives import Clip, LossInputs, Method, all_methods, get_method
from engine_stubs import Ranks
from rounding import rounding

BATCH, TIME = 12, 9


@pytest.fixture
def drawn() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    mask = torch.arange(TIME) < torch.randint(0, TIME + 1, (BATCH, 1), generator=draw)
    mask[3] = False
    return {
        "logps": -3 * torch.rand(BATCH, TIME, generator=draw),
        "advantages": torch.randn(BATCH, generator=draw),
        "mask": mask,
        "entropy": torch.rand(BATCH, TIME, generator=draw),
        "tokens": torch.randint(0, 9, (BATCH, TIME), generator=draw),
        "groups": torch.arange(BATCH) // 4,
    }


def arguments(drawn: dict[str, Any], method: str) -> dict[str, Any]:
    needs = get_method(method).rule.needs
    always = ("logps", "advantages", "mask")
    return {name: value for name, value in drawn.items() if name in always or name in needs}


METHODS = ["delta-scalar", "delta-scalar?scope=group", "dapo-ft", "ktae", "delta-random", "dapo"]


@pytest.mark.parametrize("method", METHODS)
def test_layouts_and_kinds_of_arrays_give_the_cores_weights(drawn: dict[str, Any], method: str) -> None:
    given = arguments(drawn, method)
    others = {name: given[name] for name in ("entropy", "tokens", "groups") if name in given}
    core = token_coefficients(
        None, drawn["logps"], drawn["advantages"], drawn["mask"], rule=get_method(method).rule, **others
    )
    ours = token_weights(**given, method=method)
    assert torch.equal(ours, core)
    as_numpy = token_weights(**{name: value.numpy() for name, value in given.items()}, method=method)
    assert isinstance(as_numpy, np.ndarray)
    assert np.array_equal(as_numpy, core.numpy())
    rows = {name: list(value) for name, value in given.items() if value.dim() == 2}
    listed = token_weights(**{**given, **rows}, method=method)
    assert torch.equal(torch.stack(listed), core)
    per_token = drawn["advantages"][:, None].expand(BATCH, TIME)
    assert torch.equal(token_weights(**{**given, "advantages": per_token}, method=method), core)


@pytest.mark.parametrize("method", METHODS)
def test_ranks_that_gather_by_a_function_of_the_callers(drawn: dict[str, Any], method: str) -> None:
    """Three ranks of unlike size, the last without a response."""
    given = arguments(drawn, method)
    whole = token_weights(**given, method=method, keys=torch.arange(BATCH))
    ranks, shares = Ranks(3), [slice(0, 7), slice(7, 12), slice(12, 12)]

    def be(rank: int) -> torch.Tensor:
        mine = {name: value[shares[rank]] for name, value in given.items()}
        keys = torch.arange(BATCH)[shares[rank]]
        return token_weights(**mine, method=method, ranks=ranks.all_gather, keys=keys)

    torch.testing.assert_close(torch.cat(ranks.run(be)), whole, atol=rounding(10), rtol=0)


@pytest.mark.parametrize("bad", ["logps", "advantages"])
def test_a_refusal_on_one_rank_is_one_on_all(drawn: dict[str, Any], bad: str) -> None:
    given, ranks, refused = arguments(drawn, "delta-scalar"), Ranks(2), []
    given["advantages"] = given["advantages"][:, None].repeat(1, TIME)

    def be(rank: int) -> None:
        mine = {name: value[rank * 6 : rank * 6 + 6].clone() for name, value in given.items()}
        if rank == 1:
            mine[bad][:, 0] = float("nan") if bad == "logps" else 5.0
        try:
            token_weights(**mine, ranks=ranks.all_gather)
        except ValueError as error:
            refused.append(str(error))

    ranks.run(be)
    assert sorted(text.partition(":")[0] for text in refused) == sorted(["another rank refused its input", bad])


def test_a_group_of_equal_rewards_has_no_signal(drawn: dict[str, Any]) -> None:
    drawn["advantages"][:4] = 1e-8  # what rounding leaves of 0.1 less its mean
    rewards = np.where(np.arange(BATCH) < 4, 0.1, np.arange(BATCH))
    given = arguments(drawn, "delta-scalar")
    ours = token_weights(**given, groups=drawn["groups"], rewards=rewards)
    drawn["advantages"][:4] = 0.0
    assert torch.equal(ours, token_weights(**arguments(drawn, "delta-scalar")))


@pytest.mark.parametrize(
    ("method", "change", "words"),
    [
        ("delta", {}, "needs hidden states: .*CreditStream"),
        ("dapo-ft", {}, "needs entropy .*pass entropy="),
        ("dapo-ft", {"entropy": -torch.ones(BATCH, TIME)}, "entropy: an entropy cannot be negative, as at row 0"),
        ("delta-scalar?scope=group", {}, "pass groups="),
        ("delta-scalar", {"mask": torch.ones(3, dtype=torch.bool)}, r"mask: shape \(3,\) does not fit"),
        ("delta-scalar", {"logps": -torch.ones(BATCH, 3)}, "logps: .* does not fit; the mask's"),
        ("delta-scalar", {"logps": [[-1.0]] + [[-1.0, -1.0]] * 11}, "logps: this is not an array of numbers"),
        ("delta-scalar", {"mask": None}, "mask: shape"),
        ("delta-scalar", {"mask": [torch.ones(BATCH, TIME)]}, "mask: a list needs one array"),
        ("delta-scalar", {"mask": torch.full((BATCH, TIME), torch.nan)}, "mask: a token is trained on"),
        ("delta-scalar", {"mask": torch.full((BATCH, TIME), 0.5)}, "mask: a token is trained on"),
        (
            "delta-scalar",
            {
                "advantages": torch.tensor([torch.nan] + [1.0] * (TIME - 1)).repeat(BATCH, 1),
                "mask": torch.ones(BATCH, TIME),
            },
            "advantages: not finite",
        ),
        ("delta-scalar", {"advantages": torch.ones(BATCH, dtype=torch.int64)}, "advantages: floating-point"),
        ("delta-scalar", {"groups": ["a"] * BATCH}, "groups: this is not an array of numbers"),
        ("delta-scalar", {"rewards": [1.0] * BATCH}, "rewards .*pass groups=, too"),
        ("delta-scalar", {"groups": [0] * BATCH, "rewards": [1.0]}, "rewards: shape"),
        ("delta-scalar", {"groups": [0] * BATCH, "rewards": [torch.nan] * BATCH}, "rewards: not finite"),
        ("delta-scalar", {"entropies": -torch.ones(BATCH, TIME)}, "entropies: no such array"),
        ("delta-scalar", {"advantages": torch.randn(BATCH, TIME)}, "they differ within response"),
    ],
)
def test_bad_input_is_refused_by_name(drawn: dict[str, Any], method: str, change: dict[str, Any], words: str) -> None:
    given = {name: drawn[name] for name in ("logps", "advantages", "mask")}
    with pytest.raises(ValueError, match=words):
        token_weights(**{**given, **change}, method=method)


def test_numpy_views_of_any_order_and_width(drawn: dict[str, Any]) -> None:
    given = {name: value.numpy() for name, value in arguments(drawn, "delta-scalar").items()}
    expected = token_weights(**given)
    backwards = token_weights(**{name: value[::-1] for name, value in given.items()})
    np.testing.assert_allclose(backwards[::-1], expected, atol=rounding(10))
    swapped = given["logps"].astype(">f4")
    assert np.array_equal(token_weights(**{**given, "logps": swapped}), expected)
    half = given["logps"].astype(np.float16)
    same = token_weights(**{**given, "logps": half.astype(np.float64)})
    assert np.array_equal(token_weights(**{**given, "logps": half}), same)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"logps": torch.tensor([-1.0, torch.nan])}, "logps: not finite"),
        ({"logps": torch.tensor([-1.0, 0.5])}, "logps: .* positive"),
        ({"logps": -torch.ones(2, 2)}, "logps: shape"),
        ({"advantage": float("nan")}, "advantage: not finite"),
        ({"advantage": torch.tensor([1.0, -1.0])}, "advantage: it differs"),
        ({"advantage": torch.ones(3)}, "advantage: shape"),
        ({"mask": torch.ones(3, dtype=torch.bool)}, "mask: shape"),
        ({"mask": torch.ones(2)}, "mask: bool"),
    ],
)
def test_the_running_form_refuses_what_would_stay_in_its_sums(change: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"logps": -torch.ones(2), "advantage": 1.0}
    with pytest.raises(ValueError, match=words):
        running_weights(RunningCentroids(), **{**given, **change})


@pytest.mark.parametrize("memory", [0, 0.5, float("nan")])
def test_a_memory_of_less_than_a_response_is_refused(memory: float) -> None:
    with pytest.raises(ValueError, match="memory="):
        RunningCentroids(memory)


@pytest.mark.parametrize("method", ["delta-scalar", "delta-scalar?refinements=0&lambda_min=0.5"])
def test_running_centroids_become_those_of_a_batch_that_is_shown_again_and_again(
    drawn: dict[str, Any], method: str
) -> None:
    exact = token_weights(**arguments(drawn, method), method=method)
    state = RunningCentroids(memory=float("inf"))
    rows = list(zip(drawn["logps"], drawn["advantages"], drawn["mask"], strict=True))
    for _ in range(150):
        seen = []
        for logps, advantage, mask in rows:
            weights, state = running_weights(state, logps, advantage, mask, method=method)
            seen.append(weights)
    # Centroids that run along lag the batch's own by the last few responses.
    torch.testing.assert_close(torch.stack(seen), exact, atol=0.02, rtol=0)


def test_the_running_form_is_a_function_of_its_arguments_alone(drawn: dict[str, Any]) -> None:
    state = RunningCentroids()
    first, after = running_weights(state, drawn["logps"][0], 1.0)
    assert torch.equal(first, torch.ones(TIME))  # one side has been seen
    again, _ = running_weights(state, drawn["logps"][0], 1.0)
    assert torch.equal(first, again)
    assert not state.sides.any()
    one, _ = running_weights(after, drawn["logps"][1], -1.0)
    two, _ = running_weights(after, drawn["logps"][1], -1.0)
    assert torch.equal(one, two)
    with pytest.raises(RuleError, match="no running form"):
        running_weights(state, drawn["logps"][0], 1.0, method="dapo-ft")


def test_the_table_of_engines_knows_every_need_and_method() -> None:
    known = {*NEEDS, *BESIDE}
    assert all(engine.gives <= known for engine in ENGINES)
    for method in all_methods().values():
        for engine in ENGINES:
            runs = engine in engines_for(method)
            if runs:
                check_engine(method, engine)
            else:
                with pytest.raises(RuleError, match=f"which {engine.name.split(' ')[0]}.* engines that do"):
                    check_engine(method, engine)
    names = {name: {one.name for one in engines_for(get_method(name))} for name in ("delta", "delta-scalar")}
    assert {TRL.name} < names["delta"] < names["delta-scalar"] == {one.name for one in ENGINES}
    assert VERL_BYPASS not in engines_for(get_method("gtpo"))
    assert NEMO_RL in engines_for(get_method("delta-random"))
    assert PRIME_RL not in engines_for(get_method("delta-random"))


class Squared(Clip):
    """A loss that no engine has."""

    def __call__(self, inputs: LossInputs) -> torch.Tensor:
        return super().__call__(inputs).square()


class Wider(Clip):
    """The clip with other bounds."""


def test_a_loss_that_engines_do_not_have_is_refused_by_each() -> None:
    """They would run their own in its place."""
    for engine in ENGINES:
        with pytest.raises(RuleError, match=r"'mine' needs a loss of its own.*your own training loop can"):
            check_engine(Method("mine", surrogate=Squared()), engine)
    check_engine(Method("mine", surrogate=Wider(0.1, 0.3)), TRL)
    check_engine(get_method("fipo"), TRL)  # scales the advantages of the engine's clip
