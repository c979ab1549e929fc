"""Write the parquet file that recipes/verl/train.sh trains on.

    python recipes/verl/prepare_data.py                                           # DeepMath-103K, as in the paper
    python recipes/verl/prepare_data.py --source PRIME-RL/Eurus-2-RL-Data --grader code --output data/eurus2_code.parquet
    python recipes/verl/prepare_data.py --source my_problems.jsonl --output data/mine.parquet
    python recipes/verl/prepare_data.py --task phrased-sums --limit 2000 --output data/sums.parquet
    python recipes/verl/prepare_data.py --task "my_problems.jsonl?template=math_answer_line" --output data/lines.parquet

The prompt is the question, then "Please reason step by step, and put your final answer within \\boxed{}."; a task may name
another template. Run it once on a machine that reaches the hub, and put the file where every node can read it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from delta_rlvr.adapters.verl.data import write_parquet
from delta_rlvr.tasks import Problem, get_task, load_problems
from delta_rlvr.tasks.templates import MATH


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", default="zwhe99/DeepMath-103K", help="hub id, folder or .jsonl file")
    parser.add_argument(
        "--task",
        help="instead of a source: a built-in task (then --limit is needed), or rows with settings after '?'",
    )
    parser.add_argument("--schema", help="how rows are read, where the source is not a known set")
    parser.add_argument("--part", default="train", help="split of the data set")
    parser.add_argument(
        "--grader", choices=["math", "code"], help="keep only the problems that this grader judges"
    )
    parser.add_argument("--limit", type=int, help="no more problems than this")
    parser.add_argument("--output", type=Path, default=Path("data/deepmath.parquet"))
    arguments = parser.parse_args()

    problems: list[Problem]
    if arguments.task is not None:
        name = arguments.task
        task = get_task(name)
        if task.one_line:
            parser.error(
                f"{name}: a response to it ends at its first line break, and verl's do not; leave shots out"
            )
        problems = task.problems("train", arguments.limit)
    else:
        name = arguments.source
        problems = load_problems(
            name,
            schema=arguments.schema,
            part=arguments.part,
            template=MATH,
            chat=True,
            limit=arguments.limit,
        )
    if arguments.grader is not None:
        problems = [problem for problem in problems if problem.grader == arguments.grader]
    path = write_parquet(arguments.output, problems, name, arguments.part)
    print(f"{path}: {len(problems):,} problems")


if __name__ == "__main__":
    main()
