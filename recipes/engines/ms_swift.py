"""Token credit on ms-swift (read and tried with 4.6.0), as a plug-in of its command line:

    DELTA_METHOD=delta-scalar swift rlhf --rlhf_type grpo --external_plugins recipes/engines/ms_swift.py ...

ms-swift computes old log-probs of every micro-batch before the advantages, and holds advantages per token: both are in `grpo_batch`.
The weights are solved for over all micro-batches of the generation batch, and over all ranks.
"""

import os

import torch
import torch.distributed as dist
from swift.rlhf_trainers import GRPOTrainer
from swift.trainers import TrainerFactory

from delta_rlvr.adapters.any_trainer import token_weights
from delta_rlvr.adapters.engines import MS_SWIFT, check_engine
from delta_rlvr.objectives import get_method

METHOD = os.environ.get("DELTA_METHOD", "delta-scalar")
check_engine(get_method(METHOD), MS_SWIFT)


class TokenCreditTrainer(GRPOTrainer):
    def _postprocess_batch(self, samples, batch_encoded_inputs):
        super()._postprocess_batch(samples, batch_encoded_inputs)
        if not self.model.training or get_method(METHOD).rule.constant:
            return
        batches = [one["grpo_batch"] for one in batch_encoded_inputs]
        if any(one.teacher_per_token_logps is not None for one in batches):
            raise ValueError("token credit needs one advantage per response: train without a teacher")
        masks = [row.bool() for one in batches for row in one.completion_mask]
        weights = token_weights(
            [row for one in batches for row in one.old_per_token_logps],
            torch.cat([_shared(one) for one in batches]),
            masks,
            method=METHOD,
            ranks=dist.group.WORLD if self.accelerator.num_processes > 1 else None,
            round_number=self.state.global_step,
        )
        for one in batches:
            rows, weights = weights[: len(one.advantages)], weights[len(one.advantages) :]
            one.advantages = one.advantages * torch.stack(rows)


def _shared(batch):
    """A_i of each response, from where it has a token."""
    inside = torch.where(batch.completion_mask.bool(), batch.advantages, 0.0)
    return inside.gather(1, inside.abs().argmax(1, keepdim=True))[:, 0]


TrainerFactory.TRAINER_MAPPING["grpo"] = f"{__name__}.TokenCreditTrainer"
