"""The best learning rate of each method of a tuning study, and the protocol that goes on with it.

    python evidence/analysis/best_rates.py runs/smollm2-greedy-tune --fill evidence/protocols/smollm2-greedy-judge.yaml

A run's score is its greedy held-out accuracy, averaged over the times at which it was scored; a run that diverged has 0 for those that
it did not reach. Through all scores of a method a quadratic in the log of the rate; its peak, kept within the grid, is the method's
rate. Where the quadratic has no peak the best mean decides. A rate at an end of the grid is marked: a better one may lie beyond.

Of several entropy penalties the one is kept whose log-entropy over training is nearest to that of `--entropy-of`, at the rates and
seeds that both have. `--fill` prints the protocol with the learning rate and the penalty of each arm; arms are found by their method,
and by having a penalty.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import yaml

from delta_evidence.learning.outcome import Outcome, read_outcomes
from delta_evidence.learning.runner import PROTOCOL
from delta_rlvr.yaml_files import read_yaml


@dataclass(frozen=True)
class Tuned:
    """A method, or one with a penalty, over a grid of rates."""

    method: str
    entropy_bonus: float
    runs: Mapping[float, Mapping[int, Outcome]]
    """By rate and seed."""
    times: int
    """Greedy scores of a whole run."""

    @property
    def means(self) -> dict[float, float]:
        return {rate: fmean(map(self._score, by_seed.values())) for rate, by_seed in sorted(self.runs.items())}

    def _score(self, outcome: Outcome) -> float:
        return sum(one["accuracy"] for one in outcome.heldout if one["temperature"] == 0) / self.times

    def best(self) -> tuple[float, bool]:
        """The rate, to two digits, and whether it is an end of the grid."""
        grid = list(self.means)
        runs = [(rate, one) for rate, by_seed in self.runs.items() for one in by_seed.values()]
        rate = max(self.means, key=lambda one: self.means[one])
        if len(grid) > 2:
            logs, scores = [math.log(at) for at, _ in runs], [self._score(one) for _, one in runs]
            bend, slope, _ = np.polyfit(logs, scores, 2)
            if bend < 0:
                rate = min(max(math.exp(-slope / (2 * bend)), grid[0]), grid[-1])
        rate = float(f"{rate:.1e}")
        return rate, not grid[0] < rate < grid[-1]

    def entropies(self) -> dict[tuple[float, int], float]:
        """Mean log-entropy over training by rate and seed."""
        return {
            (rate, seed): fmean(math.log(max(value, 1e-6)) for value in one.entropy)
            for rate, by_seed in self.runs.items()
            for seed, one in by_seed.items()
        }

    def gap(self, other: Tuned) -> float:
        """How much more log-entropy than the other, where both have runs."""
        own, others = self.entropies(), other.entropies()
        return fmean(own[key] - others[key] for key in own.keys() & others.keys())


def tuned(folder: Path) -> list[Tuned]:
    """What a folder of a tuning study holds."""
    protocol = json.loads((folder / PROTOCOL).read_text(encoding="utf-8"))["protocol"]
    (greedy,) = (one for one in protocol["heldout"]["also"] if one["temperature"] == 0)
    runs: dict[tuple[str, float], dict[float, dict[int, Outcome]]] = {}
    for outcome in read_outcomes(folder):
        own = protocol["arm_settings"][outcome.run.arm]
        by_rate = runs.setdefault((own["method"], own["entropy_bonus"]), {})
        by_rate.setdefault(own["learning_rate"], {})[outcome.run.seed] = outcome
    return [Tuned(*key, by_rate, len(greedy["after"])) for key, by_rate in runs.items()]


def matched(found: Sequence[Tuned], like: str) -> Tuned | None:
    """The penalised method with the entropy of another."""
    penalised = [one for one in found if one.entropy_bonus]
    target = next((one for one in found if one.method == like and not one.entropy_bonus), None)
    if not penalised or target is None:
        return None
    return min(penalised, key=lambda one: abs(one.gap(target)))


def filled(written: dict[str, Any], found: Sequence[Tuned], like: str) -> dict[str, Any]:
    """A protocol's arms with what was found."""
    plain = {one.method: one for one in found if not one.entropy_bonus}
    penalised = matched(found, like)
    arms = {}
    for name, settings in written["arms"].items():
        own = {"seeds": settings} if isinstance(settings, int) else dict(settings)
        penalty = "entropy_bonus" in own
        one = penalised if penalty else plain.get(own.get("method", name))
        if one is None:
            raise ValueError(f"arm {name!r}: the tuning study has no such method")
        own["learning_rate"] = one.best()[0]
        if penalty:
            own["entropy_bonus"] = one.entropy_bonus
        arms[name] = own
    return {**written, "arms": arms}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the tuning study")
    parser.add_argument("--fill", type=Path, help="a protocol to print with the rates that were found")
    parser.add_argument("--entropy-of", default="delta-scalar", help="what a penalty is to match")
    options = parser.parse_args()
    found = tuned(options.folder)
    target = next((one for one in found if one.method == options.entropy_of and not one.entropy_bonus), None)
    for one in found:
        rate, at_an_end = one.best()
        means = ", ".join(f"{at:g}: {100 * mean:.1f}" for at, mean in one.means.items())
        penalty = f" less {-one.entropy_bonus:g} entropy" if one.entropy_bonus else ""
        gap = f"; log-entropy {one.gap(target):+.2f} to {options.entropy_of}" if target else ""
        mark = " (AN END OF THE GRID)" if at_an_end else ""
        print(f"{one.method}{penalty}: best at {rate:g}{mark}; {means}{gap}", file=sys.stderr)
    chosen = matched(found, options.entropy_of)
    if chosen is not None:
        print(f"the penalty that matches {options.entropy_of}: {-chosen.entropy_bonus:g}", file=sys.stderr)
    if options.fill is not None:
        written = read_yaml(options.fill, str(options.fill))
        yaml.safe_dump(filled(written, found, options.entropy_of), sys.stdout, sort_keys=False, allow_unicode=True)


if __name__ == "__main__":
    main()
