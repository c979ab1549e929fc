"""verl on CPU: the environment that makes it possible, and one Ray session for the tests of the worker."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from verl_environment import environment


@pytest.fixture(scope="module")
def verl_environment() -> Iterator[None]:
    """This process as one that runs verl on CPU; everything is put back at the end."""
    before = dict(os.environ)
    os.environ.update(environment())
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def ray_session(verl_environment: None) -> Iterator[None]:
    """A local Ray with two logical accelerators, which is gone when the tests are."""
    import ray

    assert not ray.is_initialized()
    ray.init(num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=200 << 20)
    yield
    ray.shutdown()
