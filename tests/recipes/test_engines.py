"""The recipes for engines that do not install here, against stubs of what they were written from (`engine_stubs`)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import Tensor

import engine_stubs
from delta_rlvr.adapters.any_trainer import token_weights
from delta_rlvr.adapters.running import RunningCentroids, running_weights
from delta_rlvr.credit.rule import RuleError

FOLDER = Path(__file__).parents[2] / "recipes" / "engines"


def load(name: str) -> ModuleType:
    """The recipe, as a fresh module (recipes read the method when they are loaded)."""
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def batch() -> SimpleNamespace:
    """Eight responses to two prompts, with masked tokens."""
    draw = torch.Generator().manual_seed(0)
    lengths = [5, 9, 4, 12, 7, 6, 8, 3]
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    masks = [torch.rand(length, generator=draw) > 0.2 for length in lengths]
    logps = [-3 * torch.rand(length, generator=draw) for length in lengths]
    advantages = rewards - rewards.view(2, 4).mean(1).repeat_interleave(4)
    return SimpleNamespace(lengths=lengths, rewards=rewards, masks=masks, logps=logps, advantages=advantages)


@pytest.mark.parametrize("recipe", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_a_recipe_is_short(recipe: Path) -> None:
    assert len(recipe.read_text().splitlines()) <= 60


@pytest.mark.parametrize("context_parallel", [1, 2])
def test_slime(batch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, context_parallel: int) -> None:
    """Four ranks: two data-parallel ones of four responses, whole or in two parts each; together they are the whole batch."""
    ranks = engine_stubs.Ranks(2 * context_parallel)
    engine_stubs.slime(monkeypatch, ranks, context_parallel)
    recipe = load("slime")
    args = SimpleNamespace(normalize_advantages=False, use_rollout_logprobs=False)

    def be(rank: int) -> list[Tensor]:
        mine = slice(*((0, 4) if rank // context_parallel == 0 else (4, 8)))
        cut = sys.modules["slime.backends.megatron_utils.cp_utils"].slice_log_prob_with_cp
        data = {
            "log_probs": [cut(row, len(row) + 3, len(row)) for row in batch.logps[mine]],
            "rewards": batch.advantages[mine].tolist(),
            "loss_masks": [mask.int() for mask in batch.masks[mine]],
            "response_lengths": batch.lengths[mine],
            "total_lengths": [length + 3 for length in batch.lengths[mine]],
        }
        recipe.token_credit(args, data)
        assert data["returns"] is data["advantages"]
        return data["advantages"]

    parts = ranks.run(be)
    joined = [
        torch.cat(pieces)
        for first in range(0, len(parts), context_parallel)
        for pieces in zip(*parts[first : first + context_parallel], strict=True)
    ]
    expected = token_weights(batch.logps, batch.advantages, batch.masks)
    for ours, weights, advantage in zip(joined, expected, batch.advantages, strict=True):
        torch.testing.assert_close(ours, advantage * weights)
    with pytest.raises(ValueError, match="--normalize-advantages would undo"):
        recipe.token_credit(SimpleNamespace(normalize_advantages=True), {})


def test_nemo_rl(batch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    grpo = engine_stubs.nemo_rl(monkeypatch)
    load("nemo_rl")
    config = SimpleNamespace(
        grpo=SimpleNamespace(adv_estimator=SimpleNamespace(name="grpo")), loss_fn=SimpleNamespace()
    )
    estimator = grpo._create_advantage_estimator(config)
    pad = torch.nn.utils.rnn.pad_sequence
    mask, logps = (pad(rows, batch_first=True) for rows in (batch.masks, batch.logps))
    prompts = torch.tensor([[7, 1]] * 4 + [[7, 2]] * 4)
    ours = estimator.compute_advantage(
        prompt_ids=prompts,
        rewards=batch.rewards,
        mask=mask.float(),
        repeated_batch={},
        logprobs_policy=logps,
        logprobs_reference=None,
    )
    torch.testing.assert_close(ours, batch.advantages[:, None] * token_weights(logps, batch.advantages, mask))
    with pytest.raises(ValueError, match="force_on_policy_ratio=false"):
        estimator.compute_advantage(prompts, batch.rewards, mask, logprobs_policy=torch.zeros_like(logps))


def test_prime_rl(batch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    loss = engine_stubs.prime_rl(monkeypatch)
    recipe = load("prime_rl")
    state = RunningCentroids(memory=16)
    for logps, mask, advantage in zip(batch.logps, batch.masks, batch.advantages, strict=True):
        inputs = loss.LossInputs(
            trainer_logprobs=(logps + 0.1).requires_grad_(),
            inference_logprobs=logps,
            ref_logprobs=None,
            advantages=advantage.expand(len(logps)),
            loss_mask=mask,
        )
        outputs = recipe.token_credit_loss(inputs, method="delta-scalar", memory=16, adv_tau=2.0)
        outputs.loss.backward()
        weights, state = running_weights(state, logps, advantage, mask)
        expected = -2.0 * advantage * weights * torch.tensor(0.1).exp() * mask
        torch.testing.assert_close(inputs.trainer_logprobs.grad, expected)
        assert set(outputs.metrics) == {"is_masked", "credit_weight_std"}


@pytest.mark.parametrize(
    ("name", "method", "words"),
    [
        ("slime", "delta", r"hidden states.* which slime does not give; engines that do: TRL, verl"),
        ("nemo_rl", "gtpo", r"entropy .* which NeMo-RL does not give; engines that do: TRL, verl"),
        ("prime_rl", "dapo-ft", r"which prime-rl does not give"),
        ("prime_rl", "delta-scalar?scope=group", r"which prompt .* prime-rl does not give"),
    ],
)
def test_a_rule_that_needs_more_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, name: str, method: str, words: str
) -> None:
    engine_stubs.slime(monkeypatch, engine_stubs.Ranks(1))
    engine_stubs.nemo_rl(monkeypatch)
    engine_stubs.prime_rl(monkeypatch)
    monkeypatch.setenv("DELTA_METHOD", method)

    def start() -> None:
        recipe = load(name)
        recipe.token_credit_loss(None, method=method)  # prime-rl gives the method to the loss

    with pytest.raises(RuleError, match=words):
        start()
