"""Tables of all methods, made from kept outcomes: how runs of language models learn, and, on tiny policies, where credit lands too.

A column of learning has the runs of one model with one set of training settings: pairs of different settings are never averaged.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from delta_evidence.learning.outcome import RUNS, read_outcomes
from delta_evidence.learning.protocol import TrainingSettings
from delta_evidence.learning.runner import PROTOCOL
from delta_rlvr.evaluate.bootstrap import Interval
from delta_rlvr.evaluate.seeds import gap_text, mean_over_seeds
from delta_rlvr.hints import near_path
from delta_rlvr.objectives import get_method

BENCH = "credit_bench.json"
BASELINE = "dapo"
_MODELS = {
    "builtin": "bundled policy",
    "smollm2-135m": "SmolLM2-135M",
    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf": "Qwen2.5-Coder-0.5B",
}
"""What a model is called in the table; from small to large, others after them."""
_PLANTED = (
    ("right_auroc", "AUROC, right"),
    ("wrong_auroc", "AUROC, wrong"),
    ("cosine", "cosine to the oracle's update"),
)


_BY = "wrong_auroc"
"""What the planted table is sorted by."""
REAL, TINY, PLANTED = "Language models", "Tiny policies", "Where the credit lands"
"""Headings."""


@dataclass
class Row:
    """What is known of one method; what nobody measured is missing."""

    method: str
    planted: dict[str, float] = field(default_factory=dict)
    """Measures of the planted benchmark (`_PLANTED`)."""
    learning: dict[str, Interval] = field(default_factory=dict)
    """By column: paired differences to DAPO in accuracy over training, over all tasks and seeds."""
    held_out: dict[str, float] = field(default_factory=dict)
    """The same pairs' mean difference in held-out accuracy at the end."""
    pairs: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Leaderboard:
    """All methods, and the columns of learning: a model with its settings."""

    rows: list[Row]
    columns: list[str]

    @property
    def tiny(self) -> list[str]:
        """The columns of policies that were made for their tasks."""
        return [column for column in self.columns if column.startswith(_MODELS["builtin"])]

    @property
    def real(self) -> list[str]:
        return [column for column in self.columns if column not in self.tiny]


def leaderboard(folder: Path) -> Leaderboard:
    """Everything that a folder of kept outcomes says: planted benchmarks wherever they lie in it, and the studies right in it
    (variants, which lie deeper, change settings and are left out)."""
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is no folder: name the one that holds the kept outcomes, such as evidence/results{near_path(folder)}"
        )
    rows: dict[str, Row] = {}

    def row(method: str) -> Row:
        return rows.setdefault(method, Row(method))

    for path in sorted(folder.rglob(BENCH)):
        for line in _read(path)["rows"]:
            if (line["slice"], line["condition"]) == ("all", "clean") and _known(line["method"]):
                values = {name: line[name]["mean"] for name, _ in _PLANTED if name in line}
                row(line["method"]).planted = values | row(line["method"]).planted
    columns = _learning(folder)
    for column, gaps in columns.items():
        for method, pairs in gaps.items():
            here = row(method)
            here.learning[column] = mean_over_seeds([speed for speed, _ in pairs])
            here.held_out[column] = statistics.fmean(end for _, end in pairs)
            here.pairs[column] = len(pairs)
    if not rows:
        raise ValueError(f"{folder} holds neither {BENCH} nor studies: nothing to rank")
    return Leaderboard(sorted(rows.values(), key=lambda one: one.method), list(columns))


