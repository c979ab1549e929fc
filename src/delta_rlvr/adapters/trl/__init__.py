"""DelTA on TRL: `DeltaTrainer` and `DeltaTrainerConfig` replace `GRPOTrainer` and `GRPOConfig`."""

from delta_rlvr.adapters.trl.config import DeltaTrainerConfig
from delta_rlvr.adapters.trl.rollout_batch import RolloutBatch
from delta_rlvr.adapters.trl.trainer import DeltaTrainer
from delta_rlvr.adapters.trl.version import check_trl_version

__all__ = ["DeltaTrainer", "DeltaTrainerConfig", "RolloutBatch", "check_trl_version"]
