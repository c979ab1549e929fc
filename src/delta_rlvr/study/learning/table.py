"""What a study came to: every arm against the baseline, paired by seed, the primary comparison apart from the rest."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from delta_rlvr.evaluate.compare import LEVEL
from delta_rlvr.evaluate.seeds import SeedComparison, adjust, compare_seeds
from delta_rlvr.study.learning.curves import smooth
from delta_rlvr.study.learning.protocol import BatchesTo, EndPoint, Primary, Protocol
from delta_rlvr.study.learning.runner import Outcome


@dataclass(frozen=True)
class Measure:
    """A number by which runs are compared."""

    key: str
    """In table.json."""
    name: str
    heading: str
    score: Callable[[Outcome], float]
    scale: float = 100.0
    unit: str = "points"


def _after(outcome: Outcome) -> float:
    assert outcome.after is not None
    return outcome.after


def _measure(end_point: EndPoint) -> Measure:
    if isinstance(end_point, BatchesTo):
        goal = end_point.batches_to
        return Measure(
            "batches_to",
            f"rollout batches to {100 * goal:g} %",
            f"batches to {100 * goal:g} %",
            lambda outcome: batches_to(goal, outcome.curve),
            1.0,
            "batches",
        )
    if end_point == "held_out":
        return Measure("heldout", "held-out accuracy", "held-out", _after)
    # Who learns faster has more of it.
    return Measure(
        "speed",
        "accuracy over training",
        "over training",
        lambda outcome: statistics.fmean(outcome.curve),
    )


def batches_to(goal: float, curve: Sequence[float]) -> float:
    """The first rollout batch, from 1, with this accuracy; one more than there are where a run never has it."""
    reached = (number for number, accuracy in enumerate(smooth(curve), start=1) if accuracy >= goal)
    return float(next(reached, len(curve) + 1))


@dataclass(frozen=True)
class Column:
    """All arms of a task by one measure."""

    measure: Measure
    rows: list[SeedComparison]


@dataclass(frozen=True)
class TaskTable:
    """One task's arms."""

    task: str
    before: float
    """Held-out accuracy before training."""
    columns: list[Column]
    """Held-out accuracy after training, accuracy over training and, where the protocol's end point is another, that one."""
    diverged: dict[str, list[int]]
    """The seeds of runs that diverged, by arm: they are left out of everything else."""

    def as_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {"task": self.task, "before": self.before}
        for column in self.columns:
            values[column.measure.key] = [asdict(row) for row in column.rows]
        return {**values, "diverged": self.diverged} if self.diverged else values


@dataclass(frozen=True)
class StudyTable:
    """All tasks, with p-values adjusted over all of their comparisons but the primary one."""

    protocol: Protocol
    tasks: list[TaskTable]
    primary: SeedComparison | None

    @property
    def deciding(self) -> str:
        """The key of the measure that the study is decided by."""
        declared = self.protocol.primary
        return _measure("held_out" if declared is None else declared.end_point).key

    def shown(self, task: TaskTable) -> list[Column]:
        """The columns that a terminal has room for: the deciding one, and the held-out scores."""
        return [column for column in task.columns if column.measure.key in ("heldout", self.deciding)]

    def as_dict(self) -> dict[str, Any]:
        primary = None if self.primary is None else asdict(self.primary)
        declared = self.protocol.primary
        if primary is not None and declared is not None and declared.end_point != "held_out":
            primary["end_point"] = _measure(declared.end_point).name
        return {
            "name": self.protocol.name,
            "primary": primary,
            "tasks": [task.as_dict() for task in self.tasks],
        }


def study_table(protocol: Protocol, outcomes: Sequence[Outcome]) -> StudyTable:
    """The table of what is there; arms without a finished run are left out."""
    measures = [_measure("held_out"), _measure("over_training")]
    if protocol.primary is not None and isinstance(protocol.primary.end_point, BatchesTo):
        measures.append(_measure(protocol.primary.end_point))
    tables = []
    for task in protocol.tasks:
        here = [outcome for outcome in outcomes if outcome.run.task == task]
        finished = [outcome for outcome in here if outcome.diverged is None]
        if not any(outcome.run.arm == protocol.baseline for outcome in finished):
            continue
        before = statistics.fmean(outcome.before for outcome in here)
        columns = [Column(measure, _compare(protocol, finished, measure)) for measure in measures]
        tables.append(TaskTable(task, before, columns, _diverged(protocol, here)))
    if not tables:
        raise ValueError(
            f"study {protocol.name!r} has no finished run of its baseline {protocol.baseline!r} yet"
        )
    primary = None if protocol.primary is None else _primary(protocol, protocol.primary, tables, outcomes)
    return StudyTable(protocol, _adjusted(tables, primary), primary)


def _primary(
    protocol: Protocol, declared: Primary, tables: Sequence[TaskTable], outcomes: Sequence[Outcome]
) -> SeedComparison | None:
    """The comparison that the protocol declares: one of the table's, or one over the pairs of several tasks."""
    measure = _measure(declared.end_point)
    if len(declared.tasks) == 1:
        rows = [
            row
            for table in tables
            for column in table.columns
            for row in column.rows
            if table.task in declared.tasks and column.measure.key == measure.key
        ]
    else:
        finished = [
            outcome for outcome in outcomes if outcome.run.task in declared.tasks and outcome.diverged is None
        ]
        rows = _compare(protocol, finished, measure)
    return next((row for row in rows if row.method == declared.arm), None)


