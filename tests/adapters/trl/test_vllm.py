"""vLLM in the trainer's process (colocate), with the CPU build of vLLM: docs/training.md says how to install it."""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from rounding import rounding

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]

TIMES = ("step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second")


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """Trains once for each method and settings, and gives what was logged."""
    folder = tmp_path_factory.mktemp("vllm")

    def run(method, **settings):
        place = folder / f"{method} {sorted(settings.items())}.json"
        if not place.exists():
            command = [sys.executable, str(Path(__file__).parents[2] / "support" / "vllm_main.py"), method, str(place)]
            done = subprocess.run(
                [*command, json.dumps(settings)],
                env={**os.environ, "MASTER_PORT": "29511"},
                capture_output=True,
                text=True,
                check=False,
                timeout=1700,
            )
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
        return json.loads(place.read_text())

    return run


@pytest.mark.parametrize("corrected", [True, False])
def test_dapo_logs_what_stock_logs(train, corrected):
    """With TRL's importance correction of the sampler's log-probs, and without."""
    # One update a batch, where the upper bound of the clip does not matter.
    setting = {"vllm_importance_sampling_correction": corrected}
    stock, ours = train("stock", **setting)["log"], train("dapo", **setting)["log"]
    assert len(stock) == len(ours) == 5
    for theirs, mine in zip(stock, ours, strict=True):
        assert {name: value for name, value in theirs.items() if name not in TIMES} == {
            name: value for name, value in mine.items() if name not in TIMES and not name.startswith("credit/")
        }
    assert ("sampling/importance_sampling_ratio/mean" in stock[0]) == corrected


@pytest.mark.parametrize("corrected", [True, False])
def test_delta_trains(train, corrected):
    """From the pass that the correction needs anyway, and from the training forward."""
    run = train("delta", vllm_importance_sampling_correction=corrected)
    assert len(run["weights"]) == 4
    for weights in run["weights"]:
        assert statistics.fmean(weights) == pytest.approx(1, abs=rounding(100))
        assert statistics.pstdev(weights) > 0.01
    assert all(line["grad_norm"] > 0 for line in run["log"][:-1])


# The trainer computes in float32. In bfloat16 (8 bits) the sampler's log-probs are up to 0.15 away, and weights move by a fifth of it.
@pytest.mark.parametrize(("dtype", "most", "mean"), [("float32", 1e-4, 1e-5), ("bfloat16", 0.05, 0.01)])
def test_weights_from_the_samplers_logps(train, dtype, most, mean):
    """vLLM's log-probs of the first batch are the policy's but for rounding, and so are the weights that are read from them."""
    setting = {"vllm_importance_sampling_correction": False, "sampler_dtype": dtype}
    policy = train("delta-scalar", **setting)["weights"][0]
    sampler = train("delta-scalar", logps_from="sampler", **setting)["weights"][0]
    apart = [abs(one - other) for one, other in zip(sampler, policy, strict=True)]
    average = statistics.fmean(apart)
    print(f"vLLM in {dtype}: weights differ by {max(apart):.2g} at most, by {average:.2g} on average")
    assert 0 < max(apart) < most
    assert average < mean
