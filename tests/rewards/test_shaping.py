"""The soft overlong penalty and the form checks, with numbers worked out by hand."""

from __future__ import annotations

from functools import partial

import pytest

from delta_rlvr.rewards import FormatReward, OverlongReward, SoftOverlong, WeightedReward, check_form
from delta_rlvr.tasks.contents import reward_settings_digest
from rlvr_graders import MathReward

_SCALE = 1.0


def _scaled(completions, **_):
    return [_SCALE * len(one) for one in completions]


def test_soft_overlong_by_hand() -> None:
    # The authors' script: 20480 tokens, buffer 4096, so the penalty begins after 16384.
    settings = SoftOverlong(max_length=20480)
    assert (settings.buffer, settings.factor) == (4096, 1.0)
    assert settings.penalty(0) == 0.0
    assert settings.penalty(16384) == 0.0
    assert settings.penalty(16385) == -1 / 4096
    assert settings.penalty(17408) == -0.25  # 1024 of 4096
    assert settings.penalty(18432) == -0.5  # 2048 of 4096
    assert settings.penalty(20480) == -1.0
    assert settings.penalty(30000) == -1.0  # never more than the factor


def test_the_factor_scales_it() -> None:
    # 90 tokens, limit 100, buffer 20: 10 into the buffer of 20, half of the factor
    assert SoftOverlong(100, 20, 0.4).penalty(90) == pytest.approx(-0.2)


def test_soft_overlong_agrees_with_trl() -> None:
    trl = pytest.importorskip("trl.rewards")
    theirs = trl.get_soft_overlong_punishment(max_completion_len=100, soft_punish_cache=20)
    lengths = range(0, 130)
    expected = theirs(completion_ids=[[0] * length for length in lengths])
    assert [SoftOverlong(100, 20).penalty(length) for length in lengths] == pytest.approx(expected)


def test_it_says_why() -> None:
    assert SoftOverlong(100, 20).verdict(80).reason == "within the length limit"
    assert SoftOverlong(100, 20).verdict(90).reason == "overlong: 90 tokens, the penalty begins at 80"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_length": 4096}, "must be larger than buffer=4096"),
        ({"max_length": 100, "buffer": 0}, "buffer=0 must be positive"),
        ({"max_length": 100, "buffer": 10, "factor": 0.0}, r"factor=0.0 must be positive"),
        ({"max_length": 100, "buffer": 10, "factor": float("nan")}, "factor=nan must be positive"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SoftOverlong(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("completion", "form", "score"),
    [
        (r"so \boxed{5}", "boxed", 1.0),
        (r"so \boxed{5", "boxed", 0.0),
        (r"so \boxed{}", "boxed", 0.0),
        (r"\boxed{5} \boxed{6}", "boxed", 1.0),
        (r"\boxed{5} \boxed{6}", "one_box", 0.0),
        (r"\boxed{5}", "one_box", 1.0),
        ("x\nAnswer: 5", "answer_line", 1.0),
        ("Answer: 5\nx", "answer_line", 0.0),
        ("<think>a</think>b", "think", 1.0),
        ("\n<think>\na\n</think>\n\nb", "think", 1.0),
        ("<think>a</think>", "think", 0.0),
        ("<think> </think>b", "think", 0.0),
        ("x<think>a</think>b", "think", 0.0),
        ("<think>a</think>b<think>c</think>d", "think", 0.0),
        ("a</think>b", "think", 0.0),
    ],
)
def test_forms(completion: str, form: str, score: float) -> None:
    assert check_form(completion, form).score == score  # type: ignore[arg-type]


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ValueError, match="form='box' is not known"):
        check_form("", "box")  # type: ignore[arg-type]


def test_the_digest_of_rewards_has_their_settings_and_parts() -> None:
    def own(completions: list[str], scale: float = 1.0, **_: object) -> list[float]:
        return [scale] * len(completions)

    def weighted(**settings: object) -> list[object]:
        given = {"weight": 1, "extract": "boxed", "form": "boxed", "buffer": 10, "scale": 1, **settings}
        parts = [
            (MathReward(extract=given["extract"]), given["weight"]),
            (OverlongReward(SoftOverlong(100, given["buffer"])), 1),
            (partial(own, scale=given["scale"]), 1),
        ]
        return [WeightedReward(parts), FormatReward(given["form"]), own]

    digest = reward_settings_digest(weighted())
    assert digest is not None
    used = weighted()
    used[0](completions=["1"], completion_ids=[[1]], answer=["1"])
    assert reward_settings_digest(used) == digest
    for name, value in {"weight": 10, "extract": "whole", "form": "think", "buffer": 20, "scale": 2}.items():
        assert reward_settings_digest(weighted(**{name: value})) != digest, name
    assert reward_settings_digest([own, own]) is None


def test_numbers_that_a_reward_reads_are_settings(monkeypatch):
    digest = reward_settings_digest([_scaled])
    assert digest is not None
    monkeypatch.setitem(globals(), "_SCALE", 0.5)
    assert reward_settings_digest([_scaled]) != digest
