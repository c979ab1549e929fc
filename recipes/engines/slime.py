"""Token credit on slime (read at version 0.3.1, commit 624b824a), by its own option:

    --advantage-estimator grpo --custom-advantage-function-path recipes.engines.slime.token_credit

slime has normalised the rewards within each group by then, so that a response's reward is its advantage; log-probs are those of the
training backend before the update (`--use-rollout-logprobs`: those of the sampler). Each data-parallel rank sees its own responses, and
with context parallelism its own part of them: statistics are summed over both.
"""

import os

import torch
from megatron.core import mpu
from slime.backends.megatron_utils.cp_utils import slice_log_prob_with_cp

from delta_rlvr.adapters.any_trainer import token_weights
from delta_rlvr.adapters.engines import SLIME, check_engine
from delta_rlvr.objectives import get_method

METHOD = os.environ.get("DELTA_METHOD", "delta-scalar")
check_engine(get_method(METHOD), SLIME)


def token_credit(args, rollout_data):
    if args.normalize_advantages:
        raise ValueError("--normalize-advantages would undo token credit: leave it out")
    if mpu.get_context_parallel_world_size() > 1 and not get_method(METHOD).rule.sees_slices:
        raise ValueError(f"{METHOD} looks at whole responses, which context parallelism cuts: set it to 1")
    logps = rollout_data["rollout_log_probs" if args.use_rollout_logprobs else "log_probs"]
    rewards = torch.tensor(rollout_data["rewards"], dtype=torch.float32, device=logps[0].device)
    sizes = zip(
        rollout_data["loss_masks"], rollout_data["total_lengths"], rollout_data["response_lengths"], strict=True
    )
    masks = [slice_log_prob_with_cp(mask, total, response).bool() for mask, total, response in sizes]
    weights = token_weights(
        logps,
        rewards,
        masks,
        method=METHOD,
        ranks=mpu.get_data_parallel_group(with_context_parallel=True),
        round_number=getattr(args, "rollout_id", 0),
    )
    rollout_data["advantages"] = [reward * weight for reward, weight in zip(rewards, weights, strict=True)]
    rollout_data["returns"] = rollout_data["advantages"]
