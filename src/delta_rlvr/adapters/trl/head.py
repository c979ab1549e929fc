"""The LM head of a model: its whole weight, and the scale of its logits."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor


def whole_head(model: Any, fsdp_root: Any | None) -> Float[Tensor, "vocab width"]:
    """Return the LM head's weight, gathered if it is sharded. `fsdp_root` is the outermost unit under FSDP."""
    weight = model.get_output_embeddings().weight
    if hasattr(weight, "full_tensor"):  # FSDP2's DTensor
        return weight.full_tensor().detach()
    if hasattr(weight, "ds_id"):  # DeepSpeed ZeRO-3
        import deepspeed

        with deepspeed.zero.GatheredParameters([weight]):
            return weight.detach().clone()
    if fsdp_root is not None:
        from torch.distributed.fsdp import FullyShardedDataParallel

        # The head is in the outermost unit unless it was wrapped by itself: then everything has to be gathered.
        for everything in (False, True):
            with FullyShardedDataParallel.summon_full_params(fsdp_root, recurse=everything, writeback=False):
                weight = model.get_output_embeddings().weight
                if weight.dim() == 2 and weight.numel():
                    return weight.detach().clone()
    return weight.detach()


def check_head(model: Any, method: str) -> None:
    """Refuse a model whose logits the head proxies do not describe."""
    text_config = model.config.get_text_config()
    for trait, value in (
        ("caps its logits (final_logit_softcapping)", getattr(text_config, "final_logit_softcapping", None)),
        ("adds a bias to its logits", getattr(model.get_output_embeddings(), "bias", None)),
    ):
        if value is not None:
            raise ValueError(
                f"method {method!r} needs the LM head's gradient, which is not implemented for a model that "
                f"{trait}; use proxy='output_row'"
            )


def logit_scale(text_config: Any) -> float:
    """Return the factor of a model's logits, by the names that TRL's fused head knows, in its order."""
    for name in ("logit_scale", "output_multiplier", "lm_head_multiplier"):
        if getattr(text_config, name, None) is not None:
            return float(getattr(text_config, name))
    divisor = getattr(text_config, "logits_scaling", None)
    if divisor is None:
        return 1.0
    return float(divisor if text_config.model_type == "hyperclovax" else 1 / divisor)
