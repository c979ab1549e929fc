"""The whole method on one screen or two: sampling, verifiable rewards, DelTA's token coefficients, the update.

    python recipes/minimal_loop.py [--method delta|dapo] [--steps 60] [--seed 0]

A tiny transformer is made on the spot and warm-started for a few seconds until it answers some sums of numbers below fifty. It answers
in words: every response says the same kind of thing in one of several ways ("well so 42"), and only its digits decide. Then it learns
from rewards alone. No framework, no data set, no download; a minute on a laptop's CPU. The real trainers (TRL, verl) do the same five
steps at scale; what is ours in them is the one call marked with an arrow.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn

from delta_rlvr import Delta, credit_record
from delta_rlvr.objectives import Clip, LossInputs, policy_loss

# ---------------------------------------------------------------- the task: sums, answered in words

OPENERS = ["well", "so", "now", "then", "hmm"]  # uncertain and shared by right and wrong responses:
VERBS = ["gives", "makes", "is", "equals", "that's"]  # the policy must not learn from these
VOCABULARY = [*"0123456789", "+", "=", *OPENERS, *VERBS, "<end>"]
ID = {word: number for number, word in enumerate(VOCABULARY)}
END = ID["<end>"]
PROMPT_LENGTH, RESPONSE_LENGTH = 6, 5  # "4 7 + 2 5 ="  and  "well gives 7 2 <end>"


def digits(values: Tensor, count: int) -> Tensor:
    """[batch] -> [batch, count], most significant digit first."""
    powers = 10 ** torch.arange(count - 1, -1, -1)
    return values[:, None] // powers % 10


def make_problems(count: int, generator: torch.Generator, *, heldout: bool) -> tuple[Tensor, Tensor]:
    """Prompts [count, PROMPT_LENGTH] and their sums. One pair of addends in eight is held out, by its number."""
    # One in eight is held out, so that sixteen times as many draws as wanted are enough for either split.
    first, second = torch.randint(0, 50, (2, 16 * count + 64), generator=generator)
    held = (first * 100 + second) * 2654435761 % 2**32 % 8 == 0
    keep = (held if heldout else ~held).nonzero()[:count, 0]
    first, second = first[keep], second[keep]
    plus, equals = torch.full((count, 1), ID["+"]), torch.full((count, 1), ID["="])
    return torch.cat([digits(first, 2), plus, digits(second, 2), equals], dim=1), first + second


def tell(sums: Tensor, generator: torch.Generator) -> Tensor:
    """A response to each sum, worded at random: opener, verb, two digits, end."""
    opener = ID[OPENERS[0]] + torch.randint(0, len(OPENERS), (len(sums), 1), generator=generator)
    verb = ID[VERBS[0]] + torch.randint(0, len(VERBS), (len(sums), 1), generator=generator)
    return torch.cat([opener, verb, digits(sums, 2), torch.full((len(sums), 1), END)], dim=1)


def reward(response: Tensor, total: int) -> float:
    """The verifier: 1 if the response ends with the digits of the sum, else 0."""
    words = response.tolist()
    said = words[: words.index(END)] if END in words else []
    return float(said[-2:] == [total // 10, total % 10])


# ---------------------------------------------------------------- the policy: a tiny causal transformer


class Policy(nn.Module):
    def __init__(self, width: int = 96, layers: int = 2):
        super().__init__()
        self.embed = nn.Embedding(len(VOCABULARY), width)
        self.place = nn.Parameter(torch.randn(PROMPT_LENGTH + RESPONSE_LENGTH, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.backbone = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, len(VOCABULARY), bias=False)

    def hidden(self, ids: Tensor) -> Tensor:
        """The head's input at every position."""
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.backbone(self.embed(ids) + self.place[: ids.shape[1]], mask=mask, is_causal=True)

    def score(self, prompts: Tensor, responses: Tensor) -> tuple[Tensor, Tensor]:
        """log pi of each response token, and the hidden state that predicted it. This is the old-log-prob pass."""
        hidden = self.hidden(torch.cat([prompts, responses], dim=1)[:, :-1])[:, PROMPT_LENGTH - 1 :]
        logps = self.head(hidden).log_softmax(-1).gather(-1, responses[..., None])[..., 0]
        return logps, hidden

    @torch.no_grad()
    def sample(self, prompts: Tensor, generator: torch.Generator) -> Tensor:
        """Responses at temperature 1, [batch, RESPONSE_LENGTH]; what follows <end> is <end>."""
        ids = prompts
        for _ in range(RESPONSE_LENGTH):
            probabilities = self.head(self.hidden(ids)[:, -1]).softmax(-1)
            token = torch.multinomial(probabilities, 1, generator=generator)
            if ids.shape[1] > PROMPT_LENGTH:
                token[ids[:, -1:] == END] = END
            ids = torch.cat([ids, token], dim=1)
        return ids[:, PROMPT_LENGTH:]


