"""Tables of all methods, made from kept outcomes: how runs of language models learn, and, on tiny policies, where credit lands too.

A column of learning has the runs of one model with one set of training settings: pairs of different settings are never averaged.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from delta_evidence.learning.outcome import RUNS, Outcome, read_outcomes
from delta_evidence.learning.protocol import TrainingSettings
from delta_evidence.learning.runner import PROTOCOL
from delta_rlvr.evaluate.bootstrap import Interval
from delta_rlvr.evaluate.seeds import gap_text, mean_over_seeds
from delta_rlvr.hints import near_file
from delta_rlvr.objectives import get_method
from delta_rlvr.score_units import POINTS
from delta_rlvr.tasks import BUILT_IN
from delta_rlvr.weight_words import over_a_run
from delta_rlvr.words import counted

BENCH = "credit_bench.json"
BASELINE, PUBLISHED = "dapo", "delta"
MODELS = {
    "builtin": "bundled policy",
    "smollm2-135m": "SmolLM2-135M",
    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf": "Qwen2.5-Coder-0.5B",
}
"""What a model is called in tables; from small to large, others after them."""
_PLANTED = (
    ("right_auroc", "AUROC, right"),
    ("wrong_auroc", "AUROC, wrong"),
    ("cosine", "cosine to the oracle's update"),
)
_BY = "wrong_auroc"
"""What the planted table is sorted by."""
REAL, TINY, PLANTED = "Language models", "Tiny policies", "Where the credit lands"
"""Headings."""
BY_ARM = "by arm"
"""In place of a learning rate: arms have rates of their own."""
_GONE = "no method of this version"
PairKey = tuple[str, int, tuple[float, float]]


@dataclass(frozen=True)
class Pair:
    """A run and DAPO's of the same task and seed."""

    task: str
    seed: int
    over_training: float
    """Differences to DAPO: in accuracy over training, and in held-out accuracy at the end."""
    at_the_end: float
    base: tuple[float, float]
    """DAPO's two accuracies, which tell its runs apart."""

    @property
    def key(self) -> PairKey:
        return self.task, self.seed, self.base


@dataclass
class Row:
    """What is known of one method; what nobody measured is missing."""

    method: str
    planted: dict[str, float] = field(default_factory=dict)
    """Measures of the planted benchmark (`_PLANTED`)."""
    learning: dict[str, list[Pair]] = field(default_factory=dict)
    """By column."""

    def over_training(self, column: str) -> Interval:
        return mean_over_seeds([pair.over_training for pair in self.learning[column]])

    def at_the_end(self, column: str) -> float:
        return statistics.fmean(pair.at_the_end for pair in self.learning[column])


@dataclass(frozen=True)
class Leaderboard:
    """All methods, and the columns of learning: a model with its settings."""

    rows: list[Row]
    columns: list[str]
    tiny: list[str]
    """The columns of policies that were made for their tasks."""
    published: Mapping[str, Mapping[PairKey, float]]
    """By column: DelTA's difference over training, by task, seed and DAPO's run."""
    decided_at: Mapping[str, Mapping[str, float]]
    """By column: studies whose primary end point no table has, with its temperature."""
    effects: Mapping[str, Mapping[str, str]]
    """By column and method: a warning, where its weights had no effect or scaled the loss."""
    left_out: list[str]
    """What the folder holds and the tables do not, and why."""

    @property
    def real(self) -> list[str]:
        return [column for column in self.columns if column not in self.tiny]

    def on_the_same_pairs(self, row: Row, column: str) -> str:
        """DelTA's difference on the row's pairs, as far as it ran there."""
        pairs, known = row.learning[column], self.published.get(column, {})
        gaps = [known[pair.key] for pair in pairs if pair.key in known]
        if not gaps or row.method == PUBLISHED:
            return "-"
        some = "" if len(gaps) == len(pairs) else f" ({len(gaps)})"
        return f"{POINTS.signed(statistics.fmean(gaps))}{some}"


