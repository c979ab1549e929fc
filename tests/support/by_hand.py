"""The same training written out: no trainer, no micro-batches, no ranks, no left padding; one loss an optimizer step.

Weights come from the core (and, for DelTA, from the float64 loops of `credit_reference` as well), losses from `objectives`.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

import credit_reference as reference
from delta_rlvr.credit import Delta, credit_record
from delta_rlvr.credit.rules.ablations import Ablation
from delta_rlvr.objectives import LossInputs, policy_loss
from replayed_training import GENERATIONS, LEARNING_RATE, SHAPES, TEMPERATURE, make_model, parameters_of, reward_of
from rounding import MODEL, assert_clear_cut, rounding


@dataclass
class Options:
    """What a run may differ in, besides its method and its batch shape."""

    scale_rewards: str = "group"
    mask_truncated: bool = False
    beta: float = 0.0
    importance: tuple[float, float] | None = None
    """Bounds of the correction for the sampler's log-probs."""
    dual: float | None = None
    """TRL's own two-sided clip."""
    against_loops: bool = True
    """Whether the core's weights are compared with those of the float64 loops."""


@dataclass
class Outcome:
    """What the hand-written run gives, in the order of the trainer's micro-batches."""

    losses: list[float] = field(default_factory=list)
    weights: list[torch.Tensor] = field(default_factory=list)
    advantages: list[torch.Tensor] = field(default_factory=list)
    clipped: list[float] = field(default_factory=list)
    """Share of tokens whose ratio left the clip range, by micro-batch."""
    sizes: list[float] = field(default_factory=list)
    """What the absolute values of a loss's terms add up to."""
    steps: int = 0

    @property
    def loss_rounding(self):
        """How far another right program's losses may lie from these: a pass through the model at every step, each on weights that
        the steps before have rounded."""
        return rounding(MODEL * self.steps, max(self.sizes))

    @property
    def weight_rounding(self):
        """The same for the trained weights, of size 1 or less: the update is rounded, and so is each sum of weight and update."""
        return rounding(MODEL * self.steps, LEARNING_RATE * sum(self.sizes)) + rounding(self.steps)


def train_by_hand(model, method, shape, ranks, generations, micro_batches, *, options=None, reference_model=None):
    """Repeat a recorded run. `generations` and `micro_batches` are one list a rank, as `Recording` keeps them."""
    options = options or Options()
    accumulation, per_generation, iterations, steps = SHAPES[shape]
    outcome = Outcome(steps=steps)
    batch, optimizer = None, torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for step in range(steps):
        optimizer.zero_grad()
        for micro in range(step * accumulation, (step + 1) * accumulation):
            if micro % (per_generation * iterations) == 0:
                number = micro // (per_generation * iterations)
                rows = [row for rank in generations for row in rank[number]["rows"]]
                batch = _Batch(model, method, rows, micro, options, reference_model)
                outcome.weights.append(batch.weights)
                outcome.advantages.append(batch.advantages)
            assert batch is not None
            for rank in micro_batches:
                index = [batch.number[_key(*row)] for row in rank[micro]["rows"]]
                loss, clipped, size = batch.loss(
                    model, index, accumulation, per_generation, ranks if len(micro_batches) > 1 else 1
                )
                (loss / len(micro_batches)).backward()  # data parallelism averages the ranks' gradients
                outcome.losses.append(loss.item())
                outcome.clipped.append(clipped)
                outcome.sizes.append(size)
        optimizer.step()
    return outcome


def seen_by(trainer):
    """What a trained trainer of one rank is compared by."""
    return {"generations": trainer.generations, "losses": trainer.losses, "parameters": parameters_of(trainer)}


def assert_as_by_hand(ranks, method, shape, *, model=None, options=None, reference_model=None):
    """Losses and parameters of a run, as its ranks have seen them, are those of the run by hand, which is given back."""
    model = (make_model() if model is None else model).eval()
    generations, micro_batches = ([rank[name] for rank in ranks] for name in ("generations", "losses"))
    given = {"options": options, "reference_model": reference_model}
    hand = train_by_hand(model, method, shape, len(ranks), generations, micro_batches, **given)
    losses = [micro["loss"] for together in zip(*micro_batches, strict=True) for micro in together]
    assert losses == pytest.approx(hand.losses, abs=hand.loss_rounding)
    for rank in ranks:
        for name, expected in model.named_parameters():
            torch.testing.assert_close(rank["parameters"][name], expected, atol=hand.weight_rounding, rtol=0, msg=name)
    return hand


def _key(prompt_ids, tokens):
    """Who a response is: padding (0) never stands inside one."""
    return tuple(prompt_ids), tuple(token for token in tokens if token != 0)


