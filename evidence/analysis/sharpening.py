"""How fast each arm of a study gives up its entropy, beside how fast it learns: means over its seeds, fifth by fifth of the training.

python evidence/analysis/sharpening.py evidence/results/smollm2-explain evidence/results/smollm2-improve
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

from delta_evidence.learning.outcome import Outcome, read_outcomes

STAGES = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="folders of `delta-rlvr study`")
    for folder in parser.parse_args().folders:
        tasks: dict[str, dict[str, list[Outcome]]] = {}
        for outcome in read_outcomes(folder):
            if outcome.diverged is None:
                tasks.setdefault(outcome.run.task, {}).setdefault(outcome.run.arm, []).append(outcome)
        for task, arms in tasks.items():
            show(f"{folder.name}, {task}", arms)


def show(title: str, arms: dict[str, list[Outcome]]) -> None:
    """A line per arm."""
    batches = len(next(iter(arms.values()))[0].curve)
    each = batches // STAGES
    starts = [number * each for number in range(STAGES)]
    print(f"\n{title}")
    print(f"{'':<72} {'entropy in batch':<41}  accuracy in the {each} batches from")
    print(f"{'arm':<72} {_row([*starts, batches - 1], '6d')}  {_row(starts, '6d')}")
    for arm, outcomes in arms.items():
        entropy = [fmean(one.entropy[batch] for one in outcomes) for batch in [*starts, batches - 1]]
        accuracy = [100 * fmean(fmean(one.curve[batch : batch + each]) for one in outcomes) for batch in starts]
        print(f"{arm:<72} {_row(entropy, '6.3f')}  {_row(accuracy, '6.1f')}")


def _row(values: list[float] | list[int], form: str) -> str:
    return " ".join(format(value, form) for value in values)


if __name__ == "__main__":
    main()
