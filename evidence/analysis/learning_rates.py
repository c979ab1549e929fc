"""One method against the baseline at several learning rates: folders of `delta-rlvr study` that differ in nothing else.

python evidence/analysis/learning_rates.py evidence/results/smollm2-explain evidence/results/smollm2-learning-rate/*

The comparisons are those that evidence/protocols/smollm2-learning-rate.yaml declares, paired by seed. The first folder has the rate
that other studies used. Where another folder's protocol names the method in its primary comparison, that one stands outside of Holm's
family.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean

from delta_evidence.learning.outcome import Outcome, read_outcomes
from delta_evidence.learning.runner import PROTOCOL
from delta_rlvr.evaluate.seeds import SeedComparison, adjust, compare_seeds, gap_text, mean_text, p_text, p_words

Scores = dict[tuple[float, str], dict[int, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="the usual learning rate first")
    parser.add_argument("--method", default="delta")
    options = parser.parse_args()
    protocols = {folder: _protocol(folder) for folder in options.folders}
    rates = {folder: protocol["training"]["learning_rate"] for folder, protocol in protocols.items()}
    usual, baseline = rates[options.folders[0]], protocols[options.folders[0]]["baseline"]
    primary = {
        rates[folder]
        for folder in options.folders[1:]
        if (protocols[folder]["primary"] or {}).get("arm") == options.method
    }
    runs = {
        (rate, arm): [one for one in outcomes if one.run.arm == arm and one.diverged is None]
        for folder, rate in sorted(rates.items(), key=lambda item: item[1])
        for outcomes in (read_outcomes(folder),)
        for arm in (baseline, options.method)
    }
    show_levels(runs)
    end_points = (
        ("accuracy over training", {key: _over_training(ones) for key, ones in runs.items()}),
        ("held-out accuracy at the end", {key: _at_the_end(ones) for key, ones in runs.items()}),
    )
    for end_point, scores in end_points:
        show_family(end_point, scores, baseline, options.method, usual, primary)


def show_levels(runs: dict[tuple[float, str], list[Outcome]]) -> None:
    """Each arm at each learning rate, alone."""
    print(f"{'learning rate, arm':<28} seeds  over training    at the end    entropy in the middle, at the end")
    for (rate, arm), outcomes in runs.items():
        over, after = _alone(_over_training(outcomes)), _alone(_at_the_end(outcomes))
        middle, last = (fmean(one.entropy[batch] for one in outcomes) for batch in (len(outcomes[0].entropy) // 2, -1))
        print(f"{_name(rate, arm):<28} {len(outcomes):>5}  {over:>13} {after:>13}    {middle:.3f}, {last:.3f}")


def show_family(end_point: str, scores: Scores, baseline: str, method: str, usual: float, primary: set[float]) -> None:
    """The declared comparisons, corrected by Holm; a primary one stands alone."""
    rates = list(dict.fromkeys(rate for rate, _ in scores))
    best = max(rates, key=lambda rate: fmean(scores[rate, baseline].values()))
    pairs = [((rate, baseline), (usual, baseline)) for rate in rates if rate != usual]
    pairs += [((rate, method), (rate, baseline)) for rate in rates if rate != usual and rate not in primary]
    pairs += [((usual, method), (best, baseline))]
    alone = [((rate, method), (rate, baseline)) for rate in primary]
    print(f"\n{end_point}")
    for (_, base), row in zip(alone, _compared(scores, alone), strict=True):
        print(_line(row, base, f"{p_words(row.p_paired)}, the primary pair"))
    for (_, base), row in zip(pairs, adjust(_compared(scores, pairs)), strict=True):
        print(_line(row, base, f"{p_words(row.p_paired)}, Holm {p_text(row.p_holm)}"))


def _compared(scores: Scores, pairs: list[tuple[tuple[float, str], tuple[float, str]]]) -> list[SeedComparison]:
    return [
        compare_seeds({_name(*base): scores[base], _name(*own): scores[own]}, _name(*base))[1] for own, base in pairs
    ]


def _line(row: SeedComparison, base: tuple[float, str], p: str) -> str:
    compared = f"{row.method} against {_name(*base)}"
    return f"  {compared:<42} {row.pairs} pairs  {gap_text(row.difference):<24} {p}"


def _alone(scores: dict[int, float]) -> str:
    return mean_text(compare_seeds({"": scores}, "")[0])


def _over_training(outcomes: list[Outcome]) -> dict[int, float]:
    return {one.run.seed: fmean(one.curve) for one in outcomes}


def _at_the_end(outcomes: list[Outcome]) -> dict[int, float]:
    return {one.run.seed: one.after for one in outcomes if one.after is not None}


def _name(rate: float, arm: str) -> str:
    return f"{arm} at {rate:g}"


def _protocol(folder: Path) -> dict:
    return json.loads((folder / PROTOCOL).read_text(encoding="utf-8"))["protocol"]


if __name__ == "__main__":
    main()
