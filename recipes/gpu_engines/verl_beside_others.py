"""Loaded into verl's processes by VERL_USE_EXTERNAL_MODULES: beside TRL, and beside other runs of verl on the same GPU."""

import os

from ray.runtime_context import RuntimeContext
from verl.utils import import_utils

import_utils.is_trl_available = lambda: False  # type: ignore[assignment]  # verl 0.9 looks for a class that TRL 1.16 lacks

# The first job of every Ray has the same id, by which verl names the socket that weights go through.
_job_id = RuntimeContext.get_job_id
RuntimeContext.get_job_id = lambda self: f"{_job_id(self)}-{os.environ['PROVE_CASE']}"  # type: ignore[method-assign]
