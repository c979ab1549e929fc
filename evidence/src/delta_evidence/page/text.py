"""The page's words: evidence/page.md with its blanks filled from the studies, and the summary that other pages share."""

from __future__ import annotations

import math
import re
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

import numpy as np
from scipy import stats

from delta_evidence.leaderboard import markdown_table
from delta_evidence.learning.outcome import Outcome
from delta_evidence.learning.table import Measure, compare_arms
from delta_evidence.page.figures import forest, mean_path, paths
from delta_evidence.page.studies import KeptStudy, Pair, kept_studies, read_studies, short_task, waiting
from delta_rlvr.evaluate.bootstrap import Interval
from delta_rlvr.evaluate.seeds import SeedComparison, adjust, gap_text, mean_over_seeds
from delta_rlvr.evaluate.significance import detectable_in_spreads, sign_flip_test

SHARED = ("README.md",)
"""Pages that have the summary between two marks."""
EARLIER = "smollm2-chain-sum-controls-200"
"""DAPO and DelTA at 1e-5 on the seeds of `smollm2-learning-rate`, from before `smollm2-explain`."""
FAMILY = ("greedy_over", "speed", "greedy_end", "t0.6_end", "t1_end", "t1_pass_8")
"""What `smollm2-greedy-judge` declares: its primary end point, and those that Holm's correction covers with it."""
_WHOLE = ("|", "#", "!", "<!--", "    ")
"""How lines begin that stay whole: tables, headings, images, comments and code."""
_ITEM = re.compile(r"(?:-|\d+\.) ")
BEGIN, END = "<!-- evidence: begin -->\n", "<!-- evidence: end -->"


def pages(root: Path) -> dict[Path, str]:
    """All that is made from the kept studies, by its place."""
    evidence = root / "evidence"
    studies = read_studies(evidence)
    blanks = fill(studies, evidence)
    summary = wrapped((evidence / "summary.md").read_text(encoding="utf-8").format(**blanks))
    page = (evidence / "page.md").read_text(encoding="utf-8")
    made = {
        root / "docs" / "evidence.md": wrapped(page.format(**blanks, summary=summary.strip())),
        root / "docs" / "figures" / "evidence_forest.svg": forest(kept_studies(evidence)),
        root / "docs" / "figures" / "evidence_entropy.svg": paths(studies),
    }
    for name in SHARED:
        text = (root / name).read_text(encoding="utf-8")
        if BEGIN not in text or END not in text:
            raise ValueError(f"{name} has no place for the summary: put {BEGIN.strip()} and {END} where it belongs")
        head, _, rest = text.partition(BEGIN)
        made[root / name] = f"{head}{BEGIN}{summary}{END}{rest.partition(END)[2]}"
    return made


def wrapped(text: str) -> str:
    """Markdown with its paragraphs and items in lines of at most 120 characters; the other lines as they are."""
    lines = [""]
    for line in text.splitlines():
        whole = not lines[-1] or not line or line.startswith(_WHOLE) or lines[-1].startswith(_WHOLE)
        if whole or _ITEM.match(line):
            lines.append(line)
        else:
            lines[-1] += f" {line.strip()}"
    return "\n".join(line if line.startswith(_WHOLE) else _lines(line) for line in lines[1:]) + "\n"


