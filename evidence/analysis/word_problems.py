"""One-step word problems with small numbers, from ASDiv, SVAMP and MAWPS: what a model of 135M parameters solves now and then.

    python evidence/analysis/word_problems.py FOLDER small_word_problems.jsonl

FOLDER holds asdiv.jsonl, svamp.jsonl and mawps.jsonl as their authors' fields are named. A problem is kept if all numbers in it and its
answer are whole and at most 30, and, where the set tells how it is solved (ASDiv, SVAMP), if one operation does. Those get a `working`,
such as "7 + 2 = 9". A question that comes twice is kept once. With `--heldout FILE` 256 of them, chosen by a hash of the question, are
written there too: a task with `heldout=FILE` then trains on none of them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from delta_rlvr.tasks import Problem, load_problems

LARGEST = 30
HELD_OUT = 256
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_ONE_STEP = re.compile(r"\(?\s*(\d+)(?:\.0)?\s*([-+*/])\s*(\d+)(?:\.0)?\s*(?:\)|=.*)")
_WORKING_FIELDS = {"asdiv": "formula", "svamp": "Equation", "mawps": None}


def small_problems(folder: Path) -> Iterator[dict[str, str]]:
    """Rows of the three sets that are easy enough."""
    seen: set[str] = set()
    for name, field in _WORKING_FIELDS.items():
        for problem in load_problems(folder / f"{name}.jsonl", schema=name, working=field):
            question = " ".join(str(problem.meta["question"]).split())
            row = {"question": question, "answer": str(problem.answer)}
            if field is not None:
                working = _one_step(problem)
                if working is None:
                    continue
                row["working"] = working
            # The working too: a question may spell its numbers out.
            if question in seen or not _small(" ".join(row.values())):
                continue
            seen.add(question)
            yield row


def _small(text: str) -> bool:
    numbers = [float(number.replace(",", "")) for number in _NUMBER.findall(text)]
    return all(number.is_integer() and number <= LARGEST for number in numbers)


def _one_step(problem: Problem) -> str | None:
    """The operation and its result, where there is one operation and the answer is its result."""
    found = _ONE_STEP.fullmatch(problem.meta["working"].strip())
    if found is None or not str(problem.answer).isdecimal():
        return None
    left, sign, right, answer = int(found[1]), found[2], int(found[3]), int(problem.answer)
    results = {"+": left + right, "-": left - right, "*": left * right, "/": left / right if right else None}
    return f"{left} {sign} {right} = {answer}" if results[sign] == answer else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where asdiv.jsonl, svamp.jsonl and mawps.jsonl are")
    parser.add_argument("output", type=Path, help="the file to write")
    parser.add_argument("--heldout", type=Path, help=f"a file for {HELD_OUT} of them")
    options = parser.parse_args()
    rows = list(small_problems(options.folder))
    chosen = sorted(rows, key=lambda row: hashlib.sha256(row["question"].encode()).hexdigest())[:HELD_OUT]
    for path, part in ((options.output, rows), (options.heldout, chosen)):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
    print(f"{len(rows)} problems, {sum('working' in row for row in rows)} of them with a working")


if __name__ == "__main__":
    main()
