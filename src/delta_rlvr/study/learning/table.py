"""What a study came to: every arm against the baseline, paired by seed, the primary comparison apart from the rest."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from delta_rlvr.evaluate.seeds import (
    SeedComparison,
    adjust,
    compare_seeds,
    gap_text,
    is_significant,
    mean_text,
    p_text,
    paired_sentence,
)
from delta_rlvr.study.learning.protocol import Protocol
from delta_rlvr.study.learning.runner import Outcome


@dataclass(frozen=True)
class TaskTable:
    """One task's arms."""

    task: str
    before: float
    """Held-out accuracy before training."""
    heldout: list[SeedComparison]
    """Held-out accuracy after training."""
    speed: list[SeedComparison]
    """Mean accuracy over all rollout batches: an arm that learns faster has more of it."""


@dataclass(frozen=True)
class StudyTable:
    """All tasks, with p-values adjusted over all of their comparisons but the primary one."""

    protocol: Protocol
    tasks: list[TaskTable]
    primary: SeedComparison | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.protocol.name,
            "primary": None if self.primary is None else asdict(self.primary),
            "tasks": [asdict(task) for task in self.tasks],
        }


def study_table(protocol: Protocol, outcomes: Sequence[Outcome]) -> StudyTable:
    """The table of what is there; arms without a finished run are left out."""
    tables = []
    for task in protocol.tasks:
        here = [outcome for outcome in outcomes if outcome.run.task == task]
        if not any(outcome.run.arm == protocol.baseline for outcome in here):
            continue
        tables.append(
            TaskTable(
                task,
                statistics.fmean(outcome.before for outcome in here),
                _compare(protocol, here, lambda outcome: outcome.after),
                _compare(protocol, here, lambda outcome: statistics.fmean(outcome.curve)),
            )
        )
    if not tables:
        raise ValueError(
            f"study {protocol.name!r} has no finished run of its baseline {protocol.baseline!r} yet"
        )
    primary = next(
        (
            row
            for table in tables
            for row in table.heldout
            if protocol.primary is not None
            and (table.task, row.method) == (protocol.primary.task, protocol.primary.arm)
        ),
        None,
    )
    return StudyTable(protocol, _adjusted(tables, primary), primary)


def _compare(protocol: Protocol, outcomes: Sequence[Outcome], score: Any) -> list[SeedComparison]:
    scores: dict[str, dict[int, float]] = {}
    for arm in protocol.arms:
        by_seed = {outcome.run.seed: score(outcome) for outcome in outcomes if outcome.run.arm == arm}
        if by_seed:
            scores[arm] = by_seed
    return compare_seeds(scores, protocol.baseline)


def _adjusted(tables: Sequence[TaskTable], primary: SeedComparison | None) -> list[TaskTable]:
    """Holm over every comparison of every task, for held-out scores and for speed apart; the primary one stands alone."""

    def adjusted(columns: list[list[SeedComparison]]) -> list[list[SeedComparison]]:
        done = iter(adjust([row for column in columns for row in column if row is not primary]))
        return [[row if row is primary else next(done) for row in column] for column in columns]

    return [
        replace(table, heldout=heldout, speed=speed)
        for table, heldout, speed in zip(
            tables,
            adjusted([table.heldout for table in tables]),
            adjusted([table.speed for table in tables]),
            strict=True,
        )
    ]


def sentences(table: StudyTable) -> list[str]:
    """What the numbers support, in plain words."""
    said = []
    baseline = table.protocol.baseline
    if table.primary is not None and table.primary.p_paired is not None:
        assert table.protocol.primary is not None
        task = table.protocol.primary.task
        said.append(f"Primary comparison on {task}: {paired_sentence(table.primary, baseline)}")
    for task_table in table.tasks:
        columns = (("held-out accuracy", task_table.heldout), ("accuracy over training", task_table.speed))
        for what, column in columns:
            apart = [
                f"{row.method} {gap_text(row)}" for row in column if is_significant(row.p_mann_whitney_holm)
            ]
            said.append(
                f"{task_table.task}, {what}: arms that differ from {baseline} at the 5 % level "
                f"(unpaired over all seeds, Holm): {', '.join(apart) or 'none'}."
            )
    return said


def markdown(table: StudyTable) -> str:
    """The table as docs keep it."""
    against = f"against {table.protocol.baseline} (95 % interval)"
    headings = ["arm", "seeds", "held-out, mean ± SD", against, "p paired", "p Holm", "p unpaired, Holm"]
    headings += ["over training, mean ± SD", against, "p Holm", "p unpaired, Holm"]
    lines = []
    for task in table.tasks:
        lines += [f"**{task.task}** (held-out before training: {100 * task.before:.1f} %)", ""]
        lines += [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
        for row, speed in zip(task.heldout, task.speed, strict=True):
            cells = [row.method, str(row.seeds), mean_text(row), gap_text(row), p_text(row.p_paired)]
            cells += [
                "primary" if row is table.primary else p_text(row.p_holm),
                p_text(row.p_mann_whitney_holm),
            ]
            cells += [
                mean_text(speed),
                gap_text(speed),
                p_text(speed.p_holm),
                p_text(speed.p_mann_whitney_holm),
            ]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)