class _Batch:
    """A rollout batch over all ranks, with everything that is fixed when it is made."""

    def __init__(self, model, method, rows, round_number, options, reference_model):
        self.method, self.options = method, options
        self.number = {_key(row["prompt_ids"], row["tokens"]): number for number, row in enumerate(rows)}
        assert len(self.number) == len(rows), "responses are told apart by their tokens"
        self.rows = rows
        # Prompt and response side by side, all padding at the end: not the layout that TRL uses.
        self.length = max(len(row["prompt_ids"]) + len(row["tokens"]) for row in rows)
        time = max(len(row["tokens"]) for row in rows)
        self.tokens = torch.zeros(len(rows), time, dtype=torch.long)
        self.mask = torch.zeros(len(rows), time, dtype=torch.bool)
        for number, row in enumerate(rows):
            self.tokens[number, : len(row["tokens"])] = torch.tensor(row["tokens"])
            if not (options.mask_truncated and row["tokens"][-1] != 1):
                self.mask[number, : len(row["tokens"])] = torch.tensor(
                    row["written"] or [1] * len(row["tokens"])
                ).bool()
        self.advantages = self._advantages()
        with torch.no_grad():
            hidden, self.old_logps, entropy = self.score(model)
            self.reference_logps = None if reference_model is None else self.score(reference_model)[1]
        groups = torch.arange(len(rows)) // GENERATIONS
        if options.importance is None:
            self.importance = None
        else:
            sampled = -6.0 - 0.1 * (self.tokens % 5)
            self.importance = (self.old_logps - sampled).exp().clamp(*options.importance)
        record = credit_record(
            hidden,
            self.old_logps,
            self.advantages,
            self.mask,
            rule=method.rule,
            head=_plain(model).get_output_embeddings().weight.detach(),
            tokens=self.tokens,
            temperature=TEMPERATURE,
            groups=groups,
            entropy=entropy,
            round_number=round_number,
        )
        self.weights = record.padded(record.weights, self.mask)
        assert_clear_cut(method.rule, record, entropy[self.mask])
        if type(method.rule) in (Delta, Ablation) and options.against_loops:
            self._check_against_reference(model, hidden, entropy, groups)

    def _advantages(self):
        rewards = torch.tensor([reward_of(row["prompt"], row["tokens"]) for row in self.rows])
        grouped = rewards.view(-1, GENERATIONS)
        centred = grouped - grouped.mean(1, keepdim=True)
        if self.options.scale_rewards == "none":
            return centred.flatten()
        spread = rewards.std() if self.options.scale_rewards == "batch" else grouped.std(1, keepdim=True)
        return (centred / (spread + 1e-4)).flatten()

    def score(self, model):
        """(hidden, log-probs, entropies) of the response tokens."""
        ids = torch.zeros(len(self.rows), self.length, dtype=torch.long)
        attention = torch.zeros_like(ids)
        place = torch.zeros_like(self.tokens)
        for number, row in enumerate(self.rows):
            whole = row["prompt_ids"] + row["tokens"]
            ids[number, : len(whole)] = torch.tensor(whole)
            attention[number, : len(whole)] = 1
            # Token t of the response is predicted at the position before it.
            place[number] = (len(row["prompt_ids"]) - 1 + torch.arange(place.shape[1])).clamp(max=self.length - 1)
        output = model(input_ids=ids, attention_mask=attention, output_hidden_states=True, use_cache=False)
        pick = lambda x: x.gather(1, place[..., None].expand(-1, -1, x.shape[-1]))  # noqa: E731
        distribution = (pick(output.logits) / TEMPERATURE).log_softmax(-1)
        logps = distribution.gather(-1, self.tokens[..., None])[..., 0]
        return pick(output.hidden_states[-1]), logps, -(distribution.exp() * distribution).sum(-1)

    def loss(self, model, index, accumulation, per_generation, ranks):
        """The loss of some rows: the engine's constants divide it, never the rows' own Z."""
        method = self.method
        logps = self.score(model)[1][index]
        mask = self.mask[index]
        if method.aggregation == "token_mean":
            denominator = self.mask.sum().clamp(min=1) / ranks * accumulation / per_generation
        else:
            denominator = len(index) * accumulation
        weights = self.weights[index]
        if self.importance is not None:
            weights = weights * self.importance[index]
        surrogate = method.surrogate
        if self.options.dual is not None:
            surrogate = type(surrogate)(surrogate.low, surrogate.high, self.options.dual)
        inputs = LossInputs(logps, self.old_logps[index], self.advantages[index], mask, weights)
        loss = policy_loss(inputs, surrogate, method.aggregation, denominator=denominator)
        if self.reference_logps is not None:
            away = self.reference_logps[index] - logps
            divergence = (away.exp() - away - 1) * inputs.log_ratio.exp()  # TRL corrects it for old samples
            loss = loss + self.options.beta * (divergence * mask).sum() / denominator
        ratio = inputs.log_ratio.detach().exp()
        clipped = ((ratio < 0.8) | (ratio > 1.28))[mask].float().mean().item()
        # With advantages of one sign no term cancels another.
        one_sign = replace(inputs, advantages=-self.advantages[index].abs())
        size = policy_loss(one_sign, surrogate, method.aggregation, denominator=denominator).abs().item()
        return loss, clipped, size

    def _check_against_reference(self, model, hidden, entropy, groups):
        rule = self.method.rule
        if rule.proxy == "head":
            return  # a vocabulary of outer products is too many for loops
        head = _plain(model).get_output_embeddings().weight.detach().double().numpy()
        if rule.proxy == "topk_hidden":
            vectors = reference.topk_hidden(hidden.double(), head, self.tokens, rule.top_k, TEMPERATURE)
        elif rule.proxy == "sharpness":
            vectors = reference.sharpness(hidden.double(), self.old_logps.double(), entropy.double())
        else:
            if rule.proxy == "centred_row":
                hidden = hidden - hidden[self.mask].mean(0)
            elif rule.proxy == "scalar":
                hidden = torch.ones_like(hidden[..., :1])
            vectors = reference.output_row(hidden.double(), self.old_logps.double())
        told = [
            *("scope", "lambda_min", "lambda_max", "refinements", "contrast"),
            *("gamma", "assignment", "normalize", "range_map"),
        ]
        expected = reference.reference_coefficients(
            vectors,
            self.advantages.double().numpy(),
            self.mask.numpy(),
            groups=groups.tolist(),
            **{name: getattr(rule, name) for name in told if hasattr(rule, name)},
        )
        # From the same states, in float64 on both sides; stored in float32.
        stored = rounding(10, size=float(expected["weights"].max()))
        np.testing.assert_allclose(self.weights.numpy(), expected["weights"], atol=stored, rtol=0)


def _plain(model):
    return model.get_base_model() if hasattr(model, "peft_config") else model
