"""Updates in the policy's own parameters: where they point, and FIPO's weights a step later."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from delta_evidence.rollouts import Rollouts, row_pieces
from delta_evidence.stack.policy import StackedPolicy, clip_gradients
from delta_evidence.weighing import BatchWeigher
from delta_rlvr.objectives import LossInputs, Method, Surrogate, get_method, policy_loss

MAX_GRAD_NORM = 1.0
"""What the step before FIPO's weights is clipped at, as in training."""


def take_rows(rollouts: Rollouts, rows: Int[Tensor, " some"]) -> Rollouts:
    """Some responses of a rollout batch. Their advantages stay those of the whole group."""

    def picked(value: Any) -> Any:
        if isinstance(value, list):
            return [value[row] for row in rows.tolist()]
        return value[rows] if isinstance(value, Tensor) else value

    return Rollouts(**{name: picked(value) for name, value in vars(rollouts).items()})


def response_logps(
    policy: StackedPolicy, rollouts: Rollouts, rows: slice = slice(None), copies: int = 1
) -> Float[Tensor, "batch time"]:
    """log pi_theta of a lone policy's responses, with its graph. Where `copies` responses to each prompt stand side by side, and
    `rows` are whole groups of them, a prompt is read once for all of them, and nothing is read of padding."""
    if policy.runs != 1:
        raise ValueError(f"policy: {policy.runs} runs in the stack; updates are taken of one policy at a time")
    ids = rollouts.completion_ids[None, rows]
    first = slice(rows.start, rows.stop, copies)
    mask = rollouts.mask[None, rows] if copies > 1 else None
    hidden = policy.response_hidden(
        rollouts.prompt_ids[None, first], rollouts.prompt_mask[None, first], ids, copies=copies, mask=mask
    )
    return policy.token_logps(hidden, ids, rollouts.temperature, mask=mask)[0][0]


def update_vectors(
    policy: StackedPolicy,
    rollouts: Rollouts,
    weights: Sequence[Float[Tensor, "batch time"]],
    *,
    rows_at_once: int = 256,
    copies: int = 1,
) -> Float[Tensor, "method parameters"]:
    """sum rho A grad log pi over all parameters for each set of weights (Eq. 2 under rho): one backward pass each. `copies` as in
    `response_logps`, for rollouts that are whole groups."""
    parameters = list(policy.parameters())
    updates = torch.zeros(len(weights), sum(parameter.numel() for parameter in parameters), device=rollouts.mask.device)
    for rows in row_pieces(len(rollouts.mask), 1, rows_at_once, copies):
        logps = response_logps(policy, rollouts, rows, copies)
        for place, rho in enumerate(weights):
            strength = torch.where(rollouts.mask[rows], rho[rows] * rollouts.advantages[rows, None], 0.0)
            gradients = torch.autograd.grad(logps, parameters, strength.to(logps), retain_graph=True)
            updates[place] += torch.cat([gradient.flatten() for gradient in gradients])
    return updates


def cosines(updates: Float[Tensor, "method parameters"], reference: Float[Tensor, " parameters"]) -> list[float]:
    """Cosine of each update with the reference."""
    return [torch.cosine_similarity(update.double(), reference.double(), dim=0).item() for update in updates]


def weights_after_a_step(
    policy: StackedPolicy, rollouts: Rollouts, surrogate: Surrogate, *, learning_rate: float, rows_at_once: int = 256
) -> Float[Tensor, "batch time"]:
    """FIPO's token weights as they are in the second of two mini-batches.

    At theta_old they are one. So the prompts are cut into two halves, and each half is weighed by the policy that took one DAPO step
    (AdamW's first, clipped as in training) on the other half: every token gets the weight that it would have as a member of the
    second mini-batch.
    """
    weights = torch.zeros_like(rollouts.logps)
    for trained_on, weighed in _halves(rollouts.groups):
        updated = _dapo_step(policy, take_rows(rollouts, trained_on), learning_rate, rows_at_once)
        here = take_rows(rollouts, weighed)
        pieces = row_pieces(len(weighed), 1, rows_at_once)
        with torch.no_grad():
            logps = torch.cat([response_logps(updated, here, rows) for rows in pieces])
        shift = LossInputs(logps, here.logps, here.advantages, here.mask).log_ratio
        advantages = here.advantages[:, None].expand_as(shift)
        weights[weighed] = surrogate.reweigh(shift, advantages, here.mask)
    return weights


def method_weights(
    policy: StackedPolicy,
    weigher: BatchWeigher,
    methods: Sequence[Method],
    *,
    learning_rate: float,
    rows_at_once: int = 256,
) -> dict[str, Float[Tensor, "batch time"]]:
    """Every method's token weights on one rollout batch; those of a surrogate that weighs tokens itself are taken a step later."""
    weights = {}
    for method in methods:
        if method.surrogate.reweighs:
            weights[method.name] = weights_after_a_step(
                policy, weigher.rollouts, method.surrogate, learning_rate=learning_rate, rows_at_once=rows_at_once
            )
        else:
            weights[method.name] = weigher.weights(method.rho)
    return weights


def _halves(groups: Int[Tensor, " batch"]) -> list[tuple[Int[Tensor, " half"], Int[Tensor, " half"]]]:
    """(rows to train on, rows to weigh), both ways round; a prompt's responses stay together."""
    prompts = groups.unique()
    first = torch.isin(groups, prompts[: len(prompts) // 2])
    if not first.any():
        raise ValueError("rollouts: a step on half of the prompts needs at least 2 prompts")
    one, other = first.nonzero()[:, 0], (~first).nonzero()[:, 0]
    return [(one, other), (other, one)]


def _dapo_step(policy: StackedPolicy, rollouts: Rollouts, learning_rate: float, rows_at_once: int) -> StackedPolicy:
    """A copy of the policy after one DAPO step on these rollouts."""
    updated, surrogate = copy.deepcopy(policy), get_method("dapo").surrogate
    optimizer = torch.optim.AdamW(updated.parameters(), lr=learning_rate, weight_decay=0.0)
    for rows in row_pieces(len(rollouts.mask), 1, rows_at_once):
        inputs = LossInputs(
            response_logps(updated, rollouts, rows),
            rollouts.logps[rows],
            rollouts.advantages[rows],
            rollouts.mask[rows],
        )
        policy_loss(inputs, surrogate, denominator=rollouts.mask.sum()).backward()
    clip_gradients(updated, MAX_GRAD_NORM)
    optimizer.step()
    return updated