def _learning(folder: Path) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """By column and method: for each task and seed that DAPO has too, the differences over training and at the end. A run that two
    studies hold counts once, in the first."""
    pairs: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    labels: dict[tuple[str, str], dict[str, Any]] = {}
    seen: set[tuple[str, ...]] = set()
    for path in sorted(folder.glob(f"*/{RUNS}")):
        protocol = _read(path.parent / PROTOCOL)["protocol"]
        # A setting that is newer than the outcomes had its default then.
        training = asdict(TrainingSettings(**protocol["training"]))
        arms = protocol.get("arm_settings", {})
        if any(one.get("learning_rate") for one in arms.values()):
            training["learning_rate"] = "own"
        # How long responses may be is the task's, how a batch is divided the engine's.
        own = {name: value for name, value in training.items() if name not in ("max_tokens", "continuations")}
        settings = json.dumps([own, protocol["reward_noise"]], sort_keys=True)
        finished = {
            (one.run.arm, one.run.task, one.run.seed): (statistics.fmean(one.curve), one.after)
            for one in read_outcomes(path.parent)
            if one.after is not None
        }
        model = _MODELS.get(protocol["model"], Path(protocol["model"]).name)
        for (method, task, seed), (speed, end) in finished.items():
            base = finished.get((BASELINE, task, seed))
            key = (model, method, task, str(seed), settings)
            # An arm that is more than its method and a learning rate is no row of its method.
            spelled = arms.get(method, {})
            if spelled.get("method") or spelled.get("entropy_bonus"):
                continue
            if method == BASELINE or base is None or key in seen or not _known(method):
                continue
            seen.add(key)
            labels[model, settings] = training
            here = pairs.setdefault((model, settings), {}).setdefault(method, [])
            here.append((speed - base[0], end - base[1]))
    known = list(_MODELS.values())
    models = [*known, *sorted({model for model, _ in pairs} - set(known))]
    places = sorted(pairs, key=lambda place: (-models.index(place[0]), -sum(map(len, pairs[place].values())), place[1]))
    return {_label(model, labels[model, settings], labels): pairs[model, settings] for model, settings in places}


def _label(model: str, training: Mapping[str, Any], labels: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    """The model, and of its settings those that other columns of it have otherwise."""
    others = [values for (name, _), values in labels.items() if name == model]
    words = {"learning_rate": "lr", "prompts": "prompts", "steps": "steps"}
    apart = [
        f"{word} {_rate(training[name]) if name == 'learning_rate' else training[name]}"
        for name, word in words.items()
        if len({str(values[name]) for values in others}) > 1
    ]
    return ", ".join([model, *apart])


def _rate(rate: float | str) -> str:
    return rate if isinstance(rate, str) else f"{rate:g}".replace("e-0", "e-")


def _known(method: str) -> bool:
    """Whether the name is one that can be run; outcomes may hold arms that a protocol calls retired."""
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
    lines = [[f"`{row.method}`", *(_number(row.planted.get(name), "{:.3f}") for name, _ in _PLANTED)] for row in rows]
    table = _table(["method", *(heading for _, heading in _PLANTED)], lines)
    return f"{_section(PLANTED, [table])}\n" if rows else ""


def _section(heading: str, tables: Sequence[str]) -> str:
    return "\n\n".join([f"## {heading}", *tables]) if tables else ""


def _learned(board: Leaderboard, column: str) -> str:
    """The methods of one column, the largest gain first."""
    rows = sorted(
        (row for row in board.rows if column in row.learning), key=lambda row: (-row.learning[column].mean, row.method)
    )
    lines = [
        [
            f"`{row.method}`",
            gap_text(row.learning[column]),
            _number(row.held_out.get(column), "{:+.1f}", 100),
            str(row.pairs[column]),
        ]
        for row in rows
    ]
    return f"**{column}**\n\n{_table(['method', 'over training', 'at the end', 'pairs'], lines)}"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _number(value: float | None, form: str, scale: float = 1.0) -> str:
    return "-" if value is None else form.format(scale * value)


def replace_table(page: str, table: str) -> str:
    """The page with the table between its two marks made anew."""
    begin, end = "<!-- table: begin -->\n", "<!-- table: end -->"
    if begin not in page or end not in page:
        raise ValueError(f"the page has no place for the table: put {begin.strip()} and {end} where it belongs")
    head, _, rest = page.partition(begin)
    return f"{head}{begin}{table}{end}{rest.partition(end)[2]}"


def as_dict(board: Leaderboard) -> dict[str, Any]:
    """For other programs."""
    return {"columns": board.columns, "rows": [_plain(row) for row in board.rows]}


def _plain(row: Row) -> Mapping[str, Any]:
    gaps = {
        column: {
            "mean": gap.mean,
            "low": gap.low,
            "high": gap.high,
            "pairs": row.pairs[column],
            "at_the_end": row.held_out[column],
        }
        for column, gap in row.learning.items()
    }
    return {"method": row.method, "planted": row.planted, "learning": gaps}
