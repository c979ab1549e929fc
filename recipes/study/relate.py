"""Does learning follow where the credit lands? Each arm's gain in learning against what the planted benchmark says of its weights.

    python recipes/study/relate.py docs/data/credit-bench/credit_bench.json docs/data/main/runs.jsonl

Spearman's correlation over arms, for every measure: over all arms, and over those that weigh every token (no selection, no oracle).
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from scipy.stats import spearmanr

MEASURES = {
    "cosine": "cosine to the oracle's update",
    "right_auroc": "AUROC, right",
    "wrong_auroc": "AUROC, wrong",
}
SELECTIONS = ("dapo-ft", "delta-top50", "delta-random50", "delta-bottom50")


def gains(outcomes: list[dict], task: str, baseline: str) -> dict[str, float]:
    """Mean accuracy over training less the baseline's with the same seed, by arm."""
    curves: dict[str, dict[int, float]] = {}
    for outcome in outcomes:
        run = outcome["run"]
        if run["task"] == task:
            curves.setdefault(run["arm"], {})[run["seed"]] = statistics.fmean(outcome["curve"])
    return {
        arm: statistics.fmean(score - curves[baseline][seed] for seed, score in scores.items())
        for arm, scores in curves.items()
        if arm != baseline
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bench", type=Path, help="credit_bench.json of `delta-rlvr credit-bench`")
    parser.add_argument("runs", type=Path, help="runs.jsonl of `delta-rlvr study`")
    parser.add_argument("--baseline", default="dapo")
    options = parser.parse_args()
    rows = json.loads(options.bench.read_text())["rows"]
    measured = {row["method"]: row for row in rows if row["slice"] == "all" and row["condition"] == "clean"}
    outcomes = [json.loads(line) for line in options.runs.read_text().splitlines()]
    for task in dict.fromkeys(outcome["run"]["task"] for outcome in outcomes):
        found = {
            arm: gain for arm, gain in gains(outcomes, task, options.baseline).items() if arm in measured
        }
        weighing = [arm for arm in found if arm not in SELECTIONS and not arm.startswith("oracle")]
        for measure, told in MEASURES.items():
            for name, arms in (("all arms", list(found)), ("no selection, no oracle", weighing)):
                relation = spearmanr(
                    [measured[arm][measure]["mean"] for arm in arms], [found[arm] for arm in arms]
                )
                print(
                    f"{task:14} {told:30} {name:24} {len(arms):2} arms  "
                    f"rho = {relation.statistic:+.2f}  p = {relation.pvalue:.3f}"
                )


if __name__ == "__main__":
    main()
