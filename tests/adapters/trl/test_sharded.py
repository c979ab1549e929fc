"""The same as on one process, on two that hold half of the weights each: FSDP2, and ZeRO-3 where DeepSpeed is installed."""

import importlib.util

import pytest
import torch

import sharded_main
from ranks import on_two_ranks
from replayed_training import build, parameters_of
from rounding import rounding
from sharded_main import CLIPPED

pytestmark = pytest.mark.timeout(600)

# Shapes in which an update goes over the whole rollout batch: where it does not, other ranks shuffle other rows into it.
REPLAYED = ["delta, one micro-batch", "delta-topk, accumulation 4"]
MORE_REPLAYED = ["delta-head, one micro-batch", "delta-group, accumulation 4", "dapo, accumulation 4"]


@pytest.fixture(scope="module")
def launch(tmp_path_factory):
    """Runs jobs on two ranks, once each, and gives what the ranks saw of one."""
    folder = tmp_path_factory.mktemp("sharded")

    def run(mode, jobs):
        place = folder / mode
        place.mkdir(exist_ok=True)
        missing = [job for job in jobs if not (place / f"{job}.0.pt").exists()]
        if missing:
            on_two_ranks(sharded_main.main, mode, place, missing, log=place / "log")
        return lambda job: [torch.load(place / f"{job}.{rank}.pt", weights_only=False) for rank in range(2)]

    return run


def assert_as_on_one_process(ranks, job):
    for rank in ranks:
        assert_sharded(rank)
    method, shape = job.split(", ")
    alone = build(method, shape, max_grad_norm=CLIPPED)
    alone.train()
    assert len(alone.batches) == len(ranks[0]["weights"])
    for number, batch in enumerate(alone.batches):
        both = torch.cat([rank["weights"][number] for rank in ranks])
        # Hidden states of later batches come from weights that differ in float32's last bits.
        torch.testing.assert_close(both, batch.record.weights, atol=1e-5, rtol=0)
        assert method == "dapo" or both.std() > 0.01
    for name, expected in parameters_of(alone).items():
        for rank in ranks:
            # A step moves a weight by 1e-3 or so: 1e-6 tells any other coefficients, loss or clipping from these.
            torch.testing.assert_close(rank["parameters"][name], expected, atol=1e-6, rtol=0, msg=name)


def assert_sharded(seen):
    """accelerate runs DDP in silence where it does not shard: then a rank holds everything."""
    assert 0.4 < seen["share"] < 0.6


def assert_trained_and_resumed(ranks):
    for rank in ranks:
        assert_sharded(rank["whole"])
        assert_sharded(rank["resumed"])
        # From the second of four steps: the same responses, weights, losses and parameters, bit for bit.
        assert rank["resumed"]["tokens"] == rank["whole"]["tokens"][2:]
        assert rank["resumed"]["losses"] == rank["whole"]["losses"][2:]
        for again, first in zip(rank["resumed"]["weights"], rank["whole"]["weights"][2:], strict=True):
            assert torch.equal(again, first)
        for name, value in rank["whole"]["parameters"].items():
            assert torch.equal(rank["resumed"]["parameters"][name], value), name
    first, second = (rank["whole"] for rank in ranks)
    assert first["tokens"] != second["tokens"]
    for mine, theirs in zip(first["weights"], second["weights"], strict=True):
        both = torch.cat([mine, theirs])
        assert both.mean().item() == pytest.approx(1, abs=rounding(len(both)))
        assert both.std() > 0.01
    for name, value in first["parameters"].items():
        assert torch.equal(second["parameters"][name], value), name


@pytest.mark.parametrize("job", REPLAYED)
def test_fsdp2_is_as_one_process(launch, job):
    jobs = launch("fsdp2", [*(f"replayed {job}" for job in REPLAYED), "real delta-topk, lora"])
    assert_as_on_one_process(jobs(f"replayed {job}"), job)


def test_fsdp2_with_lora_generates_trains_and_resumes(launch):
    assert_trained_and_resumed(launch("fsdp2", ["real delta-topk, lora"])("real delta-topk, lora"))


@pytest.mark.slow
@pytest.mark.parametrize("job", MORE_REPLAYED)
def test_fsdp2_with_other_methods(launch, job):
    jobs = launch("fsdp2", [*(f"replayed {job}" for job in MORE_REPLAYED), "real delta"])
    assert_as_on_one_process(jobs(f"replayed {job}"), job)


@pytest.mark.slow
def test_fsdp2_generates_trains_and_resumes(launch):
    assert_trained_and_resumed(launch("fsdp2", ["real delta"])("real delta"))


deepspeed = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="pip install deepspeed runs this one"
)


@deepspeed
@pytest.mark.slow
@pytest.mark.parametrize("job", REPLAYED + MORE_REPLAYED)
def test_zero3_is_as_one_process(launch, job):
    jobs = launch("zero3", [f"replayed {job}" for job in REPLAYED + MORE_REPLAYED])
    assert_as_on_one_process(jobs(f"replayed {job}"), job)


@deepspeed
@pytest.mark.slow
@pytest.mark.parametrize("job", ["real delta", "real delta-topk, lora"])
def test_zero3_generates_trains_and_resumes(launch, job):
    assert_trained_and_resumed(launch("zero3", ["real delta", "real delta-topk, lora"])(job))
