"""Workers that are started for a test, and what they are compared with: plain transformers and the single-process core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from delta_rlvr.credit import credit_record
from delta_rlvr.models import load_policy, resolve_model
from delta_rlvr.objectives import get_method
from rounding import MODEL, assert_clear_cut, rounding

if TYPE_CHECKING:
    from verl_workers import Batch

# Two passes through the bundled policy; its states reach a weight by way of margins over their spread.
WEIGHTS = rounding(MODEL, size=2.0)


def started_workers(*overrides: str) -> Iterator[Any]:
    """Two ranks of the real worker, until the test is done with them."""
    import ray
    from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

    from verl_workers import SwitchableWorker

    workers = RayWorkerGroup(
        RayResourcePool([2], use_gpu=True, max_colocate_count=1),
        RayClassWithInitArgs(ray.remote(SwitchableWorker), config=worker_config(*overrides), role="actor"),
        device_name="cpu",
    )
    workers.init_model()
    yield workers
    for worker in workers.workers:
        ray.kill(worker)


def worker_config(*overrides: str) -> Any:
    """The workers' part of verl's config, for the bundled policy."""
    from verl_workers import whole_config

    return whole_config(resolve_model("builtin"), *overrides).actor_rollout_ref


@dataclass(frozen=True)
class Plain:
    """The same batch by transformers alone: one row at a time, no padding, one process. Padded on the right to [batch, time]."""

    hidden: torch.Tensor
    logps: torch.Tensor
    entropy: torch.Tensor
    mask: torch.Tensor
    tokens: torch.Tensor
    advantages: torch.Tensor
    groups: torch.Tensor
    head: torch.Tensor


def plain_pass(batch: Batch) -> Plain:
    """Run the bundled policy over the batch."""
    model, _ = load_policy()
    pad = torch.nn.utils.rnn.pad_sequence
    hidden, logps, entropy = [], [], []
    with torch.no_grad():
        for prompt, response in zip(batch.prompts, batch.responses, strict=True):
            states = model.get_decoder()(torch.cat([prompt, response])[None]).last_hidden_state[0]
            states = states[len(prompt) - 1 : -1]
            chances = model.get_output_embeddings()(states).log_softmax(-1)
            hidden.append(states)
            logps.append(chances.gather(-1, response[:, None])[:, 0])
            entropy.append(-(chances.exp() * chances).sum(-1))
    return Plain(
        hidden=pad(hidden, batch_first=True),
        logps=pad(logps, batch_first=True),
        entropy=pad(entropy, batch_first=True),
        mask=pad(batch.masks, batch_first=True).bool(),
        tokens=pad(batch.responses, batch_first=True),
        advantages=torch.tensor(batch.advantages),
        groups=torch.arange(len(batch.prompts)) // 2,
        head=model.get_output_embeddings().weight.detach(),
    )


def core_weights(plain: Plain, method: str, keys: torch.Tensor | None = None) -> torch.Tensor:
    rule = get_method(method).rule
    record = credit_record(**vars(plain), rule=rule, keys=keys, round_number=3)
    assert_clear_cut(rule, record, plain.entropy[plain.mask])
    return record.padded(record.weights, plain.mask)


def worker_weights(group: Any, batch: Batch, block: dict[str, Any], **layout: Any) -> torch.Tensor:
    group.switch(block)
    group.compute_log_prob(batch.tensordict(**layout))
    return solved_weights(group, batch.tensordict(detail=True))


def solved_weights(group: Any, data: Any) -> torch.Tensor:
    """Those that follow the last pass, padded."""
    return group.compute_token_weights(data)["delta_weights"].to_padded_tensor(0.0)


def of_responses(whole: Any, batch: Batch) -> torch.Tensor:
    """What was computed where each response token is predicted, of whole sequences; padded."""
    rows = [
        row[len(prompt) - 1 : len(prompt) - 1 + len(response)]
        for row, prompt, response in zip(whole.unbind(), batch.prompts, batch.responses, strict=True)
    ]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def nested(rows: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Padded rows of response tokens as the V1 trainer has them."""
    lengths = [len(response) for response in batch.responses]
    return torch.nested.as_nested_tensor(
        [row[:length] for row, length in zip(rows, lengths, strict=True)], layout=torch.jagged
    )


def update(group: Any, batch: Batch, old_logps: torch.Tensor, **extra: torch.Tensor) -> dict[str, float]:
    """One optimizer step: its loss and what the loss saw."""
    extra["old_log_probs"] = old_logps
    fields = {name: nested(rows, batch) for name, rows in extra.items()}
    return _updated(group, batch.tensordict(**fields, **_step_of(batch)))


def padded_update(group: Any, batch: Batch, old_logps: torch.Tensor, **extra: torch.Tensor) -> dict[str, float]:
    """The same from padded fields, as the classic trainer has them."""
    extra["old_log_probs"] = old_logps
    return _updated(group, batch.padded(**extra, **_step_of(batch)))


def _step_of(batch: Batch) -> dict[str, Any]:
    return {
        "use_remove_padding": True,
        "calculate_entropy": False,
        "compute_loss": True,
        "global_batch_size": len(batch.prompts),
        "mini_batch_size": len(batch.prompts),
        "epochs": 1,
        "seed": 42,
        "dataloader_kwargs": {"shuffle": False},
    }


def _updated(group: Any, data: Any) -> dict[str, float]:
    from verl.utils import tensordict_utils as tu
    from verl.utils.metric import reduce_metrics

    return reduce_metrics(tu.get(group.update_actor(data), "metrics"))
