"""Stops a training whose numbers are not finite before a checkpoint is saved."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState

from delta_rlvr.models.finite import NotFinite, broken

if TYPE_CHECKING:
    from delta_rlvr.adapters.trl.trainer import DeltaTrainer


class FiniteTraining(TrainerCallback):
    """Checks loss and gradient before each optimizer step, and the weights after it. All ranks stop together."""

    def __init__(self, trainer: DeltaTrainer):
        self._trainer = trainer
        self._loss: Tensor | None = None

    def see_loss(self, loss: Tensor) -> None:
        """Take note of the loss of a pass."""
        bad = ~loss.detach().isfinite().all()
        self._loss = bad if self._loss is None else self._loss | bad

    def on_pre_optimizer_step(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        device, weights = self._trainer.accelerator.device, self._weights()
        # With float16 infinite gradients occur while the loss scale adapts, and such a step is skipped.
        scaled = self._trainer.accelerator.scaler is not None
        gradient = broken((one.grad for one in weights if one.grad is not None and not scaled), device)
        loss = torch.zeros_like(gradient) if self._loss is None or scaled else self._loss.to(device)
        self._loss = None
        self._judge({"the loss is": loss, "the gradient is": gradient}, state.global_step + 1)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        weights = broken(self._weights(), self._trainer.accelerator.device)
        self._judge({"the weights are": weights}, state.global_step)

    def _weights(self) -> list[Tensor]:
        assert self._trainer.model is not None
        return [one for one in self._trainer.model.parameters() if one.requires_grad]

    def _judge(self, bad: dict[str, Tensor], step: int) -> None:
        seen: Any = self._trainer.accelerator.reduce(torch.stack([*bad.values()]).float(), "sum")
        for what, count in zip(bad, seen.tolist(), strict=True):
            if count and self._trainer.args.stop_if_not_finite:
                raise NotFinite(what, step)
            if count:
                warnings.warn(f"{what} not finite; training continues (stop_if_not_finite=False)", stacklevel=2)
