"""A two-rank worker group of the real worker class, and batches for it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf, open_dict
from tensordict import TensorDict
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils import tensordict_utils as tu
from verl.workers.utils.padding import left_right_2_no_padding

from delta_rlvr.adapters.verl.internals.loss import weighted_loss
from delta_rlvr.adapters.verl.internals.worker import DeltaWorker
from delta_rlvr.adapters.verl.settings import read_settings
from verl_environment import CPU

TINY = (
    "actor_rollout_ref.actor.fsdp_config.strategy=fsdp2",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2",
)
SETTINGS = {"temperature": 1.0, "calculate_entropy": True, "compute_loss": False, "round_number": 3}


class SwitchableWorker(DeltaWorker):
    """The same worker; its settings can be changed, so that one group of processes serves every test."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def switch(self, block: dict[str, Any]) -> None:
        self.delta_settings = read_settings(block)
        self.delta_store = self.delta_settings.store(ranks_on_node=2)
        self.loss_fn = functools.partial(weighted_loss, self.loss_fn.args[0], self.delta_settings)
        self.actor.set_loss_fn(self.loss_fn)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def rebuild(self, config: DictConfig) -> None:
        """Another engine in the same process: to start processes is what takes long."""
        self.config = config
        self.init_model()

    def set_dispatch_collect(self, mesh_name: str, **ranks: Any) -> None:
        """verl registers the ranks of a mesh once; a rebuilt engine has the same."""
        self.registered: set[str] = getattr(self, "registered", set())
        if mesh_name not in self.registered:
            super().set_dispatch_collect(mesh_name, **ranks)
            self.registered.add(mesh_name)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def ask(self, question: str) -> Any:
        """What only the worker's process knows."""
        engine = self.delta_engine
        return {
            "store": lambda: str(self.delta_store),
            "engine": lambda: type(engine.module).__name__,
            "trained": lambda: sorted(
                name for name, parameter in engine.module.named_parameters() if parameter.requires_grad
            ),
            "offloads": lambda: engine.is_param_offload_enabled,
        }[question]()


def whole_config(model: str, *overrides: str, strategy: tuple[str, ...] = (*CPU, *TINY)) -> DictConfig:
    """verl's own config, as its command line would make it."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        of_model = f"actor_rollout_ref.model.path={model}"
        config = compose("ppo_trainer", overrides=[*strategy, of_model, *overrides])
    with open_dict(config):
        config.actor_rollout_ref.delta = OmegaConf.create({"method": "delta"})
    return config


@dataclass(frozen=True)
class Batch:
    """Sequences of unlike lengths with masks that have holes, and the last of them padding rows without a valid token."""

    prompts: list[torch.Tensor]
    responses: list[torch.Tensor]
    masks: list[torch.Tensor]
    advantages: list[float]
    uids: list[str]
    rewards: list[float] | None = None
    """Of each response; None: its advantage."""

    def scores(self) -> list[torch.Tensor]:
        """The rewards as verl has them: at the last token of a response."""
        rewards = self.advantages if self.rewards is None else self.rewards
        return [
            torch.tensor([0.0] * (len(response) - 1) + [reward])
            for response, reward in zip(self.responses, rewards, strict=True)
        ]

    def _made(self, fields: dict[str, Any], extra: dict[str, Any]) -> TensorDict:
        """With further tensors and settings, and what tells the responses apart."""
        tensors = {key: value for key, value in extra.items() if isinstance(value, torch.Tensor)}
        settings = {key: value for key, value in extra.items() if key not in tensors}
        ids = {"uid": self.uids, "index": list(range(len(self.uids))), "session_id": [0] * len(self.uids)}
        return tu.get_tensordict(fields | tensors | ids, SETTINGS | settings)

    def tensordict(self, **extra: Any) -> TensorDict:
        def nested(rows: list[torch.Tensor]) -> torch.Tensor:
            return torch.nested.as_nested_tensor(rows, layout=torch.jagged)

        sequences = [torch.cat(pair) for pair in zip(self.prompts, self.responses, strict=True)]
        fields: dict[str, Any] = {
            "prompts": nested(self.prompts),
            "responses": nested(self.responses),
            "response_mask": nested(self.masks),
            "loss_mask": nested(self.masks),
            "input_ids": nested(sequences),
            "position_ids": nested([torch.arange(len(sequence)) for sequence in sequences]),
            "advantages": nested([one * mask.float() for one, mask in zip(self.advantages, self.masks, strict=True)]),
            "rm_scores": nested(self.scores()),
        }
        return self._made(fields, extra)

    def padded(self, **extra: Any) -> TensorDict:
        """The same as the classic trainer sends it: padded by us, then turned by verl's own function."""
        pad = torch.nn.utils.rnn.pad_sequence
        prompts = pad(self.prompts, batch_first=True, padding_side="left")
        responses = pad(self.responses, batch_first=True)
        here = [
            pad([torch.ones_like(row) for row in rows], batch_first=True, padding_side=side)
            for rows, side in ((self.prompts, "left"), (self.responses, "right"))
        ]
        attention, mask = torch.cat(here, 1), pad(self.masks, batch_first=True)
        fields = {
            "prompts": prompts,
            "responses": responses,
            "input_ids": torch.cat([prompts, responses], 1),
            "attention_mask": attention,
            "position_ids": (attention.cumsum(1) - 1).clamp(min=0),
            "response_mask": mask,
            "advantages": torch.tensor(self.advantages)[:, None] * mask,
            "token_level_rewards": pad(self.scores(), batch_first=True),
        }
        return left_right_2_no_padding(self._made(fields, extra))


def make_batch(vocabulary: int, rows: int = 8, padding_rows: int = 2, seed: int = 0) -> Batch:
    """Random tokens; the first rank (first half) gets long responses and the second short ones and the padding."""
    draw = torch.Generator().manual_seed(seed)

    def integers(low: int, high: int, size: tuple[int, ...] = (1,)) -> torch.Tensor:
        return torch.randint(low, high, size, generator=draw)

    prompts, responses, masks = [], [], []
    for row in range(rows):
        long = row < rows // 2
        prompt = int(integers(3, 9))
        response = int(integers(12, 20)) if long else int(integers(2, 6))
        mask = (torch.rand(response, generator=draw) > 0.15).long()
        mask[0] = 1
        if row >= rows - padding_rows:
            response, mask = 1, torch.zeros(1, dtype=torch.int64)
        prompts.append(integers(2, vocabulary, (prompt,)))
        responses.append(integers(2, vocabulary, (response,)))
        masks.append(mask)
    advantages = [1.5, -0.5, 0.0, 0.7, -1.2, 0.4, 0.0, 0.0][:rows]
    return Batch(prompts, responses, masks, advantages, [f"prompt-{row // 2}" for row in range(rows)])
