"""RLVR of many policies in one process: the same five steps as any engine's, for every seed and method of a study at once.

What a run does is what `delta-rlvr train` does with the same settings: the same problems in the same order, TRL's advantages, loss
denominators, gradient clipping and optimizer (a test replays one run's rollouts through both and compares the weights step by step).
What differs is the random numbers: a run here draws from its own seed, so that it is the same whatever runs beside it, and so that two
methods with one seed see the same problems and the same draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from delta_evidence.learning.outcome import DIAGNOSED_EVERY, DIAGNOSTICS, BatchStatistics
from delta_evidence.learning.protocol import ArmSettings, Run, TrainingSettings
from delta_evidence.measured.continuations import StackContinuations, responses_of
from delta_evidence.measured.measure import TOLERANCE, check_budget, measure
from delta_evidence.rollouts import Batch, Collector, Rollouts, draws, row_pieces
from delta_evidence.stack.memory import with_fewer_rows
from delta_evidence.stack.policy import clip_gradients
from delta_evidence.weighing import BatchWeigher, study_method
from delta_rlvr.objectives import LossInputs, policy_loss, token_mean
from delta_rlvr.tasks import Problem, Task, get_task


class StackedTraining:
    """Trains all runs of a stack, one rollout batch after another.

    A run whose loss or gradient is not finite ends there: it keeps its place in the stack, so that the others go on as if nothing had
    happened, and is not trained any further.
    """

    def __init__(
        self,
        collector: Collector,
        runs: Sequence[Run],
        settings: TrainingSettings,
        *,
        arms: Mapping[str, ArmSettings] | None = None,
        rows_at_once: int = 2048,
    ):
        """`arms`: the settings of those that have some."""
        self.collector = collector
        self.policy = collector.policy
        self.runs = list(runs)
        self.settings = settings
        self.phases = collector.phases
        self.rows_at_once = rows_at_once
        """Rows (over all runs) of one forward and backward; fewer once the device ran out of memory."""
        self.seen: list[list[BatchStatistics]] = [[] for _ in runs]
        """The batches of each run so far."""
        self.scores: list[list[dict[str, Any]]] = [[] for _ in runs]
        """The held-out scores of each run so far, with the number of batches that were behind it."""
        self.done = 0
        """Rollout batches that are finished."""
        self.diverged: dict[int, int] = {}
        """The places of runs that ended before their time, with the batch in which they did."""
        self.within_batch = False
        """Whether some updates of a batch are made and others are not: this is no place to go on from."""
        if len(self.runs) != self.policy.runs:
            raise ValueError(f"{len(self.runs)} runs, but {self.policy.runs} policies in the stack")
        own = [(arms or {}).get(run.arm, ArmSettings()) for run in self.runs]
        self.methods = [study_method(arm.method or run.arm) for run, arm in zip(self.runs, own, strict=True)]
        self._entropy_bonus = [arm.entropy_bonus for arm in own]
        rates = [arm.learning_rate or settings.learning_rate for arm in own]
        self._rate = max(rates)
        self._rate_shares = [rate / self._rate for rate in rates]
        """Each run's learning rate, as a share of the highest, which is the optimizer's."""
        known = {name: get_task(name) for name in dict.fromkeys(run.task for run in self.runs)}
        self.tasks: list[Task] = [known[run.task] for run in self.runs]
        self.limits = [settings.max_tokens or task.max_tokens for task in self.tasks]
        self.optimizer = torch.optim.AdamW(
            self.policy.parameters(),
            lr=self._rate,
            betas=(0.9, 0.999),
            eps=1e-8,
            weight_decay=0.0,
            # On CUDA the other ways make copies of all weights on the way.
            fused=self.policy.device.type == "cuda" or None,
        )
        self._problems = _problems(self.runs, self.tasks, settings)
        self._whole = settings.group if settings.split == "prompts" else 1
        """Responses that stay together in mini-batches and passes."""
        check_budget(settings.continuations, TOLERANCE, "continuations")
        self._alone = {
            place: collector.alone(place)
            for place, method in enumerate(self.methods)
            if "measured" in method.rule.needs
        }
        """Policies whose rollouts are continued, each as a stack of its own."""

    def train(
        self,
        on_batch: Callable[[int, list[BatchStatistics]], None] | None = None,
        score: Callable[[], list[list[dict[str, Any]]]] | None = None,
    ) -> list[list[BatchStatistics]]:
        """All batches that are left; what was seen, run by run. `score` gives every run's held-out scores that are due after the
        batches that are done."""
        while len(self.diverged) < len(self.runs):
            if score is not None and not any(one["batch"] == self.done for known in self.scores for one in known):
                # Before the first batch and after each: what goes on from here makes up for a score that was not made.
                for place, (known, new) in enumerate(zip(self.scores, score(), strict=True)):
                    known.extend({"batch": self.done, **one} for one in new if place not in self.diverged)
            if self.done == self.settings.batches:
                break
            number = self.done
            statistics = self.batch(number)
            for place, (row, batch) in enumerate(zip(self.seen, statistics, strict=True)):
                if place not in self.diverged:
                    row.append(batch)
            self.done += 1
            if on_batch is not None:
                on_batch(number, statistics)
        return self.seen

    def state(self) -> dict[str, Any]:
        """All that is needed to go on from here. Random numbers are a function of the seed and the batch, so no state of theirs is
        among it."""
        if self.within_batch:
            raise RuntimeError("a rollout batch is half trained: there is no state to go on from")
        return {
            "done": self.done,
            "diverged": dict(self.diverged),
            "seen": [[asdict(batch) for batch in row] for row in self.seen],
            "scores": self.scores,
            "weights": self.policy.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of the same runs."""
        self.policy.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate  # that of another stack, where this one is a part of it
        self.scores = [list(row) for row in state["scores"]]
        self.done, self.diverged = state["done"], dict(state["diverged"])
        self.seen = [[BatchStatistics(**batch) for batch in row] for row in state["seen"]]

    def batch(self, number: int) -> list[BatchStatistics]:
        """One rollout batch: sample, judge, weigh, update."""
        settings = self.settings
        rollouts = self.collector.collect(
            [self._asked(place, number) for place in range(len(self.runs))],
            group=settings.group,
            number=number,
            temperature=settings.temperature,
            ragged=settings.split == "prompts",
        )
        if self._alone:
            with self.phases("continuations"):
                rollouts = [self._measured(place, batch, number) for place, batch in enumerate(rollouts)]
        with self.phases("weights"):
            weights, diagnostics = self.weigh(rollouts, number)
        steps = []
        for rows in self._mini_batches(number):
            steps.append(self.update(rollouts, weights, rows))
            for place in range(len(self.runs)):
                if place not in self.diverged and not all(math.isfinite(values[place]) for values in steps[-1]):
                    self._end(place, number)
            if len(self.diverged) == len(self.runs):
                break  # nobody is left to train
        self.within_batch = False
        with self.phases("statistics"):
            return [
                BatchStatistics.of(
                    number,
                    batch,
                    weights[place],
                    settings.group,
                    losses=tuple(losses[place] for losses, _ in steps),
                    gradient_norms=tuple(norms[place] for _, norms in steps),
                    diagnostics=diagnostics[place],
                )
                for place, batch in enumerate(rollouts)
            ]

    def _asked(self, place: int, number: int) -> Batch:
        run, prompts = self.runs[place], self.settings.prompts
        return Batch(
            self.tasks[place],
            self._problems[place][number * prompts : (number + 1) * prompts],
            run.seed,
            self.limits[place],
            run.reward_noise,
            decisive="decisive" in self.methods[place].rule.needs,
        )

    def _end(self, place: int, number: int) -> None:
        run = self.runs[place]
        self.diverged[place] = number
        self.phases.tell(
            f"{run.arm} on {run.task}, seed {run.seed}, diverged in batch {number + 1}: its loss or gradient is not finite; "
            "it ends here, the others go on"
        )

    @torch.no_grad()
    def _measured(self, place: int, rollouts: Rollouts, number: int) -> Rollouts:
        """The rollouts with the credit of their tokens, for arms that weigh by it: of the responses that have an advantage, and for the
        verdicts themselves where training sees some of them flipped."""
        if place not in self._alone or place in self.diverged:
            return rollouts
        credit = torch.zeros_like(rollouts.logps)
        rows = (rollouts.advantages != 0).nonzero()[:, 0].tolist()
        responses = responses_of(rollouts, rows, self.limits[place])
        continuations = StackContinuations(
            self._alone[place],
            self.tasks[place],
            {number: responses},
            seed=self.runs[place].seed,
            temperature=self.settings.temperature,
            rows_at_once=self.rows_at_once,
        )
        credits = measure({number: responses}, continuations, budget=self.settings.continuations, tolerance=TOLERANCE)[
            number
        ]
        for row, one in zip(rows, credits, strict=True):
            credit[row, : len(one.credit)] = torch.from_numpy(one.credit).to(credit)
        return replace(rollouts, measured=credit)

    @torch.no_grad()
    def weigh(
        self, rollouts: Sequence[Rollouts], number: int
    ) -> tuple[Float[Tensor, "run batch time"], list[dict[str, float]]]:
        """Each run's token weights, by its own method, and its diagnostics; 0 and none for those that have ended."""
        weights = []
        diagnostics: list[dict[str, float]] = [{} for _ in self.runs]
        for place, (run, method, batch) in enumerate(zip(self.runs, self.methods, rollouts, strict=True)):
            if place in self.diverged:
                weights.append(torch.zeros_like(batch.logps))
                continue
            weigher = BatchWeigher(batch, self.policy.head[place], number=number, seed=run.seed)
            diagnose = number % DIAGNOSED_EVERY == 0
            record = weigher.record(method.rule, diagnose=diagnose)
            weights.append(record.padded(record.weights, batch.mask))
            if diagnose:
                known = record.summary()
                if method.rule.constant:  # there is nothing to warn of
                    del known["weight_signal_mean"], known["weight_signal_std"]
                diagnostics[place] = {name: known[name] for name in DIAGNOSTICS if name in known}
        return torch.stack(weights), diagnostics

    def update(
        self, rollouts: Sequence[Rollouts], weights: Float[Tensor, "run batch time"], rows: Int[Tensor, "run mini"]
    ) -> tuple[list[float], list[float]]:
        """One optimizer step of every run on its own rows of its own batch: losses and gradient norms."""
        names = ("prompt_ids", "prompt_mask", "completion_ids", "mask", "logps", "advantages")
        columns = {name: [getattr(batch, name) for batch in rollouts] for name in names}
        part = {
            name: torch.stack([values[own] for values, own in zip(column, rows, strict=True)])
            for name, column in (columns | {"weights": list(weights)}).items()
        }
        tokens = [batch.mask.sum() / self.settings.updates for batch in rollouts]
        with self.phases("forward and backward"):
            # No weight has moved yet: a pass that did not fit can be made again.
            losses, self.rows_at_once = with_fewer_rows(
                lambda rows_at_once: self._forward_and_backward(part, tokens, rows_at_once),
                min(self.rows_at_once, rows.numel()),
                len(self.runs) * self._whole,
                self.phases.tell,
            )
        with self.phases("optimizer"):
            norms = clip_gradients(self.policy, self.settings.max_grad_norm)
            for place in (~(norms.isfinite() & losses.isfinite())).nonzero().flatten().tolist():
                for weight in self.policy.parameters():
                    if weight.grad is not None:
                        weight.grad[place] = 0.0
            self.within_batch = True
            self._step()
            # Sampling has better use for the memory.
            self.optimizer.zero_grad(set_to_none=True)
            return losses.tolist(), norms.tolist()

    @torch.no_grad()
    def _step(self) -> None:
        """One step of the optimizer, whose steps are proportional to the learning rate: each run takes its share of one."""
        if min(self._rate_shares) == 1:
            self.optimizer.step()
            return
        before = [weight.clone() for weight in self.policy.parameters()]
        self.optimizer.step()
        shares = torch.tensor(self._rate_shares, device=self.policy.device)
        for weight, old in zip(self.policy.parameters(), before, strict=True):
            weight.copy_(old.lerp_(weight, shares.view(-1, *[1] * (weight.dim() - 1))))

    def _forward_and_backward(
        self, part: Mapping[str, Tensor], tokens: Sequence[Tensor], rows_at_once: int
    ) -> Float[Tensor, " run"]:
        """Every run's loss on its mini-batch, some rows at a time, and its gradient. `tokens` are those of the rollout batch over its
        updates."""
        runs, count, _ = part["mask"].shape
        training = [place for place in range(runs) if place not in self.diverged]
        totals = torch.zeros(runs, device=part["mask"].device)
        self.optimizer.zero_grad(set_to_none=True)
        for piece in row_pieces(count, runs, rows_at_once, self._whole):
            first = slice(piece.start, piece.stop, self._whole)  # of the responses that share a prompt
            ids, mask = part["completion_ids"][:, piece], part["mask"][:, piece]
            hidden = self.policy.response_hidden(
                part["prompt_ids"][:, first],
                part["prompt_mask"][:, first],
                ids,
                copies=self._whole,
                mask=mask if self.settings.split == "prompts" else None,
            )
            logps, entropy = self.policy.token_logps(
                hidden, ids, self.settings.temperature, mask=mask, entropy=any(self._entropy_bonus)
            )
            losses = []
            for place in training:
                own = (part[name][place, piece] for name in ("logps", "advantages", "mask", "weights"))
                method = self.methods[place]
                # A token mean divides by the rollout batch's tokens over its updates, as TRL's; a response mean by the responses here.
                denominator = tokens[place] if method.aggregation == "token_mean" else count
                inputs = LossInputs(logps[place], *own)
                loss = policy_loss(inputs, method.surrogate, method.aggregation, denominator=denominator)
                if entropy is not None and self._entropy_bonus[place]:
                    bonus = token_mean(entropy[place], mask[place], tokens[place])
                    loss = loss - self._entropy_bonus[place] * bonus
                losses.append(loss)
            total = torch.stack(losses)
            # Runs share no weight, so the sum's gradient is each run's own.
            total.sum().backward()
            totals[training] += total.detach()
        return totals

    def _mini_batches(self, number: int) -> Iterator[Int[Tensor, "run mini"]]:
        """Each run's responses (or prompts) in an order of its own, in as many parts as there are updates."""
        settings = self.settings
        count = settings.prompts * settings.group // self._whole
        orders = [draws(run.seed + (1 << 41), number, (count,)).argsort() for run in self.runs]
        stacked = torch.stack([torch.from_numpy(order) for order in orders])
        rows = (stacked[..., None] * self._whole + torch.arange(self._whole)).flatten(1)
        yield from rows.to(self.policy.device).chunk(settings.updates, dim=1)


def _problems(runs: Sequence[Run], tasks: Sequence[Task], settings: TrainingSettings) -> list[list[Problem]]:
    """Each run's problems in the order in which TRL's sampler would ask them; runs of one task and seed share them."""
    count = settings.batches * settings.prompts
    by_run: dict[tuple[str, int], list[Problem]] = {}
    for run, task in zip(runs, tasks, strict=True):
        if (run.task, run.seed) not in by_run:
            problems = task.problems("train", count, run.seed)
            order = torch.randperm(count, generator=torch.Generator().manual_seed(run.seed))
            by_run[run.task, run.seed] = [problems[place] for place in order.tolist()]
    return [by_run[run.task, run.seed] for run in runs]
