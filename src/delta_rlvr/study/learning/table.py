"""What a study came to: every arm against the baseline, paired by seed, the primary comparison apart from the rest."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from delta_rlvr.evaluate.compare import LEVEL
from delta_rlvr.evaluate.seeds import SeedComparison, adjust, compare_seeds
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
    """Mean accuracy over all rollout batches: who learns faster has more of it."""


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
            found
            for table in tables
            for found in table.heldout
            if protocol.primary is not None
            and (table.task, found.method) == (protocol.primary.task, protocol.primary.arm)
        ),
        None,
    )
    return StudyTable(protocol, _adjusted(tables, primary), primary)


def _compare(protocol: Protocol, outcomes: Sequence[Outcome], score: Any) -> list[SeedComparison]:
    scores: dict[str, dict[int, float]] = {}
    for arm in protocol.arms:
        found = {outcome.run.seed: score(outcome) for outcome in outcomes if outcome.run.arm == arm}
        if found:
            scores[arm] = found
    return compare_seeds(scores, protocol.baseline)


def _adjusted(tables: Sequence[TaskTable], primary: SeedComparison | None) -> list[TaskTable]:
    """Holm over every comparison of every task, for held-out scores and for speed apart; the primary one stands alone."""

    def adjusted(rows: list[list[SeedComparison]]) -> list[list[SeedComparison]]:
        done = iter(adjust([found for row in rows for found in row if found is not primary]))
        return [[found if found is primary else next(done) for found in row] for row in rows]

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
    found = table.primary
    if found is not None and found.p_paired is not None and found.difference is not None:
        assert table.protocol.primary is not None
        gap = found.difference
        told = (
            f"Primary comparison, {found.method} against {baseline} on {table.protocol.primary.task}, {found.pairs} paired seeds: "
            f"{100 * gap.mean:+.1f} points ({100 * gap.low:+.1f} to {100 * gap.high:+.1f}), p = {found.p_paired:.3g}"
        )
        if found.p_paired < LEVEL:
            said.append(f"{told}: more than seeds do.")
        else:
            said.append(
                f"{told}: no difference that seeds could not make. A true one of {100 * (found.detectable or 0):.1f} points "
                "would have been found in four of five such studies."
            )
    for task in table.tasks:
        for what, column in (("held-out accuracy", task.heldout), ("accuracy over training", task.speed)):
            apart = [
                f"{found.method} {100 * found.difference.mean:+.1f}"
                for found in column
                if found.difference is not None and _apart(found)
            ]
            told = ", ".join(apart) if apart else "none"
            said.append(
                f"{task.task}, {what}: arms apart from {baseline} at the 5 % level (unpaired over all seeds, Holm): {told}."
            )
    return said


def _apart(found: SeedComparison) -> bool:
    return found.p_mann_whitney_holm is not None and found.p_mann_whitney_holm < LEVEL


def markdown(table: StudyTable) -> str:
    """The table as docs keep it."""
    against = f"against {table.protocol.baseline} (95 % interval)"
    headings = ["arm", "seeds", "held-out, mean ± SD", against, "p paired", "p Holm", "p unpaired, Holm"]
    headings += ["over training, mean ± SD", against, "p Holm", "p unpaired, Holm"]
    lines = []
    for task in table.tasks:
        lines += [f"**{task.task}** (held-out before training: {100 * task.before:.1f} %)", ""]
        lines += [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
        for found, speed in zip(task.heldout, task.speed, strict=True):
            cells = [found.method, str(found.seeds), _spread(found), told_gap(found), told_p(found.p_paired)]
            cells += [
                "primary" if found is table.primary else told_p(found.p_holm),
                told_p(found.p_mann_whitney_holm),
            ]
            cells += [
                _spread(speed),
                told_gap(speed),
                told_p(speed.p_holm),
                told_p(speed.p_mann_whitney_holm),
            ]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _spread(found: SeedComparison) -> str:
    sd = "" if found.sd is None else f" ± {100 * found.sd:.1f}"
    return f"{100 * found.mean:.1f}{sd}"


def told_gap(found: SeedComparison) -> str:
    """The difference to the baseline in points, with its interval where there is one."""
    gap = found.difference
    if gap is None:
        return "-"
    return f"{100 * gap.mean:+.1f}" + (
        f" ({100 * gap.low:+.1f} to {100 * gap.high:+.1f})" if found.pairs > 1 else ""
    )


def told_p(value: float | None) -> str:
    """A p-value as tables show it."""
    return "-" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"
