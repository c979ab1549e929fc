"""The page's words: evidence/page.md with its blanks filled from the studies, and the summary that other pages share."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

from scipy import stats

from delta_evidence.learning.outcome import read_outcomes
from delta_evidence.learning.table import Measure
from delta_evidence.page.figures import forest, paths
from delta_evidence.page.studies import KeptStudy, Pair, read_studies, short_task
from delta_rlvr.evaluate.bootstrap import Interval
from delta_rlvr.evaluate.seeds import gap_text, mean_over_seeds
from delta_rlvr.evaluate.significance import detectable_in_spreads, sign_flip_test

SHARED = ("README.md", "docs/index.md", "docs/faq.md")
"""Pages that have the summary between two marks."""
BEGIN, END = "<!-- evidence: begin -->\n", "<!-- evidence: end -->"


def pages(root: Path) -> dict[Path, str]:
    """All that is made from the kept studies, by its place."""
    evidence = root / "evidence"
    studies = read_studies(evidence)
    blanks = fill(studies, evidence)
    summary = (evidence / "summary.md").read_text(encoding="utf-8").format(**blanks)
    page = (evidence / "page.md").read_text(encoding="utf-8")
    made = {
        root / "docs" / "evidence.md": page.format(**blanks, summary=summary.strip()),
        root / "docs" / "figures" / "evidence_forest.svg": forest(studies),
        root / "docs" / "figures" / "evidence_entropy.svg": paths(studies),
    }
    for name in SHARED:
        text = (root / name).read_text(encoding="utf-8")
        if BEGIN not in text or END not in text:
            raise ValueError(
                f"{name} has no place for the summary: put {BEGIN.strip()} and {END} where it belongs"
            )
        head, _, rest = text.partition(BEGIN)
        made[root / name] = f"{head}{BEGIN}{summary}{END}{rest.partition(END)[2]}"
    return made


def fill(studies: Sequence[KeptStudy], evidence: Path) -> dict[str, str]:
    """What stands in the blanks of evidence/page.md and evidence/summary.md."""
    by_name = {study.name: study for study in studies}
    smollm2 = _distinct(study for study in studies if study.model == "SmolLM2-135M" and study.rate == "1e-5")
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
    judged = by_name["smollm2-greedy-judge"]
    return {
        "smollm2": _gap(_over(smollm2)),
        "smollm2_pairs": str(len(smollm2)),
        "smollm2_end": _gap(_end(smollm2)),
        "qwen": _gap(_over(qwen)),
        "qwen_pairs": str(len(qwen)),
        "tiny": _gap(_over(tiny)),
        "tiny_pairs": str(len(tiny)),
        "tuned": _gap(_over(by_name["smollm2-learning-rate/twice"].pairs("delta"))),
        "fading": _gap(fading),
        "fading_p": _p(_flips(fading)),
        "last_fifth": _gap(last),
        "last_fifth_p": _p(_flips(last)),
        "entropy_r": f"{line.rvalue:.2f}",
        "entropy_p": _p(line.pvalue),
        "level": _gap(Interval(line.intercept, line.intercept - reach, line.intercept + reach, 0.95, 0)),
        "greedy": _greedy_words(studies),
        "greedy_scalar": _gap(_greedy(judged, "delta-scalar")),
        "greedy_fading": _gap(_greedy(judged, "fading")),
        "sampled_fading": _gap(_over(judged.pairs("fading"))),
        "corner_lowest": _lowest(corners, "confidence?right=-0.4&wrong=0.4"),
        "dapo_lowest": _lowest(corners, "dapo"),
        "primaries": _primaries(studies),
        "notes": "; ".join(f"`{study.name}`: {study.note}" for study in studies if study.note),
        "pooled": _table(["model", "pairs", "over training", "p", "at the end", "p"], pooled),
        "corners": _arms([corners, faded]),
        "steps": str(max(study.protocol.training.steps for study in studies)),
        "draws": _draws(by_name["smollm2-chain-sum-controls-200"], by_name["smollm2-explain"]),
        "seeds": _seeds(studies),
        "details": "\n".join(f"- [{title}](../evidence/docs/{name}.md)" for name, title in DETAILS.items()),
        **_rates(evidence),
    }


DETAILS = {
    "smollm2": "SmolLM2-135M: which part of DelTA learns, wider ranges, how much of a coefficient is chance",
    "qwen": "Qwen2.5-Coder-0.5B on GSM8K: with hidden states, without them, and the sides alone",
    "tiny_policies": "Tiny policies: the main study, what perfect credit is worth, rivals, pilots",
    "credit": "Where the credit lands: planted and measured credit",
}


def _distinct(studies: Iterable[KeptStudy], arm: str = "delta") -> list[Pair]:
    """The arm's pairs with DAPO, each task and seed once, by its first run; the pilots are in no list of declared studies."""
    kept: dict[tuple[str, int], Pair] = {}
    for study in studies:
        for pair in study.pairs(arm) if study.protocol.baseline == "dapo" else ():
            kept.setdefault((pair.task, pair.seed), pair)
    return list(kept.values())


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


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _primaries(studies: Iterable[KeptStudy]) -> str:
    rows = []
    for study in studies:
        row, declared = study.table.primary, study.protocol.primary
        if row is None or declared is None:
            continue
        tasks = " and ".join(map(short_task, declared.tasks))
        measure = _deciding(study)
        rows.append(
            [
                f"`{study.name}`",
                f"{study.model}, {tasks}, lr {study.rate}",
                f"`{row.method}` against `{study.protocol.baseline}`, {measure.name}",
                str(row.pairs),
                f"**{gap_text(row.difference, measure.unit)}**",
                _p(row.p_paired),
                study.committed or "-",
            ]
        )
    return _table(["study", "model, task", "declared", "pairs", "difference", "p", "committed"], rows)


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