def leaderboard(folder: Path) -> Leaderboard:
    """Everything that a folder of kept outcomes says: planted benchmarks and studies, wherever they lie in it."""
    if folder.is_file():
        raise ValueError(f"{folder} is a file: name its folder, {folder.parent}")
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is no folder: name the one that holds the kept outcomes, such as evidence/results"
            f"{near_file(folder, Path.is_dir)}"
        )
    rows: dict[str, Row] = {}
    left_out: list[str] = []
    for path in sorted(folder.rglob(BENCH)):
        for line in _read(path)["rows"]:
            if (line["slice"], line["condition"]) != ("all", "clean"):
                continue
            if not _known(line["method"]):
                left_out.append(f"{path.relative_to(folder)}, {line['method']}: {_GONE}")
                continue
            row = rows.setdefault(line["method"], Row(line["method"]))
            row.planted = {name: line[name]["mean"] for name, _ in _PLANTED if name in line} | row.planted
    studies = [_Study(folder, path.parent) for path in sorted(folder.rglob(RUNS))]
    if not rows and not studies:
        raise ValueError(
            f"{folder} holds neither {BENCH} nor {RUNS}, nor do the folders in it: there is nothing to show"
        )
    published: dict[str, dict[PairKey, float]] = {}
    pairs: Counter[str] = Counter()
    columns = _columns(studies)
    for column, kept in columns.items():
        first: dict[tuple[str, str, int], str] = {}
        again: Counter[tuple[str, str, str]] = Counter()
        for study in kept:
            left_out += study.left_out()
            for method, pair in study.pairs():
                if method == PUBLISHED:
                    published.setdefault(column, {})[pair.key] = pair.over_training
                before = first.setdefault((method, pair.task, pair.seed), study.name)
                if before == study.name:
                    rows.setdefault(method, Row(method)).learning.setdefault(column, []).append(pair)
                    pairs[column] += 1
                else:  # a run that two studies hold counts once
                    again[study.name, method, before] += 1
        left_out += [
            f"{study}, {method}: {counted(count, 'run')} of tasks and seeds that {before} has"
            for (study, method, before), count in again.items()
        ]
    models = [*MODELS.values(), *sorted({study.model for study in studies} - set(MODELS.values()))]
    ordered = sorted(pairs, key=lambda column: (models.index(columns[column][0].model), -pairs[column], column))
    tiny = [column for column in ordered if any(study.tiny for study in columns[column])]
    decided_at = {
        column: {study.name: study.decided_at for study in kept if study.decided_at is not None}
        for column, kept in columns.items()
    }
    effects = {column: _effects(kept) for column, kept in columns.items()}
    by_name = sorted(rows.values(), key=lambda one: one.method)
    return Leaderboard(by_name, ordered, tiny, published, decided_at, effects, left_out)


def _effects(studies: Sequence[_Study]) -> dict[str, str]:
    metrics: dict[str, list[dict[str, Any]]] = {}
    for study in studies:
        for method, lines in study.weight_metrics():
            metrics.setdefault(method, []).extend(lines)
    told = {method: over_a_run(lines) for method, lines in metrics.items()}
    return {method: warning for method, warning in told.items() if warning}


class _Study:
    """A folder of outcomes, read by what its protocol.json recorded: the rules' files need not be there."""

    def __init__(self, root: Path, folder: Path):
        document = _read(folder / PROTOCOL)
        self._protocol, self._digests = document["protocol"], document.get("contents") or {}
        inside = str(folder.relative_to(root))
        self.name = folder.resolve().name if inside == "." else inside
        self.model = MODELS.get(self._protocol["model"], Path(self._protocol["model"]).name)
        self._arms = self._protocol.get("arm_settings") or {}
        # A setting that is newer than the outcomes had its default then. How long responses may be is the task's, how a batch is
        # divided the engine's.
        settings = asdict(TrainingSettings(**self._protocol["training"]))
        settings = {key: value for key, value in settings.items() if key not in ("max_tokens", "continuations")}
        self.settings = {**settings, "reward_noise": self._protocol["reward_noise"]}
        self._runs = read_outcomes(folder)
        usual = self.settings["learning_rate"]
        rates = {self._arms.get(arm, {}).get("learning_rate") or usual for arm in {one.run.arm for one in self._runs}}
        self.settings["learning_rate"] = rates.pop() if len(rates) == 1 else f"{BY_ARM} ({self.name})"
        end_point = (self._protocol.get("primary") or {}).get("end_point")
        self.decided_at: float | None = end_point.get("temperature") if isinstance(end_point, dict) else None
        """The temperature of the held-out scores that the study is decided by, where it is by those and not by what tables have."""
        self._finished = {(one.run.arm, one.run.task, one.run.seed): one for one in self._runs if one.after is not None}
        self.tiny = self._protocol["model"] == "builtin" or all(
            one.run.task.partition("?")[0] in BUILT_IN for one in self._runs
        )

    def pairs(self) -> Iterable[tuple[str, Pair]]:
        """The runs that DAPO has a partner for, by the name of their row."""
        for (arm, task, seed), one in self._finished.items():
            base = self._finished.get((BASELINE, task, seed))
            if arm != BASELINE and base is not None and (name := self._row(arm)) is not None:
                own, other = _scores(one), _scores(base)
                yield name, Pair(task, seed, own[0] - other[0], own[1] - other[1], other)

    def weight_metrics(self) -> Iterable[tuple[str, list[dict[str, Any]]]]:
        """What is known of the weights, by the name of the row."""
        for one in self._runs:
            if (name := self._row(one.run.arm)) is not None:
                yield name, one.weight_metrics

    def left_out(self) -> list[str]:
        """Why the other runs have no place."""
        if not any(arm == BASELINE for arm, _, _ in self._finished):
            return [f"{self.name}: no finished run of {BASELINE}"]
        why = Counter((one.run.arm, self._unfit(one)) for one in self._runs if one.run.arm != BASELINE)
        return [
            f"{self.name}, {arm}: {counted(count, 'run')}, {reason}" for (arm, reason), count in why.items() if reason
        ]

    def _unfit(self, one: Outcome) -> str | None:
        if self._row(one.run.arm) is None:
            return "retired by the protocol" if one.run.arm in self._protocol.get("retired", {}) else _GONE
        if one.after is None:
            return "diverged"
        paired = (BASELINE, one.run.task, one.run.seed) in self._finished
        return None if paired else f"no finished run of {BASELINE} with the same seed"

    def _row(self, arm: str) -> str | None:
        """The arm; its method too where that has another name, and the digest of a user's rule."""
        spec = self._arms.get(arm, {}).get("method") or arm
        digest = self._digests.get(spec)
        if arm in self._protocol.get("retired", {}) or not _known(spec):
            return None
        named = f"{spec} {digest[:8]}" if digest else spec
        return named if spec == arm else f"{arm} ({named})"


