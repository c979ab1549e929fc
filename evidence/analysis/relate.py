"""Does learning follow where the credit lands? Each arm's gain in learning against what a benchmark says of its weights.

    python evidence/analysis/relate.py evidence/results/credit-bench/credit_bench.json evidence/results/main/runs.jsonl
    python evidence/analysis/relate.py evidence/results/measured-tiny/measured_credit.json evidence/results/main/runs.jsonl

The benchmark is `delta-rlvr credit-bench` with planted or measured labels. Spearman's correlation over arms, for every measure: over
all arms, and over those that weigh every token (no selection, no oracle). Where the benchmark has the study's task, its own rows count,
else those over all of its tasks.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from scipy.stats import spearmanr

MEASURES = {
    "cosine": "cosine to the oracle's update",
    "gain": "gain of the update",
    "aim": "cosine of the mean update",
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "bench", type=Path, help="credit_bench.json or measured_credit.json of `delta-rlvr credit-bench`"
    )
    parser.add_argument("runs", type=Path, help="runs.jsonl of `delta-rlvr study`")
    parser.add_argument("--baseline", default="dapo")
    options = parser.parse_args()
    rows = json.loads(options.bench.read_text())["rows"]
    outcomes = [json.loads(line) for line in options.runs.read_text().splitlines()]
    for task in dict.fromkeys(outcome["run"]["task"] for outcome in outcomes):
        measured = rows_of(rows, task)
        learned = gains(outcomes, task, options.baseline)
        for measure, told in MEASURES.items():
            known = {
                arm: gain
                for arm, gain in learned.items()
                if measured.get(arm, {}).get(measure, {}).get("mean") is not None
            }
            weighing = [arm for arm in known if arm not in SELECTIONS and not arm.startswith("oracle")]
            for name, arms in (("all arms", list(known)), ("no selection, no oracle", weighing)):
                if len(arms) < 4:
                    if known:
                        print(f"{task:14} {told:30} {name:24} {len(arms):2} arms  too few to relate")
                    continue
                relation = spearmanr([measured[arm][measure]["mean"] for arm in arms], [known[arm] for arm in arms])
                print(
                    f"{task:14} {told:30} {name:24} {len(arms):2} arms  "
                    f"rho = {relation.statistic:+.2f}  p = {relation.pvalue:.3f}"
                )


def rows_of(rows: list[dict], task: str) -> dict[str, dict]:
    """The benchmark's rows by method: of this task where it has it, else of all of its tasks."""
    clean = [row for row in rows if row["condition"] == "clean"]
    own = {row["method"]: row for row in clean if row["slice"] == f"task {task}"}
    return own or {row["method"]: row for row in clean if row["slice"] == "all"}


if __name__ == "__main__":
    main()
