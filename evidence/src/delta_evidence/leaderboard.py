"""One table of all methods, made from kept outcomes: where credit lands, what the update comes to, how runs learn, what it costs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from delta_evidence.learning.protocol import TrainingSettings
from delta_evidence.learning.runner import PROTOCOL, RUNS, read_outcomes
from delta_rlvr.evaluate.bootstrap import Interval, mean_interval
from delta_rlvr.evaluate.seeds import gap_text
from delta_rlvr.hints import near_path
from delta_rlvr.objectives import get_method

BENCH, COSTS = "credit_bench.json", "rule_costs.json"
BASELINE = "dapo"
SMOLLM2 = "SmolLM2-135M"
_MODELS = {
    "builtin": "bundled policy",
    "smollm2-135m": SMOLLM2,
    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf": "Qwen2.5-Coder-0.5B",
}
"""What a model is called in the table; from small to large, others after them."""
_PLANTED = (
    ("right_auroc", "AUROC, right"),
    ("wrong_auroc", "AUROC, wrong"),
    ("cosine", "cosine to the oracle's update"),
)


@dataclass
class Row:
    """What is known of one method; what nobody measured is missing."""

    method: str
    planted: dict[str, float] = field(default_factory=dict)
    """Measures of the planted benchmark (`_PLANTED`)."""
    learning: dict[str, Interval] = field(default_factory=dict)
    """By model: paired differences to DAPO in accuracy over training, over all tasks and seeds."""
    held_out: dict[str, float] = field(default_factory=dict)
    """The same pairs' mean difference in held-out accuracy at the end."""
    pairs: dict[str, int] = field(default_factory=dict)
    cost: float | None = None
    """Share of the old-log-prob pass."""


@dataclass(frozen=True)
class Leaderboard:
    """All methods, and the models that runs were made with."""

    rows: list[Row]
    models: list[str]


def leaderboard(folder: Path) -> Leaderboard:
    """Everything that a folder of kept outcomes says: planted benchmarks and costs wherever they lie in it, and the studies right in it
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
    models: list[str] = []
    for model, gaps in _learning(folder).items():
        models.append(model)
        for method, pairs in gaps.items():
            here = row(method)
            here.learning[model] = mean_interval([[speed for speed, _ in pairs]], seed=0)
            here.held_out[model] = statistics.fmean(end for _, end in pairs)
            here.pairs[model] = len(pairs)
    for path in sorted(folder.rglob(COSTS)):
        for name, cost in _read(path)["rules"].items():
            row(name).cost = cost["share"]
    if not rows:
        raise ValueError(f"{folder} holds neither {BENCH}, {COSTS} nor studies: nothing to rank")
    return Leaderboard(sorted(rows.values(), key=lambda one: _order(one, models)), models)


def _order(row: Row, models: Sequence[str]) -> tuple[Any, ...]:
    """Methods with runs of the last model (the largest) first, by what they gained; then the others."""
    gains = [row.learning[model].mean if model in row.learning else None for model in reversed(models)]
    return (*((gain is None, -(gain or 0.0)) for gain in gains), row.method)


def _learning(folder: Path) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """By model and method: for each task and seed that DAPO has too, the differences over training and at the end. A run that two
    studies hold counts once, in the first."""
    pairs: dict[str, dict[str, list[tuple[float, float]]]] = {}
    seen: set[tuple[str, ...]] = set()
    for path in sorted(folder.glob(f"*/{RUNS}")):
        protocol = _read(path.parent / PROTOCOL)["protocol"]
        # A setting that is newer than the outcomes had its default then.
        training = asdict(TrainingSettings(**protocol["training"]))
        settings = json.dumps([training, protocol["reward_noise"]], sort_keys=True)
        finished = {
            (one.run.arm, one.run.task, one.run.seed): (statistics.fmean(one.curve), one.after)
            for one in read_outcomes(path.parent)
            if one.after is not None
        }
        model = _MODELS.get(protocol["model"], Path(protocol["model"]).name)
        for (method, task, seed), (speed, end) in finished.items():
            base = finished.get((BASELINE, task, seed))
            key = (model, method, task, str(seed), settings)
            if method == BASELINE or base is None or key in seen or not _known(method):
                continue
            seen.add(key)
            pairs.setdefault(model, {}).setdefault(method, []).append((speed - base[0], end - base[1]))
    known = list(_MODELS.values())
    order = [*known, *sorted(pairs.keys() - set(known))]
    return {model: pairs[model] for model in order if model in pairs}


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
    """The table as docs/leaderboard.md has it."""
    headings = ["method", *(heading for _, heading in _PLANTED)]
    for model in board.models:
        headings += [f"{model}: over training", "at the end", "pairs"]
    headings += ["cost"]
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    for row in board.rows:
        cells = [f"`{row.method}`"]
        cells += [_number(row.planted.get(name), "{:.3f}") for name, _ in _PLANTED]
        for model in board.models:
            cells += [
                gap_text(row.learning.get(model)),
                _number(row.held_out.get(model), "{:+.1f}", 100),
                str(row.pairs.get(model, "-")),
            ]
        cells += [share_text(row.cost)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _number(value: float | None, form: str, scale: float = 1.0) -> str:
    return "-" if value is None else form.format(scale * value)


def share_text(share: float | None) -> str:
    """A cost, in percent."""
    return _number(share, "{:.1f} %", 100)


def replace_table(page: str, table: str) -> str:
    """The page with the table between its two marks made anew."""
    begin, end = "<!-- table: begin -->\n", "<!-- table: end -->"
    if begin not in page or end not in page:
        raise ValueError(
            f"the page has no place for the table: put {begin.strip()} and {end} where it belongs"
        )
    head, _, rest = page.partition(begin)
    return f"{head}{begin}{table}{end}{rest.partition(end)[2]}"


def as_dict(board: Leaderboard) -> dict[str, Any]:
    """For other programs."""
    return {"models": board.models, "rows": [_plain(row) for row in board.rows]}


def _plain(row: Row) -> Mapping[str, Any]:
    gaps = {
        model: {
            "mean": gap.mean,
            "low": gap.low,
            "high": gap.high,
            "pairs": row.pairs[model],
            "at_the_end": row.held_out[model],
        }
        for model, gap in row.learning.items()
    }
    return {"method": row.method, "planted": row.planted, "learning": gaps, "cost": row.cost}
