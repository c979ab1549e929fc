"""The page of `explain`: the rollouts and their weights, written as a run folder with one step."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from delta_rlvr.report.page import write_report
from delta_rlvr.report.rollout_files import Rollout
from delta_rlvr.runs import RunDescription, RunWriter
from delta_rlvr.runs.layout import shown_text
from delta_rlvr.words import counted

if TYPE_CHECKING:
    from torch import Tensor

    from delta_rlvr.credit import CreditRecord
    from delta_rlvr.objectives import Method

Measured = Sequence[tuple[Sequence[float], Sequence[float]]]
"""The credit and standard error of each token, for each response."""

SECTIONS = ("tokens", "weights", "clouds", "discriminator")
"""The sections of the page, without those about training."""


@dataclass(frozen=True)
class Forward:
    """The results of one forward pass for the tokens of one response."""

    prompt_ids: list[int]
    ids: Tensor
    texts: list[str]
    logps: Tensor
    entropy: Tensor
    hidden: Tensor
    decisive: Tensor | None


@dataclass(frozen=True)
class Explained:
    """Rollouts with the weights that a policy's next update would give their tokens."""

    model: str
    source: str
    """The name of the rollouts' file."""
    temperature: float
    method: Method
    """The method that the page shows first."""
    rollouts: Sequence[Rollout]
    """The rollouts with tokens. `passes`, `advantages`, `groups` and `measured` have an entry for each."""
    without_tokens: int
    """The number of rollouts without tokens."""
    passes: Sequence[Forward]
    advantages: Sequence[float]
    groups: Sequence[int]
    records: dict[str, CreditRecord]
    """The weights by method."""
    measured: Measured | None

    @property
    def note(self) -> str | None:
        """What to know of the rollouts of a run, whose page has other weights."""
        if not any(rollout.weighed for rollout in self.rollouts):
            return None
        return (
            f"The weights are those that {self.model} gives to {counted(len(self.rollouts), 'kept response')} alone: the run's page "
            "has others, of its whole batch and of its policy at that step."
        )

    def write_page(self, output: str | Path, title: str | None = None, megabytes: float = 20.0) -> Path:
        with tempfile.TemporaryDirectory(prefix="delta-rlvr-explain-") as folder:
            run = Path(folder) / "run"
            self._write_run(run)
            return write_report(
                [run],
                output,
                title=title or f"Credit of {self.source} under {self.model}",
                lede=self._lede(),
                sections=SECTIONS,
                megabytes=megabytes,
            )

    def _write_run(self, folder: Path) -> None:
        """Write a run folder with one step, from which the page is made."""
        shown, rule = self.records[self.method.name], self.method.rule
        description = RunDescription(
            engine="explain",
            method=self.method.name,
            seed=0,
            model=self.model,
            task=self.source,
            settings={"temperature": self.temperature},
            rule=None if rule.constant else asdict(rule),
            steps_planned=1,
        )
        steps = {rollout.step for rollout in self.rollouts}
        step = steps.pop() if len(steps) == 1 else None
        lines = self._lines()
        text_of: dict[int, str] = {}
        with RunWriter.create(folder, description) as writer:
            writer.update(explained={"step": step})
            for line in lines:
                text_of.update(zip(line["ids"].tolist(), line["tokens"], strict=True))
                writer.tokens.add(line["ids"], line["weight"], np.sign(line["advantage"]))
            means = {
                "reward": float(np.mean([line["reward"] for line in lines])),
                "length": float(np.mean([len(line["ids"]) for line in lines])),
            }
            writer.log({"step": step or 1, **means, **shown.summary()})
            writer.write_rollouts(step or 1, lines)
            writer.save_tokens(text_of=lambda ids: [text_of[token] for token in ids])

    def _lines(self) -> list[dict[str, Any]]:
        """Return the responses in the form of docs/run_schema.md."""
        weights = {name: self._split(record.weights) for name, record in self.records.items()}
        own = weights.pop(self.method.name)
        shown = self.records[self.method.name]
        arrays = {"alpha": shown.alpha, "margin": shown.margin, "margin_initial": shown.margin_initial}
        columns = {name: self._split(values) for name, values in arrays.items() if values is not None}
        seen: dict[int, int] = {}
        lines = []
        for place, (rollout, reading) in enumerate(zip(self.rollouts, self.passes, strict=True)):
            group, prompt = self.groups[place], rollout.prompt
            seen[group] = seen.get(group, -1) + 1
            line = {
                "group": group,
                "index": seen[group],
                "prompt": shown_text(prompt),
                "response": "".join(reading.texts),
                "reward": rollout.reward,
                "advantage": self.advantages[place],
                "tokens": reading.texts,
                "ids": reading.ids.cpu().numpy(),
                "logps": reading.logps.cpu().numpy(),
                "entropy": reading.entropy.cpu().numpy(),
                "weight": own[place],
                **{name: values[place] for name, values in columns.items()},
            }
            if reading.decisive is not None:
                line["decisive"] = reading.decisive.int().tolist()
            if self.measured is not None:
                line["measured"], line["measured_error"] = self.measured[place]
            line["other_weights"] = {name: values[place] for name, values in weights.items()}
            lines.append(line)
        return lines

    def _split(self, values: Tensor) -> list[Any]:
        lengths = [len(reading.ids) for reading in self.passes]
        return [part.cpu().numpy() for part in values.float().split(lengths)]

    def _lede(self) -> str:
        pairs = zip(self.groups, self.advantages, strict=True)
        signal = len({group for group, advantage in pairs if advantage})
        asked = f"{counted(len(self.rollouts), 'response')} to {counted(len(set(self.groups)), 'prompt')}"
        lede = f"{asked}; rewards differ for {counted(signal, 'prompt')}"
        if self.without_tokens:
            lede += f" ({counted(self.without_tokens, 'more response')} without a token)"
        if not signal:
            return f"{lede}: no response is better than another of its group, so every coefficient is 1."
        weights = self.records[self.method.name].weights
        said = f"{lede}; coefficients from {weights.min().item():.3f} to {weights.max().item():.3f}."
        return f"{said} {self.note}" if self.note else said
