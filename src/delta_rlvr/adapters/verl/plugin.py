"""The entry point that verl loads in every process (group `verl.plugins`).

verl logs a plug-in that fails to import at DEBUG and continues. A launch with DelTA must not continue: the failure is logged as an
error, and both trainers stop such a launch with the reason.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

_log = logging.getLogger(__name__)


def register_failure(error: BaseException) -> None:
    """Make the modes `delta_*`, and the classic trainer with a `delta` block, raise an error with the reason."""
    reason = (
        f"delta-rlvr's plug-in failed to import on this node: {type(error).__name__}: {error}. "
        "Install it with `pip install 'delta-rlvr[verl]'` on every node"
    )
    # Other versions of verl may lack one of the trainers.
    with suppress(ImportError):
        _fail_v1(f"trainer_mode=delta_* is not available: {reason}")
    with suppress(ImportError):
        _fail_classic(f"the config's delta block would be ignored: {reason}")


def _fail_v1(reason: str) -> None:
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    class FailedToLoad(PPOTrainerSync):
        def __init__(self, config: Any):
            raise RuntimeError(reason)

    for mode in ("delta_sync", "delta_colocate_async", "delta_separate_async"):
        TRAINER_REGISTRY[mode] = FailedToLoad


def _fail_classic(reason: str) -> None:
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    def refuse_block(cls: type, *args: Any, **kwargs: Any) -> Any:
        if "delta" in (kwargs["config"] if "config" in kwargs else args[0]):
            raise RuntimeError(reason)
        return object.__new__(cls)

    RayPPOTrainer.__new__ = staticmethod(refuse_block)  # type: ignore[assignment]


try:
    from delta_rlvr.adapters.verl.internals import classic, v1  # noqa: F401
except Exception as error:  # raised again, after the trainers have been told to stop the launch
    _log.error("delta-rlvr's verl plug-in failed to import: %s: %s", type(error).__name__, error)
    register_failure(error)
    raise
