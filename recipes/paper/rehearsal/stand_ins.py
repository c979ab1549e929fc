"""Stand-ins for DeepMath-103K and the paper's seven benchmarks: sums, in the schemas of the real files. `stand_ins.py FOLDER`

The built-in policy can add. Training and benchmarks share no sum.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from delta_rlvr.evaluate.benchmarks import BENCHMARKS
from delta_rlvr.evaluate.settings import PRESETS
from delta_rlvr.tasks import Problem, get_task

TRAINING = 4000


def deepmath(problem: Problem) -> dict[str, object]:
    """A row as DeepMath-103K has it."""
    solutions = {f"r1_solution_{number}": f"It is {problem.answer}. " * 100 for number in (1, 2, 3)}
    row = {"question": str(problem.prompt).strip(), "final_answer": str(problem.answer)}
    return {**row, "difficulty": 5.0, "topic": "Mathematics -> Arithmetic", **solutions}


def aime24(number: int, problem: Problem) -> dict[str, object]:
    """A row as HuggingFaceH4/aime_2024 has it."""
    row = {"id": number, "problem": str(problem.prompt).strip(), "solution": "It is added up."}
    return {**row, "answer": str(problem.answer), "url": "", "year": "2024"}


def math_arena(number: int, problem: Problem) -> dict[str, object]:
    """A row as the sets of MathArena have it."""
    text = str(problem.prompt).strip()
    return {"problem_idx": number, "problem": text, "answer": problem.answer, "problem_type": ["Algebra"]}


def main() -> None:
    import pyarrow.parquet

    folder = Path(sys.argv[1])
    (folder / "math").mkdir(parents=True, exist_ok=True)
    task = get_task("phrased-sums")
    rows = [deepmath(problem) for problem in task.problems("train", TRAINING)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "deepmath.parquet")
    start = 0
    for name in PRESETS["paper-math"].benchmarks:
        benchmark = BENCHMARKS[name]
        row = aime24 if name == "aime24" else math_arena
        problems = task.problems("heldout", benchmark.questions, start=start)
        start += benchmark.questions
        lines = [json.dumps(row(number, problem)) for number, problem in enumerate(problems, start=1)]
        (folder / benchmark.files[0]).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{folder}: {TRAINING} rows to train on, {start} questions of 7 benchmarks")


if __name__ == "__main__":
    main()
