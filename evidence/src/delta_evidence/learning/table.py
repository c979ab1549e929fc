"""What a study came to: every arm against the baseline, paired by seed, the primary comparison apart from the rest."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from delta_evidence.learning.curves import smooth
from delta_evidence.learning.heldout import Decoding
from delta_evidence.learning.outcome import Outcome, missing_runs
from delta_evidence.learning.protocol import BatchesTo, EndPoint, HeldoutOver, Primary, Protocol
from delta_rlvr.evaluate.seeds import (
    SeedComparison,
    adjust,
    compare_seeds,
    enough_seeds,
    gap_text,
    is_significant,
    mean_text,
    p_text,
    p_words,
    paired_floor,
)
from delta_rlvr.evaluate.significance import SIGNIFICANCE
from delta_rlvr.score_units import POINTS, ScoreUnit
from delta_rlvr.weight_words import over_a_run
from delta_rlvr.words import counted

ENOUGH = enough_seeds(1)
"""The fewest pairs of which the sign-flip test can be significant."""
NAMED = 3
"""So many arms a sentence names in passing; of more it says how many they are."""


@dataclass(frozen=True)
class Measure:
    """A number by which runs are compared."""

    key: str
    """In table.json."""
    name: str
    score: Callable[[Outcome], float]
    unit: ScoreUnit = POINTS


def _after(outcome: Outcome) -> float:
    assert outcome.after is not None
    return outcome.after


def _measure(end_point: EndPoint) -> Measure:
    if isinstance(end_point, BatchesTo):
        goal = end_point.batches_to
        return Measure(
            "batches_to",
            f"rollout batches to {100 * goal:g} %",
            lambda outcome: batches_to(goal, outcome.curve),
            ScoreUnit(1, "batches", sign=""),
        )
    if isinstance(end_point, HeldoutOver):
        return _scored(Decoding(end_point.temperature), "over")
    if end_point == "held_out":
        return Measure("heldout", "held-out accuracy", _after)
    # Who learns faster has more of it.
    return Measure("speed", "accuracy over training", lambda outcome: statistics.fmean(outcome.curve))


def _scored(decoding: Decoding, what: str) -> Measure:
    """Of the further scores at a temperature: their mean "over" training, that at the "end", or a pass@k ("8") at the end."""
    at = decoding.temperature
    how, key = ("greedy", "greedy") if at == 0 else (f"T = {at:g}", f"t{at:g}")

    def score(outcome: Outcome) -> float:
        found = [one for one in outcome.heldout if one["temperature"] == at]
        last = max(found, key=lambda one: one["batch"])
        if what == "over":
            return statistics.fmean(one["accuracy"] for one in found)
        return last["accuracy"] if what == "end" else last["pass_at"][what]

    names = {"over": "held-out accuracy over training", "end": "held-out accuracy at the end"}
    if what in names:
        return Measure(f"{key}_{what}", f"{names[what]}, {how}", score)
    return Measure(f"{key}_pass_{what}", f"held-out pass@{what} at the end, {how}", score)


def _further(protocol: Protocol) -> list[Measure]:
    """What the protocol's further scores are read as."""
    measures = []
    for decoding in protocol.heldout.also:
        measures += [_scored(decoding, "over")] if len(decoding.after) > 1 else []
        measures.append(_scored(decoding, "end"))
        if decoding.samples > 1:
            measures.append(_scored(decoding, str(1 << (decoding.samples.bit_length() - 1))))
    return measures


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
    """Held-out accuracy before training, at the training's temperature."""
    columns: list[Column]
    """Held-out accuracy after training, accuracy over training and, where the protocol's end point is another, that one."""
    diverged: dict[str, list[int]]
    """The seeds of runs that diverged, by arm: they are left out of everything else."""

    @property
    def all_wrong(self) -> bool:
        """Whether no run ever had a right response."""
        shares = [column for column in self.columns if column.measure.unit is POINTS]
        return self.before == 0 and all(row.mean == 0 for column in shares for row in column.rows)

    def as_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {"task": self.task, "before": self.before}
        for column in self.columns:
            values[column.measure.key] = [row.as_dict() for row in column.rows]
        return {**values, "diverged": self.diverged} if self.diverged else values


