"""Write the parquet file that recipes/verl/train.sh trains on.

    python recipes/verl/prepare_data.py                                           # DeepMath-103K, as in the paper
    python recipes/verl/prepare_data.py --source PRIME-RL/Eurus-2-RL-Data --grader code --output data/eurus2_code.parquet
    python recipes/verl/prepare_data.py --source my_problems.jsonl --output data/mine.parquet
    python recipes/verl/prepare_data.py --task phrased-sums --limit 2000 --output data/sums.parquet
    python recipes/verl/prepare_data.py --task "my_problems.jsonl?template=math_answer_line" --output data/lines.parquet

A question of mathematics is put as the paper's authors do for base models (template paper_math), which train.sh gives to the model
as it stands; --template names another one, and so may a task. Rows that bring chats (Eurus-2) keep them: train.sh then needs CHAT=1.
A row holds the prompt, the answer, the source and an id: solutions and other columns are left out. Run it once on a machine that
reaches the hub, and put the file where every node can read it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from delta_rlvr.adapters.verl.data import write_parquet
from delta_rlvr.tasks import Problem, get_task, load_problems
from delta_rlvr.tasks.custom_reward import NAMED
from delta_rlvr.tasks.templates import PAPER_MATH, TEMPLATES, chosen_template
from rlvr_graders.extract import EXTRACTORS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="zwhe99/DeepMath-103K", help="hub id, folder or .jsonl file")
    parser.add_argument(
        "--task", help="instead of a source: a built-in task (then --limit is needed), or rows with settings after '?'"
    )
    parser.add_argument("--template", choices=list(TEMPLATES), help=f"prompt of a source (default: {PAPER_MATH.name})")
    parser.add_argument("--template_text", help="or a prompt of your own, with {question} in it")
    parser.add_argument("--extract", choices=list(EXTRACTORS), help="where the answer to it stands")
    parser.add_argument("--chat", action="store_true", help="for a chat model: train.sh then needs CHAT=1")
    parser.add_argument("--reward", choices=NAMED, help="another grader of mathematics than ours")
    parser.add_argument("--schema", help="how rows are read, where the source is not a known set")
    parser.add_argument("--part", default="train", help="split of the data set")
    parser.add_argument("--grader", choices=["math", "code"], help="keep only the problems that this grader judges")
    parser.add_argument("--limit", type=int, help="no more problems than this")
    parser.add_argument("--output", type=Path, default=Path("data/deepmath.parquet"))
    arguments = parser.parse_args()
    try:
        name, problems = _problems(arguments)
        path = write_parquet(arguments.output, problems, name, arguments.part)
    except (ValueError, OSError, ImportError) as error:
        parser.exit(2, f"{error}\n")
    print(f"{path}: {len(problems):,} problems")


def _problems(arguments: argparse.Namespace) -> tuple[str, list[Problem]]:
    """What the rows are called, and what they are made of."""
    problems: list[Problem]
    if arguments.task is not None:
        name = arguments.task
        task = get_task(name, grader=arguments.reward)
        if task.one_line:
            raise ValueError(
                f"{name}: a response to it ends at its first line break, and verl's do not; leave shots out"
            )
        problems = task.problems("train", arguments.limit)
    else:
        name = arguments.source
        problems = load_problems(
            name,
            schema=arguments.schema,
            part=arguments.part,
            template=chosen_template(
                arguments.template, arguments.template_text, arguments.extract, default=PAPER_MATH
            ),
            chat=arguments.chat,
            limit=arguments.limit,
            grader=arguments.reward,
        )
    if arguments.grader is not None:
        problems = [problem for problem in problems if problem.grader == arguments.grader]
    return name, problems


if __name__ == "__main__":
    main()