def _lines(text: str) -> str:
    """One paragraph or item in lines; none of them begins with what Markdown would take for an item."""
    item = _ITEM.match(text)
    kept = re.sub(r" (?=(?:[-+*]|\d+\.) )", "\0", text)
    indent = " " * len(item.group()) if item else ""
    filled = textwrap.fill(kept, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return filled.replace("\0", " ")


def fill(studies: Sequence[KeptStudy], evidence: Path) -> dict[str, str]:
    """What stands in the blanks of evidence/page.md and evidence/summary.md."""
    by_name = {study.name: study for study in studies}
    kept = kept_studies(evidence)
    smollm2, with_pilots = (
        _distinct(study for study in some if study.model == "SmolLM2-135M" and study.rate == "1e-5")
        for some in (studies, kept)
    )
    qwen, tiny = list(by_name["qwen-gsm8k"].pairs("delta")), list(by_name["main"].pairs("delta"))
    corners, faded = by_name["smollm2-corners-400"], by_name["smollm2-fading-500"]
    fading, last = _over(faded.pairs("fading")), _last_fifth(smollm2)
    line = stats.linregress([pair.log_entropy for pair in smollm2], _over(smollm2))
    reach = stats.t.ppf(0.975, len(smollm2) - 2) * line.intercept_stderr
    tasks = dict.fromkeys(pair.task for pair in smollm2)
    pooled = [
        _pooled("SmolLM2-135M, lr 1e-5", smollm2),
        *(_pooled(f"of these {task}", [pair for pair in smollm2 if pair.task == task]) for task in tasks),
        _pooled("Qwen2.5-Coder-0.5B, GSM8K", qwen),
        _pooled("bundled policy, two tasks", tiny),
    ]
    judged = _declared(by_name["smollm2-greedy-judge"])
    scalar, penalty = (
        {key: _mean(judged[key, arm]) for key in FAMILY} for arm in ("delta-scalar", "dapo with an entropy penalty")
    )
    real = [study for study in studies if study.real]
    sizes = sorted((size, study.rate) for study in kept if study.real for size in _ranks(study))
    below = sorted(_below(study) for study in real if study.model == "SmolLM2-135M" and list(study.pairs("delta")))
    return {
        "smollm2": _gap(_over(smollm2)),
        "smollm2_end": _gap(_end(smollm2)),
        "qwen_end": _gap(_end(qwen)),
        "smollm2_pairs": str(len(smollm2)),
        "qwen": _gap(_over(qwen)),
        "qwen_pairs": str(len(qwen)),
        "tiny": _gap(_over(tiny)),
        "tiny_pairs": str(len(tiny)),
        "fading": _gap(fading),
        "fading_p": _p(_flips(fading)),
        "last_fifth": _gap(last),
        "last_fifth_p": _p(_flips(last)),
        "entropy_r": f"{line.rvalue:.2f}",
        "entropy_p": _p(line.pvalue),
        "level": _gap(Interval(line.intercept, line.intercept - reach, line.intercept + reach, 0.95, 0)),
        "greedy": _greedy_table(judged),
        "greedy_pairs": str(judged["speed", "fading"].pairs),
        "family": str(len(judged) - 1),
        "greedy_fading": gap_text(judged["greedy_over", "fading"].difference),
        "greedy_scalar": gap_text(judged["greedy_over", "delta-scalar"].difference),
        "holm_scalar": _p(judged["greedy_over", "delta-scalar"].p_holm),
        "sampled_scalar": gap_text(judged["speed", "delta-scalar"].difference),
        "scalar_tasks": _by_task(by_name["smollm2-greedy-judge"].pairs("delta-scalar")),
        "greedy_means": f"{penalty['greedy_over']:+.1f} and {scalar['greedy_over']:+.1f}",
        "sampled_apart": f"{scalar['speed'] - penalty['speed']:.1f}",
        "later_draw": f"{100 * statistics.fmean(_over(by_name['smollm2-explain'].pairs('delta'))):+.1f}",
        "ranks": f"{sizes[0][0]:.2f} to {sizes[-1][0]:.2f}",
        "ranks_least": sizes[0][1],
        "below": f"{below[0]:.1f} to {below[-1]:.1f}",
        "qwen_below": f"{_below(by_name['qwen-gsm8k']):.1f}",
        "pilot_pairs": str(len(with_pilots) - len(smollm2)),
        "undeclared": ", ".join(f"`{name}`" for name in _undeclared(kept)),
        "waiting": ", ".join(f"`{name}`" for name in waiting(evidence)),
        "corner_lowest": _lowest(corners, "confidence?right=-0.4&wrong=0.4"),
        "dapo_lowest": _lowest(corners, "dapo"),
        "primaries": _primaries(studies),
        "notes": "; ".join(f"`{study.name}`: {study.note}" for study in studies if study.note),
        "pooled": markdown_table(["model", "pairs", "over training", "p", "at the end", "p"], pooled),
        "steps": str(max(study.protocol.training.steps for study in studies)),
        "draws": _draws(by_name[EARLIER], by_name["smollm2-explain"]),
        "seeds": _seeds(studies),
        **_rates({study.name: study for study in kept}),
    }


def _distinct(studies: Iterable[KeptStudy], arm: str = "delta") -> list[Pair]:
    """The arm's pairs with DAPO, each task and seed once, by its first run; the pilots are in no list of declared studies."""
    kept: dict[tuple[str, int], Pair] = {}
    for study in studies:
        for pair in study.pairs(arm):
            kept.setdefault((pair.task, pair.seed), pair)
    return list(kept.values())


def _by_task(pairs: Iterable[Pair]) -> str:
    known = list(pairs)
    parts = {task: [pair for pair in known if pair.task == task] for task in dict.fromkeys(pair.task for pair in known)}
    return ", ".join(f"{_gap(_over(part))} on {task} ({len(part)} pairs)" for task, part in parts.items())


def _undeclared(kept: Sequence[KeptStudy]) -> list[str]:
    """Studies that ran without a primary comparison; one whose variants all did is named once."""
    declared = {study.name.partition("/")[0] for study in kept if study.protocol.primary is not None}
    plain = (study.name for study in kept if study.protocol.primary is None)
    return list(dict.fromkeys(name if (file := name.partition("/")[0]) in declared else file for name in plain))


def _over(pairs: Iterable[Pair]) -> list[float]:
    return [pair.over_training for pair in pairs]


def _end(pairs: Iterable[Pair]) -> list[float]:
    return [pair.at_the_end for pair in pairs]


def _gap(values: Sequence[float] | Interval) -> str:
    return gap_text(values if isinstance(values, Interval) else mean_over_seeds(values))


def _p(p: float | None) -> str:
    if p is None:
        return "-"
    return f"{p:.1e}".replace("e-0", "e-") if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def _flips(values: Sequence[float]) -> float:
    return sign_flip_test(values, [0.0] * len(values)).p


def _primaries(studies: Iterable[KeptStudy]) -> str:
    rows = []
    for study in studies:
        row, declared = study.table.primary, study.protocol.primary
        if row is None or declared is None:
            continue
        tasks = " and ".join(map(short_task, declared.tasks))
        measure = _deciding(study)
        against = "" if study.protocol.baseline == "dapo" else f" against `{study.protocol.baseline}`"
        rows.append(
            [
                f"`{study.name}`",
                f"{study.model}, {tasks}, lr {study.rate}",
                f"`{row.method}`{against}, {measure.name.removeprefix('accuracy ')}",
                str(row.pairs),
                f"**{gap_text(row.difference, measure.unit)}**",
                _p(row.p_paired),
                study.committed or "-",
            ]
        )
    return markdown_table(
        ["study", "model, task", "declared, against `dapo`", "pairs", "difference", "p", "committed"], rows
    )


def _deciding(study: KeptStudy) -> Measure:
    """What the study is decided by."""
    columns = study.table.tasks[0].columns
    return next(column.measure for column in columns if column.measure.key == study.table.deciding)


def _pooled(name: str, pairs: Sequence[Pair]) -> list[str]:
    over, end = _over(pairs), _end(pairs)
    return [name, str(len(pairs)), _gap(over), _p(_flips(over)), _gap(end), _p(_flips(end))]


def _last_fifth(pairs: Iterable[Pair]) -> list[float]:
    gaps = []
    for pair in pairs:
        last = len(pair.own.curve) // 5
        gaps.append(statistics.fmean(pair.own.curve[-last:]) - statistics.fmean(pair.base.curve[-last:]))
    return gaps


def _declared(study: KeptStudy) -> dict[tuple[str, str], SeedComparison]:
    """The comparisons that a study declares (`FAMILY`), by measure and arm: pairs of all its tasks, Holm over all but the primary."""
    measures = {column.measure.key: column.measure for column in study.table.tasks[0].columns}
    rows = {
        (key, row.method): row
        for key in FAMILY
        for row in compare_arms(study.protocol, study.finished, measures[key])
        if row.method != study.protocol.baseline
    }
    assert study.protocol.primary is not None
    primary = (study.table.deciding, study.protocol.primary.arm)
    family = [key for key in rows if key != primary]
    return rows | dict(zip(family, adjust([rows[key] for key in family]), strict=True))


def _greedy_table(declared: dict[tuple[str, str], SeedComparison]) -> str:
    rows = []
    for arm in dict.fromkeys(arm for _, arm in declared):
        cells = [f"`{arm}`"]
        for key in FAMILY[:2]:
            row = declared[key, arm]
            holm = "primary" if row.p_holm is None else _p(row.p_holm)
            cells += [gap_text(row.difference), _p(row.p_paired), holm]
        rows.append(cells)
    return markdown_table(["arm", "greedy", "p", "p Holm", "rollouts at T = 1", "p", "p Holm"], rows)


def _mean(row: SeedComparison) -> float:
    assert row.difference is not None
    return 100 * row.difference.mean


def _ranks(study: KeptStudy) -> Iterable[float]:
    """Size of the rank correlation of DelTA's weight with 1 - p, by task and side."""
    for task in study.protocol.tasks:
        runs = [one.diagnostics for one in study.outcomes if (one.run.arm, one.run.task) == ("delta", task)]
        for side in ("rank_positive", "rank_negative"):
            means = [statistics.fmean(filter(None, run[side])) for run in runs if side in run]
            if means:
                yield abs(statistics.fmean(means))


def _below(study: KeptStudy) -> float:
    """Points by which DelTA's path lies below DAPO's at equal entropy: the mean over the log-entropies that both pass."""
    gaps = []
    for task in study.protocol.tasks:
        (x, y), (base_x, base_y) = (
            (np.log([one for one, _ in path]), np.array([one for _, one in path]))
            for path in (mean_path(study, task, arm) for arm in ("delta", "dapo"))
        )
        shared = np.linspace(max(x.min(), base_x.min()), min(x.max(), base_x.max()), 101)
        # Entropy falls along a path, but for a wiggle.
        falls, base_falls = x.argsort(), base_x.argsort()
        gaps.append(np.interp(shared, base_x[base_falls], base_y[base_falls]) - np.interp(shared, x[falls], y[falls]))
    return 100 * float(np.mean(gaps))


def _rates(kept: dict[str, KeptStudy]) -> dict[str, str]:
    """DAPO and DelTA at four learning rates on the same seeds, and what DAPO gains by the better one."""
    names = (
        "smollm2-learning-rate/half",
        "smollm2-explain",
        "smollm2-learning-rate/twice",
        "smollm2-learning-rate/four-times",
    )
    rates = {kept[name].rate: _by_seed(kept[name]) for name in names}
    rows = []
    for rate, pairs in rates.items():
        levels = [
            statistics.fmean(map(_speed, runs)) for runs in zip(*((one.base, one.own) for one in pairs), strict=True)
        ]
        over = _over(pairs)
        rows.append(
            [rate, *(f"{100 * level:.1f}" for level in levels), _gap(over), _p(_flips(over)), _gap(_end(pairs))]
        )
    blanks = {"rates": markdown_table(["learning rate", "DAPO", "DelTA", "difference", "p", "at the end"], rows)}
    better = rates["2e-5"]
    for name, pairs in (("", rates["1e-5"]), ("_other", _by_seed(kept[EARLIER]))):
        gain = [_speed(new.base) - _speed(old.base) for new, old in zip(better, pairs, strict=True)]
        slope = [new.over_training - old.over_training for new, old in zip(better, pairs, strict=True)]
        last = [Pair(new.task, new.seed, new.base, old.base).at_the_end for new, old in zip(better, pairs, strict=True)]
        blanks |= {f"rate_gain{name}": _gap(gain), f"rate_slope{name}": _gap(slope), f"rate_end{name}": _gap(last)}
        blanks |= {f"rate_gain{name}_mean": f"{100 * statistics.fmean(gain):+.1f}"}
    return blanks


def _by_seed(study: KeptStudy) -> list[Pair]:
    return sorted(study.pairs("delta"), key=lambda pair: pair.seed)


def _speed(run: Outcome) -> float:
    return statistics.fmean(run.curve)


def _lowest(study: KeptStudy, arm: str) -> str:
    return f"{100 * min(_speed(one) for one in study.outcomes if one.run.arm == arm):.0f}"


def _draws(first: KeptStudy, second: KeptStudy) -> str:
    """The same arms and seeds in two studies."""
    both = list(zip(_by_seed(first), _by_seed(second), strict=True))
    words = []
    for arm, gaps in (
        ("dapo", [_speed(new.base) - _speed(old.base) for old, new in both]),
        ("delta", [_speed(new.own) - _speed(old.own) for old, new in both]),
    ):
        fell = sum(gap < 0 for gap in gaps)
        words.append(f"`{arm}` moved by {_gap(gaps)} (p = {_p(_flips(gaps))}; down in {fell} of {len(gaps)} seeds)")
    return f"{', '.join(words)}."


def _seeds(studies: Iterable[KeptStudy]) -> str:
    alike: dict[str, list[KeptStudy]] = {}
    for study in studies:
        if study.real:
            alike.setdefault(f"{study.model}, lr {study.rate}", []).append(study)
    groups: dict[str, list[Pair]] = {}
    for name, those in alike.items():
        for arm in ("delta", "delta-scalar"):
            for pair in _distinct(those, arm):
                groups.setdefault(f"{name}, {pair.task}", []).append(pair)
    rows = []
    for name, pairs in groups.items():
        row = [name]
        for size in (_over, _end):
            spread = 100 * statistics.stdev(size(pairs))
            row += [f"{spread:.1f}", ", ".join(str(_needed(spread, points)) for points in (1, 2, 3))]
        rows.append(row)
    return markdown_table(
        ["model, task", "over training: SD of a pair", "pairs", "at the end: SD of a pair", "pairs"], rows
    )


def _needed(spread: float, points: float) -> int:
    """Pairs with which so many points are found in four of five studies; no fewer than six, which a sign-flip test needs."""
    start = max(6, math.floor((2.8 * spread / points) ** 2 * 0.8))
    return next(pairs for pairs in count(start) if detectable_in_spreads(pairs) * spread <= points)
