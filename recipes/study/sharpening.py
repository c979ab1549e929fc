"""How fast each arm of a study gives up its entropy, beside how fast it learns: means over its seeds, stage by stage.

python recipes/study/sharpening.py docs/data/smollm2-explain docs/data/smollm2-improve docs/data/smollm2-improve-confirm
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

from delta_rlvr.study.learning.runner import Outcome, read_outcomes

BATCHES = (0, 10, 20, 30, 40)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", help="folders of `delta-rlvr study`")
    for folder in parser.parse_args().folders:
        arms: dict[tuple[str, str], list[Outcome]] = {}
        for outcome in read_outcomes(folder):
            arms.setdefault((outcome.run.task, outcome.run.arm), []).append(outcome)
        for task in dict.fromkeys(task for task, _ in arms):
            print(f"\n{folder.name}, {task}")
            print(f"{'arm':<72} {'entropy in batch':<34}  accuracy in the ten batches from")
            stages = " ".join(f"{batch:>6}" for batch in BATCHES)
            print(f"{'':<72} {stages}  {stages}")
            for (where, arm), outcomes in arms.items():
                if where != task:
                    continue
                entropy = [fmean(one.entropy[batch] for one in outcomes) for batch in BATCHES]
                accuracy = [
                    fmean(fmean(one.curve[batch : batch + 10]) for one in outcomes) for batch in BATCHES
                ]
                print(
                    f"{arm:<72} {' '.join(f'{value:6.3f}' for value in entropy)}  "
                    f"{' '.join(f'{100 * value:6.1f}' for value in accuracy)}"
                )


if __name__ == "__main__":
    main()
