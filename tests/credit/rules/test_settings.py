"""Settings of every method: what is refused, and that rules keep to the rules under others than their defaults."""

import re

import pytest

from delta_rlvr.objectives import get_method
from delta_rlvr.testing import check_rule


@pytest.mark.parametrize(
    "method",
    [
        *("confidence?right=2&wrong=-2", "fading?nats=10", "entropy-advantage?alpha=3&kappa=1"),
        *("gtpo?alpha1=0&alpha2=3", "nthr?beta=0.5", "thr?beta=0.1&exploit=-0.5", "thr?beta=0"),
        *("ktae?frequency=0&scale=0.5&gain=2&ignored_token=3", "rsi-s?low=0.5&high=2", "rsi-s?low=0&high=inf"),
        *("stare?target_entropy=inf", "stare?share=0.5&positive=1.5&negative=0.25&target_entropy=100"),
        *("advantage-reweighting?alpha=0.2", "rlvr-directions?c=0.7", "delightful?eta=0.5"),
        *("a3po?share=0.4&boost=3", "steer?lambda_min=0.6"),
        *(
            f"delta-{part}?{settings}"
            for part in ("side", "token", "scale", "mass")
            for settings in ("scope=group&proxy=head", "assignment=hard&range_map=false", "mean_over=signal")
        ),
    ],
)
def test_rules_keep_to_the_rules(method):
    check_rule(get_method(method).rule, batches=1 if method.startswith("delta-") else 3)


REFUSED = {
    "confidence?right=2.5": "[-2, 2]",
    "fading?wrong=nan": "[-2, 2]",
    "fading?nats=0": "(0, inf)",
    "fading?nats=inf": "(0, inf)",
    "entropy-advantage?alpha=-1": "[0, inf)",
    "entropy-advantage?kappa=0.5": "[1, inf)",
    "entropy-advantage?kappa=nan": "[1, inf)",
    "entropy-advantage?kappa=inf": "[1, inf)",
    "dapo-ft?quantile=1": "[0, 1)",
    "gtpo?alpha1=-0.5": "[0, inf)",
    "gtpo?alpha2=nan": "[0, inf)",
    "gtpo?floor=0": "(0, inf)",
    "nthr?beta=-0.1": "[0, inf)",
    "thr?beta=inf": "[0, inf)",
    "thr?exploit=1.5": "[-1, 1]",
    "ktae?fisher=-1": "[0, inf)",
    "ktae?scale=nan": "[0, inf)",
    "ktae?saturation=0": "(0, inf)",
    "ktae?length_share=1": "[0, 1)",
    "advantage-reweighting?alpha=1.5": "[0, 1]",
    "tr-grpo?steepness=nan": "(-inf, inf)",
    "rlvr-directions?c=-0.1": "[0, inf)",
    "delightful?eta=0": "(0, inf)",
    "w-reinforce?right=inf": "[0, inf)",
    "a3po?share=0": "(0, 1]",
    "a3po?boost=0.5": "[1, inf)",
    "steer?lambda_min=0": "(0, 1]",
    "rsi-s?low=-0.1": "[0, inf]",
    "rsi-s?high=nan": "[0, inf]",
    "stare?share=0": "(0, 1]",
    "stare?positive=-1": "[0, inf)",
    "stare?negative=inf": "[0, inf)",
    "stare?target_entropy=nan": "[0, inf]",
    "delta?lambda_min=-0.1": "[0, inf)",
    "delta-token?lambda_min=-1": "[0, inf)",
    "delta?refinements=-1": "[0, inf)",
    "delta?top_k=0": "[1, inf)",
    "delta-top50?share=0": "(0, 1]",
    "delta-top50?seed=-1": "[0, inf)",
    "delta-random50?share=0": "(0, 1]",
    "delta-random50?seed=-1": "[0, inf)",
    "delta-random?seed=-1": "[0, inf)",
    "surprise?lambda_min=-1": "[0, inf)",
    "measured?lambda_max=0": "(0, inf)",
    "fipo?decay=1": "[0, 1)",
    "fipo?weight_low=1.1": "(0, 1]",
    "fipo?weight_high=0.9": "[1, inf)",
    "fipo?dual=1": "(1, inf)",
}


@pytest.mark.parametrize("method", REFUSED)
def test_settings_out_of_their_range_are_refused(method):
    name = re.search(r"\?(\w+)=", method)[1]
    with pytest.raises(ValueError, match=rf"^{name}=\S+: give a (?:whole )?number in {re.escape(REFUSED[method])}$"):
        get_method(method)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("gtpo?alpha1=0&alpha2=0", "alpha1=0, alpha2=0: give one of them a positive number"),
        ("ktae?fisher=0&gain=0", "fisher=0, gain=0: give one of them a positive number"),
        ("tr-grpo?low=2", "low=2.0, high=1.4: give low <= high"),
        ("rsi-s?low=2&high=1", "low=2.0, high=1.0: give low <= high"),
        ("delta?lambda_min=1.3", "lambda_min=1.3 is above lambda_max=1.2: swap them"),
        ("surprise?lambda_min=1.3", "lambda_min=1.3 is above lambda_max=1.2: swap them"),
        ("measured?lambda_min=2", "lambda_min=2.0 is above lambda_max=1.0: swap them"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(method, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        get_method(method)
