"""Token credit on TRL 0.24 to 0.29 (and on Unsloth, which stands on such a TRL): put the mixin before the trainer.

    class Trainer(TokenCredit, GRPOTrainer):
        method = "delta-scalar"

Log-probs are those of TRL's old-log-prob pass, or of one more where TRL runs none. (TRL 1.16 has `DeltaTrainer`, which adds none.)
"""

import torch
import torch.distributed as dist

from delta_rlvr.adapters.any_trainer import token_weights
from delta_rlvr.adapters.engines import OLD_TRL, check_engine
from delta_rlvr.adapters.token_advantages import for_loss
from delta_rlvr.objectives import get_method


class TokenCredit:
    method = "delta-scalar"

    def __init__(self, *args, **kwargs):
        check_engine(get_method(self.method), OLD_TRL)
        super().__init__(*args, **kwargs)

    def _calculate_rewards(self, *args, **kwargs):
        rewards = super()._calculate_rewards(*args, **kwargs)
        self._credit_rewards = (rewards * self.reward_weights.to(rewards.device)).nansum(1)
        return rewards

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        if not self.model.training or get_method(self.method).rule.constant:
            return batch
        first = self.accelerator.process_index * len(inputs)
        numbers = torch.arange(first, first + len(inputs), device=batch["advantages"].device)
        weights = token_weights(
            batch.get("old_per_token_logps") if "old_per_token_logps" in batch else self._logps(batch),
            batch["advantages"],
            (batch["completion_mask"] * batch.get("tool_mask", 1)).bool(),
            method=self.method,
            groups=numbers // self.num_generations,
            rewards=self._credit_rewards[numbers],
            ranks=dist.group.WORLD if self.accelerator.num_processes > 1 else None,
            keys=numbers,
            round_number=self.state.global_step,
            tokens=batch["completion_ids"],
        )
        return {**batch, "advantages": batch["advantages"][:, None] * weights}

    @torch.no_grad()
    def _logps(self, batch):
        ids, mask = (torch.cat([batch[f"prompt_{x}"], batch[f"completion_{x}"]], 1) for x in ("ids", "mask"))
        sizes = batch["completion_ids"].shape[1], self.args.per_device_train_batch_size
        return self._get_per_token_logps_and_entropies(self.model, ids, mask, *sizes)[0]

    def _compute_loss(self, model, inputs):
        advantages = for_loss(inputs["advantages"], super()._compute_loss)
        return super()._compute_loss(model, {**inputs, "advantages": advantages})