@dataclass(frozen=True)
class StudyTable:
    """All tasks, with p-values adjusted over all of their comparisons by a measure, but the primary one."""

    protocol: Protocol
    tasks: list[TaskTable]
    primary: SeedComparison | None
    missing: int = 0
    """Runs that the protocol plans and that are not there."""
    effects: dict[str, str] = field(default_factory=dict)
    """A warning by arm, where its weights had no effect or scaled the loss."""

    @property
    def deciding(self) -> str:
        """The key of the measure that the study is decided by."""
        declared = self.protocol.primary
        return _measure("held_out" if declared is None else declared.end_point).key

    def shown(self, task: TaskTable) -> list[Column]:
        """The columns that a terminal has room for: the deciding one, and the held-out scores."""
        return [column for column in task.columns if column.measure.key in ("heldout", self.deciding)]

    def as_dict(self) -> dict[str, Any]:
        primary = None if self.primary is None else self.primary.as_dict()
        declared = self.protocol.primary
        if primary is not None and declared is not None and declared.end_point != "held_out":
            primary["end_point"] = _measure(declared.end_point).name
        return {"name": self.protocol.name, "primary": primary, "tasks": [task.as_dict() for task in self.tasks]}


def study_table(protocol: Protocol, outcomes: Sequence[Outcome]) -> StudyTable:
    """The table of what is there; arms without a finished run are left out."""
    measures = [_measure("held_out"), _measure("over_training"), *_further(protocol)]
    if protocol.primary is not None and isinstance(protocol.primary.end_point, BatchesTo):
        measures.append(_measure(protocol.primary.end_point))
    tables = []
    for task in protocol.tasks:
        here = [outcome for outcome in outcomes if outcome.run.task == task]
        finished = [outcome for outcome in here if outcome.diverged is None]
        if not any(outcome.run.arm == protocol.baseline for outcome in finished):
            continue
        before = statistics.fmean(outcome.before for outcome in here)
        columns = [Column(measure, compare_arms(protocol, finished, measure)) for measure in measures]
        tables.append(TaskTable(task, before, columns, _diverged(protocol, here)))
    if not tables:
        raise ValueError(f"study {protocol.name!r} has no finished run of its baseline {protocol.baseline!r} yet")
    primary = None if protocol.primary is None else _primary(protocol, protocol.primary, tables, outcomes)
    missing = len(missing_runs(protocol, outcomes))
    return StudyTable(protocol, _adjusted(tables, primary), primary, missing, _effects(protocol, outcomes))


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
        finished = [outcome for outcome in outcomes if outcome.run.task in declared.tasks and outcome.diverged is None]
        rows = compare_arms(protocol, finished, measure)
    return next((row for row in rows if row.method == declared.arm), None)


def compare_arms(protocol: Protocol, outcomes: Sequence[Outcome], measure: Measure) -> list[SeedComparison]:
    """Every arm against the baseline, over the tasks and seeds of these runs."""
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


def _effects(protocol: Protocol, outcomes: Sequence[Outcome]) -> dict[str, str]:
    told = {
        arm: over_a_run(line for one in outcomes if one.run.arm == arm for line in one.weight_metrics)
        for arm in protocol.arms
    }
    return {arm: warning for arm, warning in told.items() if warning}


def _adjusted(tables: Sequence[TaskTable], primary: SeedComparison | None) -> list[TaskTable]:
    """Holm over every comparison of every task, for each measure apart; the primary one stands alone."""
    adjusted = []
    for columns in zip(*(table.columns for table in tables), strict=True):
        done = iter(adjust([row for column in columns for row in column.rows if row is not primary]))
        rows = [[row if row is primary else next(done) for row in column.rows] for column in columns]
        adjusted.append([replace(column, rows=own) for column, own in zip(columns, rows, strict=True)])
    by_task = zip(*adjusted, strict=True)
    return [replace(table, columns=list(columns)) for table, columns in zip(tables, by_task, strict=True)]


def sentences(table: StudyTable) -> list[str]:
    """What the numbers support, in plain words."""
    said = []
    baseline = table.protocol.baseline
    declared = table.protocol.primary
    said += _warnings(table)
    if table.missing:
        planned = len(table.protocol.runs())
        said.append(
            f"Unfinished: {planned - table.missing} of {planned} runs are there. Decide nothing by these numbers before all are."
        )
    if declared is not None and table.primary is not None and table.primary.difference is not None:
        measure = _measure(declared.end_point)
        paired = (task for task in table.tasks if any(row.pairs for row in _rows(task, declared.arm)))
        tasks = ", ".join(task.task for task in paired if task.task in declared.tasks)
        where = f"on {tasks}, {measure.name}"
        said.append(f"Primary comparison: {paired_sentence(table.primary, baseline, where, measure.unit)}")
    for task in table.tasks:
        if task.all_wrong:
            said.append(
                f"{task.task}: not one response of any run was right, before or after training, so that nothing could be learnt. The "
                "problems are too hard for the model, its responses are cut before the answer (max_tokens), or its answers do not "
                "stand where the template asks for them: look at responses with `delta-rlvr train --model MODEL --task TASK`."
            )
            continue
        for place, column in enumerate(task.columns):
            family = [row for one in table.tasks for row in one.columns[place].rows if row.method != baseline]
            if apart := _apart(column, family, table):
                said.append(f"{task.task}, {column.measure.name}: {apart}")
        said += [
            f"{task.task}: left out, as they diverged: {arm}, seeds {', '.join(map(str, seeds))}."
            for arm, seeds in task.diverged.items()
        ]
    return said


