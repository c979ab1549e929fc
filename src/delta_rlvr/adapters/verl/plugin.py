"""The entry point that verl loads in every process (group `verl.plugins`).

verl logs a plug-in that fails to import at DEBUG and goes on. A launch that asks for one of our modes must not go on, so the
failure is said aloud, and the mode is registered all the same, as one that stops the launch with the reason.
"""

from __future__ import annotations

import logging
from typing import Any

_log = logging.getLogger(__name__)


def register_failure(error: BaseException) -> None:
    """Make `delta_sync` a mode that says why it is not there."""
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    reason = f"{type(error).__name__}: {error}"

    class FailedToLoad(PPOTrainerSync):
        def __init__(self, config: Any):
            raise RuntimeError(
                f"trainer_mode=delta_sync is not there, because delta-rlvr's plug-in failed to import on this node: {reason}. "
                "Install it with `pip install 'delta-rlvr[verl]'` on every node"
            )

    TRAINER_REGISTRY["delta_sync"] = FailedToLoad


try:
    from delta_rlvr.adapters.verl import internals  # noqa: F401
except Exception as error:  # whatever it is, it is raised again once the launch is sure to hear of it
    _log.error("delta-rlvr's verl plug-in failed to import: %s: %s", type(error).__name__, error)
    register_failure(error)
    raise
