"""verl on CPU: the environment that makes it possible, one Ray session for the tests of the worker, and batches of real rollouts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "support"
sys.path.insert(0, str(SUPPORT))

ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",  # verl registers its FSDP engine for cuda and npu alone
    "VERL_USE_EXTERNAL_MODULES": "verl_on_cpu",
    "VERL_LOGGING_LEVEL": "WARN",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AUTH_MODE": "disabled",  # this machine alone, and no token file in the home folder
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "HYDRA_FULL_ERROR": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}


def environment() -> dict[str, str]:
    """The environment of a process that runs verl on CPU."""
    paths = [str(SUPPORT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths)}


@pytest.fixture(scope="session")
def verl_environment() -> Iterator[None]:
    """This process as one that runs verl on CPU; everything is put back at the end."""
    before = dict(os.environ)
    os.environ.update(environment())
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def ray_session(verl_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A local Ray with two logical accelerators, which is gone when the tests are."""
    import ray

    assert not ray.is_initialized()
    # Sockets live under the folder, and their paths must be short.
    ray.init(
        num_cpus=4,
        num_gpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=200 << 20,
        _temp_dir=None,
    )
    yield
    ray.shutdown()