def _compare(protocol: Protocol, outcomes: Sequence[Outcome], measure: Measure) -> list[SeedComparison]:
    scores: dict[str, dict[Any, float]] = {}
    for arm in protocol.arms:
        by_seed = {
            (outcome.run.task, outcome.run.seed): measure.score(outcome)
            for outcome in outcomes
            if outcome.run.arm == arm
        }
        if by_seed:
            scores[arm] = by_seed
    return compare_seeds(scores, protocol.baseline)


def _diverged(protocol: Protocol, outcomes: Sequence[Outcome]) -> dict[str, list[int]]:
    seeds = {
        arm: [one.run.seed for one in outcomes if one.run.arm == arm and one.diverged is not None]
        for arm in protocol.arms
    }
    return {arm: those for arm, those in seeds.items() if those}


def _adjusted(tables: Sequence[TaskTable], primary: SeedComparison | None) -> list[TaskTable]:
    """Holm over every comparison of every task, for each measure apart; the primary one stands alone."""
    adjusted = []
    for columns in zip(*(table.columns for table in tables), strict=True):
        done = iter(adjust([row for column in columns for row in column.rows if row is not primary]))
        adjusted.append(
            [
                replace(column, rows=[row if row is primary else next(done) for row in column.rows])
                for column in columns
            ]
        )
    by_task = zip(*adjusted, strict=True)
    return [replace(table, columns=list(columns)) for table, columns in zip(tables, by_task, strict=True)]


def sentences(table: StudyTable) -> list[str]:
    """What the numbers support, in plain words."""
    said = []
    baseline = table.protocol.baseline
    found, declared = table.primary, table.protocol.primary
    if declared is not None and found is not None and found.difference is not None:
        measure = _measure(declared.end_point)
        gap, scale = found.difference, measure.scale
        told = (
            f"Primary comparison, {found.method} against {baseline} on {', '.join(declared.tasks)}, {measure.name}, "
            f"{found.pairs} paired seeds: {scale * gap.mean:+.1f} {measure.unit} ({scale * gap.low:+.1f} to {scale * gap.high:+.1f})"
        )
        if found.p_paired is None:
            said.append(f"{told}: one pair cannot be tested.")
        elif found.p_paired < LEVEL:
            said.append(
                f"{told}, p = {found.p_paired:.3g}: more than seed-to-seed variation would often make."
            )
        else:
            said.append(
                f"{told}, p = {found.p_paired:.3g}: indistinguishable from seed-to-seed variation. A true difference of "
                f"{scale * (found.detectable or 0):.1f} {measure.unit} would have shown in four of five such studies."
            )
    for task in table.tasks:
        for column in task.columns:
            apart = [
                f"{row.method} {column.measure.scale * row.difference.mean:+.1f}"
                for row in column.rows
                if row.difference is not None and _apart(row)
            ]
            said.append(
                f"{task.task}, {column.measure.name}: arms apart from {baseline} at the 5 % level "
                f"(unpaired over all seeds, Holm): {', '.join(apart) if apart else 'none'}."
            )
        said += [
            f"{task.task}: left out, as they diverged: {arm}, seeds {', '.join(map(str, seeds))}."
            for arm, seeds in task.diverged.items()
        ]
    return said


def _apart(found: SeedComparison) -> bool:
    return found.p_mann_whitney_holm is not None and found.p_mann_whitney_holm < LEVEL


def markdown(table: StudyTable) -> str:
    """The table as docs keep it."""
    against = f"against {table.protocol.baseline} (95 % interval)"
    # The paired p-value stands where the study is decided, and with the held-out scores.
    paired = {"heldout", table.deciding}
    lines = []
    for task in table.tasks:
        headings = ["arm", "seeds"]
        for column in task.columns:
            headings += [f"{column.measure.heading}, mean ± SD", against]
            headings += ["p paired"] if column.measure.key in paired else []
            headings += ["p Holm", "p unpaired, Holm"]
        lines += [f"**{task.task}** (held-out before training: {100 * task.before:.1f} %)", ""]
        lines += [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
        for rows in zip(*(column.rows for column in task.columns), strict=True):
            cells = [rows[0].method, str(rows[0].seeds)]
            for column, row in zip(task.columns, rows, strict=True):
                cells += [_spread(row, column.measure), told_gap(row, column.measure)]
                cells += [told_p(row.p_paired)] if column.measure.key in paired else []
                cells += ["primary" if row is table.primary else told_p(row.p_holm)]
                cells += [told_p(row.p_mann_whitney_holm)]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _spread(row: SeedComparison, measure: Measure) -> str:
    sd = "" if row.sd is None else f" ± {measure.scale * row.sd:.1f}"
    return f"{measure.scale * row.mean:.1f}{sd}"


def told_gap(row: SeedComparison, measure: Measure) -> str:
    """The difference to the baseline in the measure's unit, with its interval where there is one."""
    gap, scale = row.difference, measure.scale
    if gap is None:
        return "-"
    interval = f" ({scale * gap.low:+.1f} to {scale * gap.high:+.1f})" if row.pairs > 1 else ""
    return f"{scale * gap.mean:+.1f}{interval}"


def told_p(value: float | None) -> str:
    """A p-value as tables show it."""
    return "-" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"