def _warnings(table: StudyTable) -> list[str]:
    return [f"{arm}: {warning}." for arm, warning in table.effects.items()]


def _rows(task: TaskTable, arm: str) -> list[SeedComparison]:
    return [row for column in task.columns for row in column.rows if row.method == arm]


def _apart(column: Column, everywhere: Sequence[SeedComparison], table: StudyTable) -> str:
    """Which arms of a task differ from the baseline by the paired test; "" where the primary comparison is all there is.
    `everywhere`: the comparisons of all tasks by this measure."""
    family = [row for row in everywhere if row is not table.primary]
    rows = [row for row in column.rows if row in family]
    primary = any(row is table.primary for row in column.rows)
    if primary and not rows:
        return ""
    apart = [
        f"{row.method} {gap_text(row.difference, column.measure.unit)}" for row in rows if is_significant(row.p_holm)
    ]
    # Arms without seeds in common with the baseline, as where some runs diverged.
    apart += [
        f"{row.method} {gap_text(row.difference, column.measure.unit)} (unpaired: no seeds in common)"
        for row in rows
        if not row.pairs and is_significant(row.p_mann_whitney_holm)
    ]
    tested = [row.pairs for row in family if row.p_paired is not None]
    over = f", Holm over {counted(len(tested), 'comparison')}" if tested else ""
    arms = "other arms" if primary else "arms"
    said = f"{arms} that differ from {table.protocol.baseline} at the 5 % level (sign flips over pairs{over}): "
    if not apart and rows and max(tested, default=0) < enough_seeds(len(tested)):
        return f"{said}none; so few pairs cannot show any."
    few = [row.method for row in rows if 0 < row.pairs < ENOUGH]
    named = ", ".join(few) if len(few) <= NAMED else f"{len(few)} arms"
    cannot = f" Fewer than {ENOUGH} pairs, which cannot show it: {named}." if few else ""
    return f"{said}{', '.join(apart) or 'none'}.{cannot}"


def markdown(table: StudyTable) -> str:
    """The table as docs keep it: a row for every end point and arm."""
    headings = ["end point", "arm", "seeds", "mean ± SD", f"against {table.protocol.baseline} (95 % interval)"]
    headings += ["p paired", "p Holm", "p unpaired, Holm"]
    lines = [line for warning in _warnings(table) for line in (warning, "")]
    for task in table.tasks:
        lines += [f"**{task.task}** ({before_text(task, table.protocol)})", ""]
        lines += [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
        for column in task.columns:
            unit = column.measure.unit
            for row in column.rows:
                cells = [column.measure.name, row.method, str(row.seeds), mean_text(row, unit)]
                cells += [gap_text(row.difference, unit), p_text(row.p_paired)]
                cells += ["primary" if row is table.primary else p_text(row.p_holm), p_text(row.p_mann_whitney_holm)]
                lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def before_text(task: TaskTable, protocol: Protocol) -> str:
    """The score of the start, which is not greedy where a column is."""
    return f"held-out before training, at T = {protocol.training.temperature:g}: {100 * task.before:.1f} %"


def paired_sentence(row: SeedComparison, baseline: str, where: str = "", unit: ScoreUnit = POINTS) -> str:
    """What a comparison comes to that is tested alone, by its pairs (a task and seed each); `where` says on what it was made."""
    place = f" {where}" if where else ""
    gap = gap_text(row.difference, unit, named=True)
    compared = f"{row.method} against {baseline}{place}, {counted(row.pairs, 'pair')}: {gap}"
    if row.p_paired is None:
        return f"{compared}: one pair cannot be tested."
    compared = f"{compared}, {p_words(row.p_paired)}"
    if is_significant(row.p_paired):
        return f"{compared}: more than seed-to-seed variation explains."
    least = paired_floor(row.pairs)
    if least >= SIGNIFICANCE:
        return f"{compared}: so few pairs cannot come below p = {least:.3g}, whatever the difference; take {ENOUGH} or more."
    compared = f"{compared}: indistinguishable from seed-to-seed variation."
    if not row.detectable:  # nothing varied
        return compared
    size = f"{unit.plain(row.detectable)} {unit.name}"
    return f"{compared} A true difference of {size} would have been found in four of five such studies."