def valid_tokens(responses: Tensor) -> Tensor:
    """The response up to and including its first <end>."""
    ended = (responses == END).long().cumsum(1)
    return (ended == 0) | ((ended == 1) & (responses == END))


def accuracy(policy: Policy, generator: torch.Generator, count: int = 2000) -> float:
    """Sampled accuracy on held-out problems."""
    prompts, sums = make_problems(count, generator, heldout=True)
    responses = policy.sample(prompts, generator)
    return sum(reward(r, int(s)) for r, s in zip(responses, sums, strict=True)) / count


def warm_start(policy: Policy, generator: torch.Generator, steps: int) -> None:
    """Supervised, and stopped early on purpose: right now and then, sure of nothing."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3)
    for _ in range(steps):
        prompts, sums = make_problems(256, generator, heldout=False)
        logps, _ = policy.score(prompts, tell(sums, generator))
        optimizer.zero_grad()
        (-logps.mean()).backward()
        optimizer.step()


# ---------------------------------------------------------------- RLVR: five steps, again and again


def train(policy: Policy, arguments: argparse.Namespace, generator: torch.Generator) -> None:
    optimizer = torch.optim.AdamW(policy.parameters(), lr=arguments.learning_rate, weight_decay=0.0)
    rule = Delta() if arguments.method == "delta" else Delta(lambda_min=1.0, lambda_max=1.0)  # flat: DAPO
    group = arguments.responses
    for step in range(1, arguments.steps + 1):
        # 1. Sample a group of responses to every prompt from the old policy.
        prompts, sums = make_problems(arguments.prompts, generator, heldout=False)
        prompts, sums = prompts.repeat_interleave(group, 0), sums.repeat_interleave(group)
        responses = policy.sample(prompts, generator)
        mask = valid_tokens(responses)

        # 2. Verify them; a response's advantage is its reward against its group's (one number for all of its tokens).
        rewards = torch.tensor([reward(r, int(s)) for r, s in zip(responses, sums, strict=True)])
        grouped = rewards.view(-1, group)
        advantages = ((grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)).flatten()

        # 3. The old-log-prob pass. Any trainer runs it; it already has the hidden states.
        with torch.no_grad():
            old_logps, hidden = policy.score(prompts, responses)

        # 4. Token coefficients, once a rollout batch.                          <--- this is DelTA
        record = credit_record(hidden, old_logps, advantages, mask, rule=rule)
        weights = record.padded(record.weights, mask)

        # 5. A few updates on DAPO's clipped objective, each token's loss multiplied by its coefficient (Eq. 8).
        for rows in torch.randperm(len(prompts), generator=generator).chunk(arguments.updates):
            logps, _ = policy.score(prompts[rows], responses[rows])
            inputs = LossInputs(logps, old_logps[rows], advantages[rows], mask[rows], weights[rows])
            optimizer.zero_grad()
            policy_loss(inputs, Clip(0.2, 0.28)).backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()

        if step % max(1, arguments.steps // 12) == 0 or step == 1:
            found = record.summary()
            print(
                f"step {step:3}  reward {rewards.mean():.3f}  prompts with a signal {(grouped.std(1) > 0).float().mean():4.0%}  "
                f"coefficients {found['weight_min']:.2f} to {found['weight_max']:.2f} (SD {found['weight_std']:.3f})",
                flush=True,
            )
    show_credit(responses, record.padded(record.weights, mask), mask, rewards)


def show_credit(responses: Tensor, weights: Tensor, mask: Tensor, rewards: Tensor) -> None:
    """Where the last batch's credit went: the mean coefficient of words and of digits, on right and wrong responses."""
    digit = mask & (responses < 10)
    word = mask & ~digit
    print("\nmean coefficient in the last batch      words   digits")
    for name, rows in (("right responses", rewards == 1), ("wrong responses", rewards == 0)):
        if rows.any():
            print(f"  {name:35} {weights[rows][word[rows]].mean():7.3f} {weights[rows][digit[rows]].mean():8.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=["delta", "dapo"], default="delta")
    parser.add_argument("--steps", type=int, default=60, help="rollout batches")
    parser.add_argument("--prompts", type=int, default=64, help="prompts per batch")
    parser.add_argument("--responses", type=int, default=8, help="responses per prompt")
    parser.add_argument("--updates", type=int, default=2, help="optimizer steps per batch")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--warm-steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.perf_counter()
    torch.manual_seed(arguments.seed)
    generator = torch.Generator().manual_seed(arguments.seed)
    policy = Policy()
    warm_start(policy, generator, arguments.warm_steps)
    before = accuracy(policy, torch.Generator().manual_seed(1))
    print(
        f"{arguments.method}: held-out accuracy {before:.1%} after the warm start ({time.perf_counter() - start:.0f} s)"
    )
    train(policy, arguments, generator)
    after = accuracy(policy, torch.Generator().manual_seed(1))
    print(f"\nheld-out accuracy {before:.1%} -> {after:.1%} in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
