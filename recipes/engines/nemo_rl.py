"""Token credit on NeMo-RL (read at v0.7.0 and commit 7ea279ab), in front of its own script:

    DELTA_METHOD=delta-scalar python recipes/engines/nemo_rl.py examples/run_grpo.py --config examples/configs/grpo_math_1B.yaml

NeMo-RL names its advantage estimators in a closed list. `grpo.adv_estimator.name=grpo` (the default) is made ours here; it sees
the whole batch on the driver: rewards, prompts, mask and the policy's log-probs before the update.
"""

import os
import runpy
import sys

from nemo_rl.algorithms import grpo
from nemo_rl.algorithms.advantage_estimator import GRPOAdvantageEstimator

from delta_rlvr.adapters.any_trainer import token_weights
from delta_rlvr.adapters.engines import NEMO_RL, check_engine
from delta_rlvr.objectives import get_method

METHOD = os.environ.get("DELTA_METHOD", "delta-scalar")
check_engine(get_method(METHOD), NEMO_RL)


class TokenCreditEstimator(GRPOAdvantageEstimator):
    calls = 0

    def compute_advantage(self, prompt_ids, rewards, mask, logprobs_policy=None, **kwargs):
        advantages = super().compute_advantage(prompt_ids, rewards, mask, **kwargs)
        valid = mask.bool()
        if logprobs_policy is None or not logprobs_policy[valid].any():
            raise ValueError(
                "NeMo-RL skipped the policy's log-probs, which token credit reads: set loss_fn.force_on_policy_ratio=false"
            )
        self.calls += 1
        # One number per prompt: prompts are given as rows of token ids.
        groups = prompt_ids.reshape(len(rewards), -1).unique(dim=0, return_inverse=True)[1]
        weights = token_weights(
            logprobs_policy, advantages, valid, method=METHOD, groups=groups, rewards=rewards, round_number=self.calls
        )
        return advantages * weights


grpo.GRPOAdvantageEstimator = TokenCreditEstimator

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