def _greedy(study: KeptStudy, arm: str) -> list[float]:
    score = _deciding(study).score
    return [score(pair.own) - score(pair.base) for pair in study.pairs(arm)]


def _greedy_words(studies: Iterable[KeptStudy]) -> str:
    """What studies that are decided by greedy accuracy say; or that there is none."""
    sentences = []
    for study in studies:
        if not study.greedy:
            continue
        arms = []
        for arm in study.protocol.arms:
            gaps = _greedy(study, arm)
            if arm != study.protocol.baseline and len(gaps) > 1:
                sampled = [pair.over_training for pair in study.pairs(arm)]
                arms.append(
                    f"`{arm}` {_gap(gaps)} (p = {_p(_flips(gaps))}; at T = 1 {_gap(sampled)}, p = {_p(_flips(sampled))})"
                )
        sentences.append(
            f"By greedy held-out accuracy over training, each method at the learning rate that is best for it, against "
            f"`{study.protocol.baseline}` ({len(gaps)} pairs): {', '.join(arms)}."
        )
    return " ".join(sentences) or (
        "No run of these studies was scored greedily, so that learning faster and sampling more sharply cannot be told apart."
    )


def _rates(evidence: Path) -> dict[str, str]:
    """DAPO and DelTA at four learning rates on the same seeds, and what DAPO gains by the better one."""
    folders = {
        "5e-6": "smollm2-learning-rate/half",
        "1e-5": "smollm2-explain",
        "2e-5": "smollm2-learning-rate/twice",
        "4e-5": "smollm2-learning-rate/four-times",
    }
    over: dict[tuple[str, str], dict[int, float]] = {}
    end: dict[tuple[str, str], dict[int, float]] = {}
    for rate, folder in folders.items():
        for one in read_outcomes(evidence / "results" / folder):
            if one.after is not None:
                over.setdefault((rate, one.run.arm), {})[one.run.seed] = statistics.fmean(one.curve)
                end.setdefault((rate, one.run.arm), {})[one.run.seed] = one.after

    def gaps(scores: dict[tuple[str, str], dict[int, float]], rate: str) -> list[float]:
        dapo, delta = scores[rate, "dapo"], scores[rate, "delta"]
        return [delta[seed] - dapo[seed] for seed in sorted(dapo.keys() & delta.keys())]

    rows = []
    for rate in folders:
        levels = [f"{100 * statistics.fmean(over[rate, arm].values()):.1f}" for arm in ("dapo", "delta")]
        rows.append(
            [rate, *levels, _gap(gaps(over, rate)), _p(_flips(gaps(over, rate))), _gap(gaps(end, rate))]
        )
    gain = [over["2e-5", "dapo"][seed] - value for seed, value in over["1e-5", "dapo"].items()]
    slope = [a - b for a, b in zip(gaps(over, "2e-5"), gaps(over, "1e-5"), strict=True)]
    table = _table(["learning rate", "DAPO", "DelTA", "difference", "p", "at the end"], rows)
    return {"rates": table, "rate_gain": _gap(gain), "rate_slope": _gap(slope)}


def _arms(studies: Iterable[KeptStudy]) -> str:
    rows = []
    for study in studies:
        for arm in study.protocol.arms:
            runs = [one for one in study.outcomes if one.run.arm == arm and one.diverged is None]
            means = [100 * statistics.fmean(one.curve) for one in runs]
            pairs = list(study.pairs(arm)) if arm != study.protocol.baseline else []
            rows.append(
                [
                    f"`{study.name}`",
                    f"`{arm}`",
                    str(len(runs)),
                    f"{statistics.fmean(means):.1f}, {statistics.median(means):.1f}, {min(means):.0f}",
                    _gap(_over(pairs)) if pairs else "-",
                    _p(_flips(_over(pairs))) if pairs else "-",
                    _gap(_end(pairs)) if pairs else "-",
                ]
            )
    headings = [
        "study",
        "arm",
        "seeds",
        "over training: mean, median, lowest",
        "against DAPO",
        "p",
        "at the end, against DAPO",
    ]
    return _table(headings, rows)


def _lowest(study: KeptStudy, arm: str) -> str:
    return f"{100 * min(statistics.fmean(one.curve) for one in study.outcomes if one.run.arm == arm):.0f}"


def _draws(first: KeptStudy, second: KeptStudy) -> str:
    """The same arm and seeds in two studies."""
    words = []
    for arm in ("dapo", "delta"):
        runs = [
            {one.run.seed: statistics.fmean(one.curve) for one in study.outcomes if one.run.arm == arm}
            for study in (first, second)
        ]
        gaps = [runs[1][seed] - runs[0][seed] for seed in runs[0].keys() & runs[1].keys()]
        fell = sum(gap < 0 for gap in gaps)
        words.append(
            f"{arm} moved by {_gap(gaps)} (p = {_p(_flips(gaps))}), down in {fell} of {len(gaps)} seeds"
        )
    return f"{'; '.join(words)}."


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
        for what, size in (("over training", _over), ("at the end", _end)):
            spread = 100 * statistics.stdev(size(pairs))
            needed = [str(_needed(spread, points)) for points in (1, 2, 3)]
            rows.append([name, what, str(len(pairs)), f"{spread:.1f}", *needed])
    return _table(
        ["model, task", "measure", "pairs kept", "SD of a pair", "1 point", "2 points", "3 points"], rows
    )


def _needed(spread: float, points: float) -> int:
    """Pairs with which so many points are found in four of five studies; no fewer than six, which a sign-flip test needs."""
    start = max(6, math.floor((2.8 * spread / points) ** 2 * 0.8))
    return next(pairs for pairs in count(start) if detectable_in_spreads(pairs) * spread <= points)