def _scores(one: Outcome) -> tuple[float, float]:
    assert one.after is not None
    return statistics.fmean(one.curve), one.after


def _columns(studies: Sequence[_Study]) -> dict[str, list[_Study]]:
    """The studies of each column: a model, and those settings that are no defaults."""
    usual = {**asdict(TrainingSettings()), "reward_noise": 0.0}
    words = {"learning_rate": "lr", "max_grad_norm": "clip", "reward_noise": "noise"}
    columns: dict[str, list[_Study]] = {}
    for study in studies:
        apart = [
            f"{words.get(name, name)} {_rate(value)}" for name, value in study.settings.items() if value != usual[name]
        ]
        columns.setdefault(", ".join([study.model, *apart]), []).append(study)
    return columns


def _rate(value: Any) -> str:
    return f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)


def _known(method: str) -> bool:
    """Whether it is a method of this version, or a user's rule, whose file need not be there."""
    if ":" in method:
        return True
    try:
        get_method(method)
    except ValueError:
        return False
    return True


def _read(path: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}): make it again, or move it elsewhere") from error
    return values


def markdown(board: Leaderboard) -> str:
    """How runs learn, as docs/leaderboard.md has it: a table for each column, language models first."""
    parts = [_section(REAL, [_learned(board, column) for column in board.real])]
    parts += [_section(TINY, [_learned(board, column) for column in board.tiny])]
    return "".join(f"{part}\n" for part in "\n\n".join(filter(None, parts)).splitlines())


def planted(board: Leaderboard) -> str:
    """Where the credit lands on the planted benchmark."""
    rows = sorted((row for row in board.rows if row.planted), key=lambda row: (-row.planted.get(_BY, 0.0), row.method))
    lines = [
        [f"`{row.method}`", *(f"{row.planted[name]:.3f}" if name in row.planted else "-" for name, _ in _PLANTED)]
        for row in rows
    ]
    table = markdown_table(["method", *(heading for _, heading in _PLANTED)], lines)
    return f"{_section(PLANTED, [table])}\n" if rows else ""


def _section(heading: str, tables: Sequence[str]) -> str:
    return "\n\n".join([f"## {heading}", *tables]) if tables else ""


def _learned(board: Leaderboard, column: str) -> str:
    """The methods of one column, the largest gain first."""
    rows = sorted(
        (row for row in board.rows if column in row.learning),
        key=lambda row: (-row.over_training(column).mean, row.method),
    )
    there = [board.on_the_same_pairs(row, column) for row in rows]
    shown = {
        "method": [f"`{row.method}`" for row in rows],
        "over training": [gap_text(row.over_training(column)) for row in rows],
        **({f"`{PUBLISHED}` there": there} if set(there) != {"-"} else {}),
        "at the end": [POINTS.signed(row.at_the_end(column)) for row in rows],
        "pairs": [str(len(row.learning[column])) for row in rows],
    }
    parts = [f"**{column}**", markdown_table(list(shown), zip(*shown.values(), strict=True))]
    effects = board.effects[column]
    parts += [f"`{row.method}`: {effects[row.method]}." for row in rows if row.method in effects]
    for study, at in board.decided_at[column].items():
        how = "greedy scores" if at == 0 else f"scores at T = {at:g}"
        parts.append(f"`{study}` is decided by {how} (its table.md).")
    return "\n\n".join(parts)


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def replace_table(page: str, table: str) -> str:
    """The page with the table between its two marks made anew."""
    begin, end = "<!-- table: begin -->\n", "<!-- table: end -->"
    if begin not in page or end not in page:
        raise ValueError(f"the page has no place for the table: put {begin.strip()} and {end} where it belongs")
    head, _, rest = page.partition(begin)
    return f"{head}{begin}{table}{end}{rest.partition(end)[2]}"


def as_dict(board: Leaderboard) -> dict[str, Any]:
    """For other programs: every pair of every row."""
    return {"columns": board.columns, "rows": [asdict(row) for row in board.rows], "left_out": board.left_out}
